"""Bytes of ``__consumer_offsets`` and its siblings: keys, values and record batches. Pure functions without I/O.

:mod:`.codec` converts the coordinator's records, :mod:`.typed` and :mod:`.describe` records of every type, as fields
and as JSON. :mod:`.batches` reads and writes batches, :mod:`.salvage` reads damaged logs. ``docs/records.md`` describes
the format.
"""
