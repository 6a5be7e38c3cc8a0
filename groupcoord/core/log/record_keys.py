"""Which record of a group is which: of the records with the same key, the last one counts."""

from __future__ import annotations

from typing import ClassVar

RecordKey = tuple[int, str]
"""The type of a group's record, and what its key names besides the group: nothing, a member, or a regular expression.

Each class of records has it as ``key``; the classes whose keys name something make it with ``key_of`` as well, for a
tombstone."""


class MemberRecord:
    """A record whose key names a member: each class says its type in the log."""

    __slots__ = ()

    RECORD_TYPE: ClassVar[int]
    member_id: str

    @property
    def key(self) -> RecordKey:
        """The key of this member's records of this type."""
        return self.RECORD_TYPE, self.member_id

    @classmethod
    def key_of(cls, member_id: str) -> RecordKey:
        """Return the key for a member."""
        return cls.RECORD_TYPE, member_id
