"""What topics hold: a log for each of their partitions, in memory, and what is known of the producers that wrote it.

Batches are opaque bytes here. Of each only the header is read; offsets and leader epoch are written into it, as a
broker does, and everything behind it stays as it came. Sources: ``UnifiedLog``, ``LogValidator``,
``ProducerStateManager`` and ``TransactionIndex`` of Apache Kafka 4.4, as recorded.

What reads batches is loaded when there is one: a server that starts has none.
"""
