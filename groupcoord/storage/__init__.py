"""Logs: of topics and of offsets, in memory and in Kafka's segment files (``docs/records.md``), and in databases.

One kind of log holds whoever's batches. Of producers' batches only the header is read; offsets and leader epoch are
written into it, as a broker does, and everything behind it stays as it came. What reads batches is loaded when there is
one: a server that starts has none.
"""
