"""The bytes of ``__consumer_offsets``: keys and values (:mod:`.codec`) and record batches (:mod:`.batches`).

Pure functions without I/O. ``docs/records.md`` is the normative description of the format.
"""
