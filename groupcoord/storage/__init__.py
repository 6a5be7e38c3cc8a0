"""Logs of topics and of committed offsets: in memory, in Kafka's segment files
(``docs/records.md``), and in databases.
"""
