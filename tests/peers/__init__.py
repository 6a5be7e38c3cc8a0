"""Test suites that others wrote for their clients, run against ``groupcoord serve``.

One module each, to be run: ``python -m tests.peers.franz_go``. The sources come from package registries and lie outside
of the checkout, as does what is built of them. ``expected/`` says what becomes of each test on Apache Kafka 4.4.0.
"""
