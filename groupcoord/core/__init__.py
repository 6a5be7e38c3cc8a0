"""The state machines of the coordinator: no I/O, no clock, no randomness, no logging.

Every input carries the time; outputs are collected in :class:`~groupcoord.core.outputs.Effects`. The way in is
:class:`~groupcoord.core.partition.Partition`.
"""
