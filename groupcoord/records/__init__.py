"""The bytes of ``__consumer_offsets``: keys and values, and record batches. Pure functions without I/O.

:mod:`.codec` makes the coordinator's records of keys and values; :mod:`.typed` and :mod:`.describe` read every type
that brokers write, as fields and as JSON. :mod:`.batches` reads and writes batches, :mod:`.salvage` what is left of
damaged ones. ``docs/records.md`` is the normative description of the format.
"""
