"""Laws of the log: legal successions of records, and the state that they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from groupcoord.core.consumer_protocol import decode_subscription
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
)
from groupcoord.core.groups.consumer.state import ConsumerState
from groupcoord.core.log.hard_state import HardState
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    NO_PRODUCER_ID,
    GroupMetadataRecord,
    GroupRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    TransactionMarker,
)
from groupcoord.laws import OffsetLedger, require
from groupcoord.laws.consumer_groups import OF_NO_GROUP
from groupcoord.log_store import LogRecord
from groupcoord.sim.cluster.nodes import SimulatedCluster
from groupcoord.sim.laws.group_laws import TargetLaws, assignment_in

ASSIGNMENT, _ = ConsumerGroupCurrentMemberAssignmentRecord.key_of("")


class LogLaws:
    """Laws of all records written to the log.

    Attributes:
        replayed: the state of each log partition, from its records.
        ledgers: committed offsets of each log partition, from a simple model.
        newest_generations: by group id, the highest generation or epoch ever.
        classic_generations: by group id, the last generation of a removed classic group, until a consumer group ends.
        group_records: by group id, the number of its records other than offsets.
        is_calm: True when no more events occur, so that no more records of groups may be written.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.replayed = [HardState() for _ in range(cluster.partition_count)]
        self.ledgers = [OffsetLedger() for _ in range(cluster.partition_count)]
        assignor = cluster.config.group_consumer_assignors[0]
        self._targets = [TargetLaws(assignor) for _ in range(cluster.partition_count)]
        self._log = cluster.log
        self._topics = cluster.topics
        self._fresh = cluster.log.fresh
        self._scheduler = cluster.scheduler
        self._followed_ms = -1
        self._followed: dict[int, list[LogRecord]] = {}
        self._replaced: dict[tuple[str, str], list[ConsumerGroupCurrentMemberAssignmentRecord]] = {}
        self._metadata_max = cluster.config.offset_metadata_max_bytes
        self.newest_generations: dict[str, int] = {}
        self.classic_generations: dict[str, int] = {}
        self.group_records: Counter[str] = Counter()
        self.is_calm = False
        self._generations: dict[str, int] = {}
        self._ended: dict[tuple[int, int], int] = {}

    def follow(self, partition: int) -> HardState:
        """Check the records of a log partition since the last call; return the hard state."""
        hard, ledger, fresh = self.replayed[partition], self.ledgers[partition], self._fresh[partition]
        if not fresh:
            return hard
        if self._followed_ms != self._scheduler.time_ms:
            self._followed_ms = self._scheduler.time_ms
            self._followed.clear()
            self._replaced.clear()
        self._followed.setdefault(partition, []).extend(fresh)
        for entry in fresh:
            record = entry.record
            if not isinstance(record, OF_NO_GROUP):
                self._count(record)
                kind, member_id = record.key
                if kind == ASSIGNMENT and (before := assignment_in(hard, record.group_id, member_id)) is not None:
                    self._replaced.setdefault((record.group_id, member_id), []).append(before)
            match record:
                case OffsetCommitRecord():
                    self._check_commit(partition, record)
                case GroupMetadataRecord():
                    self._check_generation(record)
                case ConsumerGroupMetadataRecord():
                    self._reach(record.group_id, record.epoch)
                case GroupTombstone() if record.key == CLASSIC_GROUP_KEY:
                    self.classic_generations[record.group_id] = self._generations.pop(record.group_id, 0)
                case GroupTombstone() if record.key == ConsumerGroupMetadataRecord.key:
                    self.classic_generations.pop(record.group_id, None)
                case OffsetTombstone():
                    self._check_removal(record, hard)
                case TransactionMarker():
                    self._ended[partition, record.producer_id] = record.producer_epoch
            hard.apply(record, entry.offset)
            if not isinstance(record, OF_NO_GROUP):
                self._targets[partition].take(record, hard)
            ledger.take(record, entry.offset)
        fresh.clear()
        return hard

    def _check_generation(self, record: GroupMetadataRecord) -> None:
        last = self._generations.get(record.group_id, 0)
        require(record.generation_id >= last, f"the generation of {record.group_id!r} only grows in the log")
        self._generations[record.group_id] = record.generation_id
        self._reach(record.group_id, record.generation_id)

    def _check_commit(self, partition: int, record: OffsetCommitRecord) -> None:
        """Check the length of metadata, and that no transaction continues after its marker."""
        require(
            len(record.metadata) <= self._metadata_max,
            f"{record!r} has metadata of more than {self._metadata_max} characters",
        )
        if record.producer_id != NO_PRODUCER_ID:
            ended = self._ended.get((partition, record.producer_id), -1)
            require(record.producer_epoch > ended, f"{record!r} is written after the marker of its transaction")

    def _reach(self, group_id: str, generation_id: int) -> None:
        self.newest_generations[group_id] = max(generation_id, self.newest_generations.get(group_id, 0))

    def _count(self, record: GroupRecord | GroupTombstone) -> None:
        """Count a record; at rest only regular expressions and tombstones may be written."""
        self.group_records[record.group_id] += 1
        is_refresh = isinstance(record, ConsumerGroupRegularExpressionRecord | GroupTombstone)
        require(is_refresh or not self.is_calm, f"all is at rest, and yet {record!r} is written")

    def _check_removal(self, tombstone: OffsetTombstone, hard: HardState) -> None:
        """Check that offsets of subscribed topics are neither expired nor deleted, unless the topic was."""
        if self._topics.was_deleted(tombstone.topic):
            return
        if hard.has_consumer_group(tombstone.group_id):
            records = [record for _, record in hard.groups[tombstone.group_id].values()]
            topics = ConsumerState.of(tombstone.group_id, records).subscribed_topics()
            require(tombstone.topic not in topics, f"{tombstone!r} is of a topic that members subscribe to: {topics}")
        # If the record of an empty group was refused, the log still has its members.
        group = hard.classic_record(tombstone.group_id)
        if group is None or group.group_id in self._log.unwritten_empties:
            return
        is_subscribed = any(tombstone.topic in _topics_of(member.subscription) for member in group.members)
        require(not is_subscribed, f"{tombstone!r} is of a topic that {group!r} subscribes to")

    def _written_now(self, partition: int) -> Iterator[LogRecord]:
        if self._followed_ms == self._scheduler.time_ms:
            yield from self._followed.get(partition, ())
        yield from self._fresh[partition]

    def missing(self, partition: int, group_id: str, commits: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return commits without those that are written now or reported late, which are removed from ``commits``."""
        for entry in chain(reversed([*self._written_now(partition)]), reversed(self._log.late[partition])):
            record = entry.record
            if type(record) is OffsetCommitRecord and record.group_id == group_id:
                key = (record.topic, record.partition)
                if commits.get(key) == record.offset:
                    del commits[key]
                    if not commits:
                        break
        return commits

    def reported_assignments(
        self, partition: int, group_id: str, member_id: str
    ) -> list[ConsumerGroupCurrentMemberAssignmentRecord]:
        """Return the current assignment of a member in the log, and those at this time.

        A completed write starts the next one, whose records may be in the log before the responses of the first leave.
        """
        now = assignment_in(self.follow(partition), group_id, member_id)
        is_new = self._followed_ms == self._scheduler.time_ms
        before = self._replaced.get((group_id, member_id), []) if is_new else []
        return before if now is None else [*before, now]

    def has_member(self, partition: int, group_id: str, member_id: str) -> bool:
        hard = self.follow(partition)
        record = hard.classic_record(group_id)
        members = () if record is None else record.members
        is_in_classic_group = any(member.member_id == member_id for member in members)
        return is_in_classic_group or assignment_in(hard, group_id, member_id) is not None

    def has_just_removed(self, partition: int, group_id: str) -> bool:
        return any(
            isinstance(entry.record, GroupTombstone) and entry.record.group_id == group_id
            for entry in chain(self._written_now(partition), self._log.late[partition])
        )

    def describe(self) -> str:
        lines = []
        for hard in self.replayed:
            for group_id, records in sorted(hard.groups.items()):
                lines.append(f"{group_id} {[record for _, record in records.values()]!r}")
            for _, topics in sorted(hard.offsets.committed.items()):
                for _, partitions in sorted(topics.items()):
                    lines += [repr(commit.logged(index)[1]) for index, commit in sorted(partitions.items())]
        return "\n".join(lines)


@lru_cache(maxsize=1_000)
def _topics_of(subscription: bytes) -> frozenset[str]:
    return frozenset(decode_subscription(subscription).topics)
