"""Logs of topics and of committed offsets: in memory, in Kafka's segment files (``docs/records.md``), and in databases.

One kind of log holds the batches of producers and of the coordinator. Of a producer's batch usually the header alone is
read; its offsets and leader epoch are rewritten, as a broker does, and the records stay as they came.
"""
