"""State machines of the coordinator: no I/O, no clock, no randomness, no logging.

Each input has the time as an argument; :class:`~groupcoord.core.log.log_partition.Effects` collects the outputs.
:class:`~groupcoord.core.partition.Partition` is the entry point.
"""
