"""Which partitions were moved from whom to whom, so that two members don't exchange partitions of one topic."""

from __future__ import annotations

from groupcoord.java import hash_bucket, string_hash
from groupcoord.member.assignors.claims import PartitionNumbers

Pair = tuple[int, int]


class PartitionMovements:
    """Remembers each moved partition's first and last owner. Source: ``PartitionMovements`` of Kafka's Java client."""

    def __init__(self, numbers: PartitionNumbers) -> None:
        self._numbers = numbers
        self._pairs: dict[int, Pair] = {}
        self._moved: dict[int, dict[Pair, _JavaSet]] = {}
        self._topic_hashes: dict[int, int] = {}

    def note(self, number: int, old_owner: int, new_owner: int) -> None:
        """Remember that a partition moves."""
        first_owner = old_owner
        if number in self._pairs:
            first_owner = self._forget(number)
            if first_owner == new_owner:
                return
        topic = self._numbers.topic_of[number]
        pair = (first_owner, new_owner)
        self._pairs[number] = pair
        self._moved.setdefault(topic, {}).setdefault(pair, _JavaSet()).add(number, self._hash(number))

    def partition_to_move(self, number: int, old_owner: int, new_owner: int) -> int:
        """Return which partition to move: if one of the topic went the other way before, that one goes back."""
        moved = self._moved.get(self._numbers.topic_of[number])
        if not moved:
            return number
        if number in self._pairs:
            old_owner = self._pairs[number][0]
        reverse = moved.get((new_owner, old_owner))
        return number if reverse is None else reverse.first()

    def _forget(self, number: int) -> int:
        pair = self._pairs.pop(number)
        moved = self._moved[self._numbers.topic_of[number]]
        moved[pair].discard(number)
        if not moved[pair]:
            del moved[pair]
        return pair[0]

    def _hash(self, number: int) -> int:
        """Return Java's hash code of a ``TopicPartition``."""
        topic = self._numbers.topic_of[number]
        if topic not in self._topic_hashes:
            self._topic_hashes[topic] = string_hash(self._numbers.topics[topic])
        return 31 * (31 + self._numbers.partition_of[number]) + self._topic_hashes[topic]


class _JavaSet:
    """Numbers in a ``HashSet``, for the sake of the one that comes first."""

    def __init__(self) -> None:
        self._hashes: dict[int, int] = {}
        self._buckets = 16

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def add(self, number: int, hash_code: int) -> None:
        """Add a number that is not in the set."""
        self._hashes[number] = hash_code
        if len(self._hashes) > self._buckets * 3 // 4:
            self._buckets *= 2

    def discard(self, number: int) -> None:
        """Take a number out; the table stays as large as it was."""
        del self._hashes[number]

    def first(self) -> int:
        """Return what an iterator meets first: the lowest bucket, and in it what was added first."""
        return min(self._hashes, key=lambda number: hash_bucket(self._hashes[number], self._buckets))
