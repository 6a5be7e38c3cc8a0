"""Clusters that run: where their topics' logs begin and end, and raw batches out of them, over the network.

``settings`` says how to connect, by Kafka's own names. ``cluster`` is what is asked of a cluster, ``client`` asks it
by aiokafka's connections, in ``requests`` that kio declares. ``retries`` keeps at it while leaders move and brokers
restart, ``offset_ranges`` and ``tasks`` plan who reads what, and ``rows`` makes of it the same rows as of files.
``record_times`` looks at single records, and ``broker_settings`` at what brokers are set to, where users may.
``snapshots`` asks for groups where nobody may read their log.
"""
