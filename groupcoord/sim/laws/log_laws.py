"""Laws of the log, of responses about groups, and of share groups.

They concern legal successions of records, the states that these add up to, targets, and owners of records (KIP-932).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any
from uuid import UUID

from groupcoord.broker.share.share_partitions import LedPartition
from groupcoord.config import GroupType
from groupcoord.core.consumer_protocol import TopicPartition, decode_assignment, decode_subscription
from groupcoord.core.groups.base.assignor import SubscriptionType
from groupcoord.core.groups.classic.group import GroupState
from groupcoord.core.groups.consumer.group import ConsumerGroupState, ConsumerState
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.share.group import ShareGroupState
from groupcoord.core.groups.streams.group import StreamsGroupState
from groupcoord.core.log.log_partition import HardState
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
from groupcoord.core.share_partition.in_flight import FINISHED, AcknowledgeType
from groupcoord.core.share_state.records import SharePartitionKey, StateBatch
from groupcoord.errors import ErrorCode
from groupcoord.laws import OffsetLedger, ShareLedger, check_share_partition, check_states_are_the_log, require
from groupcoord.laws.modern_groups import OF_NO_GROUP
from groupcoord.log_store import LogRecord
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    ListGroupsResponse,
    Request,
    Response,
)
from groupcoord.sim.cluster.nodes import CoordinatorNode, SimulatedCluster
from groupcoord.sim.cluster.share_groups import STATES_PARTITION, SharedTopics
from groupcoord.sim.cluster.topics import indices_of
from groupcoord.wire.share_messages import (
    AcquiredRecords,
    ShareAcknowledge,
    ShareAcknowledgeResponse,
    ShareFetch,
    ShareFetchResponse,
)

STATES: dict[str, set[str]] = {
    group_type: {state.value for state in states if state.name != "DEAD"}
    for group_type, states in (
        (GroupType.CLASSIC, GroupState),
        (GroupType.CONSUMER, ConsumerGroupState),
        (GroupType.SHARE, ShareGroupState),
        (GroupType.STREAMS, StreamsGroupState),
    )
}
"""States of groups by type."""


def check_listed(response: ListGroupsResponse, is_known: Callable[[str], bool | None]) -> None:
    """Check that every group is listed once, in a valid state, and is in the log.

    ``is_known`` returns whether the log has a group, or None if the node may know more or less than the log.
    """
    names = [group.group_id for group in response.groups]
    require(len(names) == len(set(names)), f"a group is listed twice: {names}")
    for group in response.groups:
        require(group.group_state in STATES.get(group.group_type, ()), f"listed is {group!r}")
        require(is_known(group.group_id) is not False, f"listed is {group!r}, of which the log knows nothing")


def check_described(group: DescribedGroup, gone: set[str]) -> None:
    """Check that members are distinct and not ``gone``, and that a partition has one owner in a generation."""
    if group.error_code is not ErrorCode.NONE:
        return
    require(group.group_state in STATES[GroupType.CLASSIC], f"described is {group!r}")
    ids = [member.member_id for member in group.members]
    require(len(ids) == len(set(ids)), f"a member is described twice: {ids}")
    require(not gone.intersection(ids), f"{group.group_id!r} is described with {gone.intersection(ids)}, who are out")
    require(not ids or group.group_state != GroupState.EMPTY.value, f"described is {group!r}")
    if group.group_state == GroupState.STABLE.value:
        owned: list[TopicPartition] = []
        for member in group.members:
            owned += decode_assignment(member.member_assignment).partitions if member.member_assignment else ()
        require(len(owned) == len(set(owned)), f"in {group.group_id!r} a partition is assigned twice: {sorted(owned)}")


def check_deleted(response: DeleteGroupsResponse, has_just_removed: Callable[[str], bool]) -> None:
    for result in response.results:
        require(
            result.error_code is not ErrorCode.NONE or has_just_removed(result.group_id),
            f"{result.group_id!r} was reported as deleted, but the log has it",
        )


def assignment_in(hard: HardState, group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentRecord | None:
    """Return the current assignment of a member in the log, or None if it is no member."""
    key = ConsumerGroupCurrentMemberAssignmentRecord.key_of(member_id)
    _, record = hard.groups.get(group_id, {}).get(key, (None, None))
    return record if isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord) else None


def check_heartbeat_response(
    records: Sequence[ConsumerGroupCurrentMemberAssignmentRecord],
    request: ConsumerGroupHeartbeat,
    response: ConsumerGroupHeartbeatResponse,
) -> None:
    """Check that a heartbeat response holds only durable epochs and partitions.

    ``records`` are the current assignment of the member in the log, and those that it has just replaced.
    """
    member_id = response.member_id or ""
    if response.error_code is not ErrorCode.NONE or response.member_epoch <= 0:
        return
    reported = indices_of(response.assignment or ())
    holds = any(
        record.member_epoch >= response.member_epoch and reported <= indices_of(record.assigned_partitions)
        for record in records
    )
    require(holds, f"{member_id} of {request.group_id!r} is told {response!r}, the log has {records!r}")


def check_described_consumer_group(group: DescribedConsumerGroup) -> None:
    """Check that members are distinct, member epoch ≤ assignment epoch ≤ group epoch, and a partition has one owner."""
    if group.error_code is not ErrorCode.NONE:
        return
    ids = [member.member_id for member in group.members]
    require(len(ids) == len(set(ids)), f"a member is described twice: {ids}")
    epochs = [member.member_epoch for member in group.members]
    require(
        max(epochs, default=0) <= group.assignment_epoch <= group.group_epoch,
        f"the epochs of {group.group_id!r} are {group.group_epoch} and {group.assignment_epoch}, of members {epochs}",
    )
    owned = [
        (topic.topic_name, index)
        for member in group.members
        for topic in member.assignment
        for index in topic.partitions
    ]
    require(len(owned) == len(set(owned)), f"in {group.group_id!r} a partition is assigned twice: {sorted(owned)}")


Shares = dict[str, frozenset[tuple[UUID, int]]]
"""Target partitions by member id."""

TARGET_OF_MEMBER, _ = ConsumerGroupTargetAssignmentMemberRecord.key_of("")
"""Record type of the target assignment of a member."""


class TargetLaws:
    """Laws of the target assignments of a log partition.

    The uniform assignor is checked where all members subscribe to the same topics and none requests another assignor.
    """

    def __init__(self, assignor: str) -> None:
        self._is_uniform = assignor == "uniform"
        self._before: dict[str, Shares] = {}
        self._now: dict[str, Shares] = {}

    def take(self, record: GroupRecord | GroupTombstone, hard: HardState) -> None:
        """Check the next record of a group: a new target is balanced and moves no partition without need."""
        group_id = record.group_id
        if isinstance(record, ConsumerGroupTargetAssignmentMemberRecord):
            share = frozenset((topic_id, index) for topic_id, indexes in record.topic_partitions for index in indexes)
            # New members, and replacements of static ones, have this target as their first.
            self._before.setdefault(group_id, {}).setdefault(record.member_id, share)
            self._now.setdefault(group_id, {})[record.member_id] = share
        elif isinstance(record, ConsumerGroupTargetAssignmentMetadataRecord):
            # This record follows the members' records of a new target. Its timestamp is 0 if no assignor was called.
            now = self._now.get(group_id, {})
            before, self._before[group_id] = self._before.get(group_id, {}), dict(now)
            if record.assignment_timestamp_ms and self._is_judged(group_id, hard):
                check_shares(group_id, before, now)
        elif isinstance(record, GroupTombstone) and record.key[0] == TARGET_OF_MEMBER:
            for shares in (self._before, self._now):
                shares.get(group_id, {}).pop(record.key[1], None)

    def _is_judged(self, group_id: str, hard: HardState) -> bool:
        state = ConsumerState.of(group_id, [entry for _, entry in hard.groups.get(group_id, {}).values()])
        found = {state.subscription_type(), state.last_seen_subscriptions()}
        return self._is_uniform and not state.votes and found == {SubscriptionType.HOMOGENEOUS}


def check_shares(group_id: str, before: Mapping[str, frozenset[object]], now: Mapping[str, frozenset[object]]) -> None:
    """Check that a target is balanced and moves no partition without need.

    ``before`` holds the previous targets of the present members; for new ones the present target.
    """
    sizes = [len(share) for share in now.values()]
    require(max(sizes, default=0) - min(sizes, default=0) <= 1, f"targets of {group_id!r} have the sizes {sizes}")
    there_are = frozenset[object]().union(*now.values())
    for member_id, share in now.items():
        had = before.get(member_id, share)
        # A partition that is in no target any more was not lost to another member.
        lost, gained = (had & there_are) - share, share - had
        require(
            not (lost and gained), f"{member_id} of {group_id!r} is to have {set(gained)}, and others have {set(lost)}"
        )


ASSIGNMENT, _ = ConsumerGroupCurrentMemberAssignmentRecord.key_of("")


class LogLaws:
    """Laws of all records written to the log.

    Attributes:
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
        self._cluster = cluster
        self._log = cluster.log
        self._followed_ms = -1
        self._followed: dict[int, list[LogRecord]] = {}
        self._replaced: dict[tuple[str, str], list[ConsumerGroupCurrentMemberAssignmentRecord]] = {}
        self.newest_generations: dict[str, int] = {}
        self.classic_generations: dict[str, int] = {}
        self.group_records: Counter[str] = Counter()
        self.is_calm = False
        self._generations: dict[str, int] = {}
        self._ended: dict[tuple[int, int], int] = {}

    def follow(self, partition: int) -> HardState:
        """Check the records of a log partition since the last call; return the hard state."""
        hard, ledger, fresh = self.replayed[partition], self.ledgers[partition], self._log.fresh[partition]
        if not fresh:
            return hard
        if self._followed_ms != self._cluster.scheduler.time_ms:
            self._followed_ms = self._cluster.scheduler.time_ms
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
        length_max = self._cluster.config.offset_metadata_max_bytes
        require(len(record.metadata) <= length_max, f"{record!r} has metadata of more than {length_max} characters")
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
        if self._cluster.topics.was_deleted(tombstone.topic):
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
        if self._followed_ms == self._cluster.scheduler.time_ms:
            yield from self._followed.get(partition, ())
        yield from self._log.fresh[partition]

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

        A completed write starts the next one. Its records may be in the log before the responses of the first leave.
        """
        now = assignment_in(self.follow(partition), group_id, member_id)
        is_new = self._followed_ms == self._cluster.scheduler.time_ms
        before = self._replaced.get((group_id, member_id), []) if is_new else []
        return before if now is None else [*before, now]

    def has_member(self, partition: int, group_id: str, member_id: str) -> bool:
        hard = self.follow(partition)
        record = hard.classic_record(group_id)
        members = () if record is None else record.members
        is_in_classic_group = any(member.member_id == member_id for member in members)
        return is_in_classic_group or assignment_in(hard, group_id, member_id) is not None

    def has_just_removed(self, group_id: str) -> bool:
        partition = self._cluster.partition_of(group_id)
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


FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
"""Acknowledgements that must be durable before their response."""


class ShareLaws:
    """Laws of responses to members of share groups, and of their durable state.

    Records acquired from a former leader that has not been notified count only as delivered.
    """

    def __init__(self, shared: SharedTopics, batch_max: int) -> None:
        self._shared = shared
        shared.on_written, shared.on_emptied = self._written, self._emptied
        self._batch_max = batch_max
        self._ledgers: dict[SharePartitionKey, ShareLedger] = {}
        self._led: dict[SharePartitionKey, LedPartition | None] = {}  # to which the holders in a ledger belong

    def _ledger(self, key: SharePartitionKey) -> ShareLedger:
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers[key] = ShareLedger(self._shared.settings.delivery_count_limit)
        return ledger

    def _written(self, key: SharePartitionKey, batches: tuple[StateBatch, ...]) -> None:
        for first, last, *_ in batches:
            self._ledger(key).let_go(range(first, last + 1))

    def _emptied(self, key: SharePartitionKey) -> None:
        """Forget outcomes that the log has lost: these records are delivered again."""
        ledger = self._ledger(key)
        ledger.accepted.clear()
        ledger.archived.clear()

    def _current(self, node: CoordinatorNode, key: SharePartitionKey) -> LedPartition | None:
        """Return a share-partition at its leader, or None if the node is not the leader."""
        topic = self._shared.topics.get_by_id(key.topic_id)
        if topic is None or node.shares is None:
            return None
        leads = node.leads(self._shared.log_partition_of(topic, key.partition))
        return node.shares.requests.partitions.known(key) if leads else None

    # ------------------------------------------------------------ responses

    def on_answer(self, node: CoordinatorNode, request: Request, response: Response, now_ms: int) -> None:
        sent: Any = request
        if isinstance(sent, ShareFetch | ShareAcknowledge):
            self._shared.follow()
            assert isinstance(response, ShareFetchResponse | ShareAcknowledgeResponse)
            for key, kinds in _taken(sent, response):
                self._check_taken(node, key, kinds, now_ms + response.acquisition_lock_timeout_ms)
            if isinstance(response, ShareFetchResponse):
                for topic in response.responses:
                    for data in topic.partitions:
                        key = SharePartitionKey(sent.group_id or "", topic.topic_id, data.partition_index)
                        until_ms = now_ms + response.acquisition_lock_timeout_ms
                        self._check_acquired(node, key, sent.member_id or "", data.acquired_records, now_ms, until_ms)

    def _check_acquired(
        self,
        node: CoordinatorNode,
        key: SharePartitionKey,
        member_id: str,
        acquired: tuple[AcquiredRecords, ...],
        now_ms: int,
        until_ms: int,
    ) -> None:
        led, ledger = self._current(node, key), self._ledger(key)
        if led is None:
            ledger.delivered.update(offset for first, last, _ in acquired for offset in range(first, last + 1))
        elif acquired:
            if self._led.get(key) is not led:
                self._led[key] = led
                ledger.forget_holders()
            ledger.acquired(member_id, acquired, now_ms, until_ms)  # type: ignore[arg-type]

    def _check_taken(
        self, node: CoordinatorNode, key: SharePartitionKey, kinds: dict[int, AcknowledgeType], until_ms: int
    ) -> None:
        """Extend renewed locks; check that accepted or rejected records are finished in the log or below the start."""
        led, ledger = self._current(node, key), self._ledger(key)
        for offset, kind in kinds.items():
            if kind is AcknowledgeType.RENEW:
                if led is not None and led is self._led.get(key):
                    ledger.renewed((offset,), until_ms)
            elif kind in FINAL:
                is_durable = self._is_finished(key, offset)
                start_offset = -1 if node.shares is None else node.shares.start_offset(key)
                is_past = start_offset < 0 or offset < start_offset
                require(is_durable or is_past, f"{offset} of {key} counts as {kind.name}, but not in the log")
                if is_durable:
                    (ledger.accepted if kind is AcknowledgeType.ACCEPT else ledger.archived).add(offset)

    def _is_finished(self, key: SharePartitionKey, offset: int) -> bool:
        state = self._shared.follow().states.get(key)
        if state is None:
            return False
        batches = state.snapshot.state_batches
        return offset < state.snapshot.start_offset or any(
            first <= offset <= last and delivery_state in FINISHED for first, last, delivery_state, _ in batches
        )

    # ------------------------------------------------------------ costly laws

    def look_at(self, node: CoordinatorNode) -> None:
        """Check a node's share coordinator and share-partitions against the log and the responses."""
        shares = node.shares
        if shares is None:
            return
        shares.states.check()
        states = shares.states.partition(STATES_PARTITION)
        if states is not None and node.leads(STATES_PARTITION):
            check_states_are_the_log(states.hard, self._shared.state_log.memory.read(STATES_PARTITION))
        locks_max = self._shared.settings.partition_max_record_locks + self._batch_max
        for led in shares.requests.partitions.all():
            if led.records is not None and self._current(node, led.key) is led:
                check_share_partition(led.records, self._ledger(led.key), locks_max)

    def conclude(self) -> None:
        self._shared.follow()
        for key, end_offset in self._shared.worked_off.items():
            unfinished, ledger = self._shared.unfinished(key, end_offset), self._ledger(key)
            require(unfinished is None, f"{unfinished} of {key} is lost")
            for offset in range(end_offset if self._shared.topics.get_by_id(key.topic_id) else 0):
                require(offset in ledger.delivered, f"{offset} of {key} was never delivered")


def _taken(
    request: ShareFetch | ShareAcknowledge, response: ShareFetchResponse | ShareAcknowledgeResponse
) -> Iterator[tuple[SharePartitionKey, dict[int, AcknowledgeType]]]:
    results: dict[tuple[object, int], ErrorCode] = {}
    for topic in response.responses:
        for result in topic.partitions:
            code = getattr(result, "acknowledge_error_code", result.error_code)
            results[topic.topic_id, result.partition_index] = code
    for sent in request.topics:
        for index, batches in sent.partitions:
            if batches and results.get((sent.topic_id, index)) is ErrorCode.NONE:
                kinds = {
                    first + place: AcknowledgeType(types[0] if len(types) == 1 else types[place])
                    for first, last, types in batches
                    for place in range(last - first + 1)
                }
                yield SharePartitionKey(request.group_id or "", sent.topic_id, index), kinds
