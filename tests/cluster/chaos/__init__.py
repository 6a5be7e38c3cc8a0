"""Three nodes over an engine under live clients, and everything that can happen to each of these processes.

    python -m tests.cluster.chaos SETTING FAULTS [SEED]

prints how long groups were without an answer, by kind of fault, and ends with an error if one lost something. SETTING
is ``service-over-postgres``, ``nodes-over-postgres`` or ``nodes-over-nats``.
"""
