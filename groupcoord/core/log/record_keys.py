"""Keys of group records (the last record with a key counts), and the partitions in them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple
from uuid import UUID

RecordKey = tuple[int, str]
"""Record type, and the member or regular expression in the key, or ""."""


class GroupWideRecord:
    """Record with a key that names the group alone; each class has its type."""

    __slots__ = ()

    RECORD_TYPE: ClassVar[int]
    key: ClassVar[RecordKey]

    def __init_subclass__(cls) -> None:
        cls.key = cls.RECORD_TYPE, ""


class MemberRecord:
    """Record with a key that names a member; each class has its type."""

    __slots__ = ()

    RECORD_TYPE: ClassVar[int]
    member_id: str

    @property
    def key(self) -> RecordKey:
        """The key of this member's records of this type."""
        return self.RECORD_TYPE, self.member_id

    @classmethod
    def key_of(cls, member_id: str) -> RecordKey:
        """Return the key of a member's records, for tombstones."""
        return cls.RECORD_TYPE, member_id


class TopicPartitions(NamedTuple):
    """Partitions of one topic: in a target assignment, a heartbeat or its answer.

    Attributes:
        topic_id: the topic.
        partitions: their numbers, as the assignor gave them.
    """

    topic_id: UUID
    partitions: tuple[int, ...]
