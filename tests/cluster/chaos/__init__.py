"""Three replicas over a database under live clients, and everything that can happen to each of these processes.

    python -m tests.cluster.chaos FAULTS [SEED]

prints how long groups were without an answer, by kind of fault, and ends with an error if one lost something.
"""
