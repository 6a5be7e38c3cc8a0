"""Which record of a group is which: of the records with the same key, the last one counts."""

from __future__ import annotations

RecordKey = tuple[int, str]
"""The type of a group's record, and what its key names besides the group: nothing, a member, or a regular expression.

Each class of records has it as ``key``; the classes whose keys name something make it with ``key_of`` as well, for a
tombstone."""
