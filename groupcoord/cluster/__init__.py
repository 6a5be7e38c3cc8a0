"""Several owners of one log: each log partition has one of them at a time, and another takes over when it dies.

Replication and durability are those of an engine that others have proven. What is needed of it is little, a
:class:`~groupcoord.cluster.slot_log.SlotLog`: numbered slots that are filled once, in order. The rest is decided here,
without I/O and without a clock: who writes (:mod:`groupcoord.cluster.slot_writer`), what a log comes to
(:mod:`groupcoord.cluster.slot_messages`), and who should own what (:mod:`groupcoord.cluster.membership`). To a
coordinator it is a log store (:mod:`groupcoord.cluster.slot_store`); :mod:`groupcoord.cluster.sharing` keeps both in
step, and :class:`~groupcoord.cluster.replica.Replica` drives all of it in an event loop.
"""
