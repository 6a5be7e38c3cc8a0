"""Shared logs: several nodes own the partitions of one log, one node each at a time, and take over from dead ones.

Replication and durability are left to a proven engine, a :class:`~groupcoord.cluster.slot_log.SlotLog`: numbered slots
that are filled once, in order. The rest is decided without I/O and without a clock: who writes
(:mod:`groupcoord.cluster.slot_writer`), which state a log adds up to (:mod:`groupcoord.cluster.slot_log`), and who
should own what (:mod:`groupcoord.cluster.membership`). A coordinator uses it as a log store
(:mod:`groupcoord.cluster.slot_store`). :mod:`groupcoord.cluster.replica` keeps both consistent in an event loop.
"""
