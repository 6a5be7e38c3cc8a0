"""Laws that hold throughout every run, and the state of rest after the last fault.

Cheap laws are checked with each event. The others cost in proportion to the state: ``interval_ms`` is the virtual time
between two checks; 0: after every event of a node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import is_
from uuid import UUID

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.groups.base.state import FIRST_EPOCH
from groupcoord.core.groups.group_types import as_consumer_group, as_modern_group
from groupcoord.core.log.records import ZERO_UUID, GroupTombstone, OffsetTombstone
from groupcoord.errors import ErrorCode
from groupcoord.events import Cause, Event, GroupLoaded, GroupRemoved, MemberAdded, MemberRemoved, MemberReplaced
from groupcoord.laws import (
    OwnerLaws,
    check_every_step,
    check_expiry,
    check_rebuilt,
    check_replay,
    check_writes_in_flight,
    compacted,
    error_codes,
    require,
)
from groupcoord.laws.modern_groups import (
    check_append,
    check_consumer_group_is_served,
    check_epochs_grow,
    check_member_sees_what_is_durable,
    check_restart_writes_the_same,
    consumer_group_of,
    stranger,
)
from groupcoord.log_store import LogRecord
from groupcoord.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribeGroups,
    DescribeGroupsResponse,
    FetchedGroup,
    FindCoordinator,
    Heartbeat,
    HeartbeatResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    Request,
    Response,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.sim.actors.environment import Claim, GroupProtocol, PartitionOfGroup
from groupcoord.sim.actors.observations import Transactions
from groupcoord.sim.cluster.nodes import CoordinatorNode, SimulatedCluster
from groupcoord.sim.kernel import mixed
from groupcoord.sim.laws.log_laws import (
    LogLaws,
    ShareLaws,
    assignment_in,
    check_deleted,
    check_described,
    check_described_consumer_group,
    check_heartbeat_response,
    check_listed,
)
from groupcoord.wire.share_messages import ShareAcknowledge, ShareFetch

OF_NO_OWNER = (FindCoordinator, ListGroups, ShareFetch, ShareAcknowledge)
"""Requests that nodes answer without owning the log."""

REBUILD_INTERVAL_MS = 30_000
"""Interval at which durable state is compared with a snapshot and a compacted log."""


class RunLaws:
    """Laws of a run."""

    def __init__(self, cluster: SimulatedCluster, interval_ms: int, transactions: Transactions) -> None:
        self.log = LogLaws(cluster)
        cluster.log.on_append = self._check_append
        self._transactions = transactions
        self._leading = leading = cluster.leading
        lease_ms = leading.lease_ms
        self._owners = [] if lease_ms is None else [OwnerLaws(lease_ms) for _ in range(leading.place_count)]
        if self._owners:
            cluster.log.on_look = lambda place, epoch, began_ms: self._owners[place].looked(epoch, began_ms)
        self.shares: ShareLaws | None = None
        self.looks = 0
        self._cluster = cluster
        self._interval_ms = interval_ms
        self._next_look_ms = 0
        self._next_rebuild_ms = 0
        self._has_new_claims = False
        self._seen: dict[int, list[object]] = {}
        self._claims: dict[str, dict[PartitionOfGroup, dict[str, Claim]]] = {}
        self._gone: dict[int, dict[str, set[str]]] = {node.node_id: {} for node in cluster.nodes}
        self._remembered: dict[int, set[str]] = {node.node_id: set() for node in cluster.nodes}
        self._taken_back: set[str] = set()
        self._fenced: list[tuple[CoordinatorNode, str, str]] = []

    # ------------------------------------------------------------ what members see

    def assigned(self, claim: Claim, key: PartitionOfGroup) -> None:
        """Check that an assigned partition has no other owner: see :meth:`_check_claims`."""
        claims = self._claims.setdefault(key[0], {}).setdefault(key, {})
        before = claims.get(claim.consumer)
        if before is not None and before.is_stale and claim.protocol is GroupProtocol.CLASSIC:
            claim = claim._replace(is_stale=before.member_id == claim.member_id)  # stale until the partition is revoked
        claims[claim.consumer] = claim
        self._has_new_claims = True
        if len(claims) > 1:
            for other in claims.values():
                if other.consumer != claim.consumer:
                    self._check_claims(other, claim, key)

    def _mark_stale(self, group_id: str, member_id: str) -> None:
        """Mark the partitions of a member as stale: it has joined again, and they may be assigned to others."""
        for claims in self._claims.get(group_id, {}).values():
            for name, claim in claims.items():
                if claim.member_id == member_id:
                    claims[name] = claim._replace(is_stale=True)

    def _check_claims(self, before: Claim, now: Claim, key: PartitionOfGroup) -> None:
        """Check that of two owners of a partition one is out of date.

        With client-side assignment they have different generations. With server-side assignment the log has
        at most one of them as a present member.
        """
        group_id = key[0]
        if before.protocol is now.protocol is GroupProtocol.CLASSIC:
            require(
                before.generation_id != now.generation_id,
                f"{before.consumer} and {now.consumer} both own {key} in generation {now.generation_id}",
            )
        if before.is_stale or now.is_stale or self._may_be_of_another_topic(before, now, key[1]):
            return
        hard = self.log.follow(self._cluster.partition_of(group_id))
        if self._is_out_of_date(group_id, before) or self._is_out_of_date(group_id, now):
            return
        record = assignment_in(hard, group_id, before.member_id)
        require(
            record is None or record.member_epoch < 0 or assignment_in(hard, group_id, now.member_id) is None,
            f"{now.consumer} is given {key}, which {before.consumer} has as a member of the group: {record!r}",
        )

    def _is_out_of_date(self, group_id: str, claim: Claim) -> bool:
        """Return whether a claim is of an earlier generation of a converted classic group.

        The last generation's assignments are converted, even if this member never received its own.
        """
        is_classic = claim.protocol is GroupProtocol.CLASSIC
        return is_classic and claim.generation_id < self.log.classic_generations.get(group_id, 0)

    def _may_be_of_another_topic(self, before: Claim, now: Claim, topic: str) -> bool:
        """Return whether the partitions may belong to different topics of one name.

        Assignments of the classic protocol have names only.
        """
        is_by_id = before.protocol is now.protocol is GroupProtocol.CONSUMER
        return before.topic_id != now.topic_id if is_by_id else self._cluster.topics.was_deleted(topic)

    def given_up(self, consumer: str, key: PartitionOfGroup) -> None:
        self._claims.get(key[0], {}).get(key, {}).pop(consumer, None)

    def joined(self, group_id: str, generation_id: int) -> None:
        hard = self.log.follow(self._cluster.partition_of(group_id))
        # Until a regular expression is matched, no record holds the epoch of a consumer group.
        first = FIRST_EPOCH if hard.has_consumer_group(group_id) else 0
        newest = max(first, self.log.newest_generations.get(group_id, 0))
        require(
            newest >= generation_id,
            f"a member of {group_id!r} has an assignment of generation {generation_id}, the log knows {newest}",
        )

    # ------------------------------------------------------------ what nodes do

    def on_event(self, node: CoordinatorNode, event: Event) -> None:
        """Check that only the log's owner reports events, and note removed and replaced members."""
        self._check_owner(node, event, [event.group_id])
        gone = self._gone[node.node_id]
        if isinstance(event, GroupRemoved | GroupLoaded):
            # A node that loses the log before the deletion is durable reports only the loss.
            gone.pop(event.group_id, None)
        if isinstance(event, GroupRemoved):
            self._remembered[node.node_id].discard(event.group_id)
            if event.cause is not Cause.UNLOAD:
                # The next group of this name starts with new generations.
                for claims in self._claims.get(event.group_id, {}).values():
                    for name in [name for name, c in claims.items() if c.protocol is GroupProtocol.CLASSIC]:
                        del claims[name]
        elif isinstance(event, MemberAdded):
            # Members of consumer groups keep their ids when they rejoin.
            gone.get(event.group_id, set()).discard(event.member_id)
            # A classic member may have been removed in between without a notification.
            self._mark_stale(event.group_id, event.member_id)
        elif isinstance(event, MemberRemoved):
            gone.setdefault(event.group_id, set()).add(event.member_id)
        elif isinstance(event, MemberReplaced):
            # A replacement that the log refuses, or that takes too long, is undone: the new id is removed.
            ids = gone.setdefault(event.group_id, set())
            if event.member_id in ids:
                self._taken_back.add(event.old_member_id)
            ids.add(event.old_member_id)
            ids.discard(event.member_id)
            # The replacement of a fenced member is reported. A conversion may follow at once and load the group again.
            fenced = (node, event.group_id, event.old_member_id)
            self._fenced = [entry for entry in self._fenced if entry != fenced]

    def crashed(self, node: CoordinatorNode) -> None:
        self._gone[node.node_id].clear()
        self._remembered[node.node_id].clear()

    def on_answer(self, node: CoordinatorNode, request: Request, response: Response, *, is_clean: bool) -> None:
        """Check a response before it is sent; ``is_clean``: it holds no error."""
        if not isinstance(request, OF_NO_OWNER):
            self._check_owner(node, response, _groups_of(request))
        if not is_clean and ErrorCode.FENCED_INSTANCE_ID in error_codes(response):
            self._note_fenced(node, request)
        if self.shares is not None:
            self.shares.on_answer(node, request, response, self._cluster.scheduler.time_ms)
        match request, response:
            case Heartbeat(), HeartbeatResponse():
                self._check_heartbeat(node, request.group_id, request.member_id, response.error_code)
            case ConsumerGroupHeartbeat(), ConsumerGroupHeartbeatResponse():
                if request.member_epoch > 0:
                    self._check_heartbeat(node, request.group_id, request.member_id, response.error_code)
                elif is_clean and request.member_epoch == 0:
                    # The request may be late, from an abandoned connection, after its retry and later requests.
                    self._mark_stale(request.group_id, request.member_id)
                partition = self._cluster.partition_of(request.group_id)
                if node.is_up_to_date(partition):
                    records = self.log.reported_assignments(partition, request.group_id, response.member_id or "")
                    check_heartbeat_response(records, request, response)
            case OffsetCommit() | TxnOffsetCommit(), OffsetCommitResponse() | TxnOffsetCommitResponse():
                self._check_commit(node, request, response, is_clean)
            case OffsetFetch(), OffsetFetchResponse():
                for group in response.groups:
                    self._check_fetch(node, group, request.require_stable)
            case ListGroups(), ListGroupsResponse():
                check_listed(response, lambda group_id: self._is_known(node, group_id))
            case DescribeGroups(), DescribeGroupsResponse():
                for described in response.groups:
                    check_described(described, self._gone[node.node_id].get(described.group_id, set()))
            case ConsumerGroupDescribe(), ConsumerGroupDescribeResponse():
                for found in response.groups:
                    check_described_consumer_group(found)
            case DeleteGroups(), DeleteGroupsResponse():
                check_deleted(response, self.log.has_just_removed)

    def _check_owner(self, node: CoordinatorNode, sent: Response | Event, group_ids: Sequence[str]) -> None:
        """Check that the sender owns the log, or the log partition concerned, if the log has owners."""
        if self._owners:
            place = self._leading.place({self._cluster.partition_of(group_id) for group_id in group_ids})
            if place is not None:
                epoch = node.log.epoch_of(place)
                self._owners[place].told(epoch, sent, self._cluster.scheduler.time_ms)

    def _check_heartbeat(self, node: CoordinatorNode, group_id: str, member_id: str, error_code: ErrorCode) -> None:
        require(
            member_id not in self._gone[node.node_id].get(group_id, ()) or error_code is not ErrorCode.NONE,
            f"{member_id} is out of {group_id!r}, and yet its heartbeat is taken",
        )

    def _note_fenced(self, node: CoordinatorNode, request: Request) -> None:
        """Note a member that is fenced although the log has it: the event of its replacement follows."""
        group_id, member_id = getattr(request, "group_id", None) or "", getattr(request, "member_id", "")
        partition = self._cluster.partition_of(group_id)
        if node.is_up_to_date(partition) and self.log.has_member(partition, group_id, member_id):
            self._fenced.append((node, group_id, member_id))

    def _check_fenced(self) -> None:
        """Check that each fenced member has a replacement on the same node.

        Ids that the log does not have yet are exempt (:func:`~groupcoord.laws.membership.check_fenced`). A replacement
        in flight is reported once it is written.
        """
        fenced, self._fenced = self._fenced, []
        for node, group_id, member_id in fenced:
            partition = self._cluster.partition_of(group_id)
            if member_id in self._gone[node.node_id].get(group_id, ()) or not node.is_up_to_date(partition):
                continue
            assert node.coordinator is not None
            served = node.coordinator.partition(partition)
            is_open = served is not None and bool(served.writer.in_flight)
            require(is_open, f"{member_id} is fenced, but no member has replaced it in {group_id!r}")
            self._fenced.append((node, group_id, member_id))

    def _is_known(self, node: CoordinatorNode, group_id: str) -> bool | None:
        """Return whether the log has a group; None if the node is behind, or may have the group in memory only.

        The latter follows a first commit that failed for every partition (as in Kafka).
        """
        partition = self._cluster.partition_of(group_id)
        is_in_log = group_id in self.log.follow(partition).groups
        is_certain = is_in_log or group_id not in self._remembered[node.node_id]
        return is_in_log if is_certain and node.is_up_to_date(partition) else None

    def _check_commit(
        self,
        node: CoordinatorNode,
        request: OffsetCommit | TxnOffsetCommit,
        response: OffsetCommitResponse | TxnOffsetCommitResponse,
        is_clean: bool,
    ) -> None:
        """Check that an acknowledged commit is in the log. One refused for its metadata leaves a group in memory."""
        accepted = {
            (topic.name or "", sent.partition_index): sent.committed_offset
            for topic in request.topics
            for sent in topic.partitions
        }
        if not is_clean:
            for topic in response.topics:
                for result in topic.partitions:
                    if result.error_code is not ErrorCode.NONE:
                        del accepted[topic.name or "", result.partition_index]
        group_id = request.group_id or ""
        if not accepted and _is_refused_for_metadata(response):
            self._remembered[node.node_id].add(group_id)
        if accepted:
            missing = self.log.missing(self._cluster.partition_of(group_id), group_id, accepted)
            require(not missing, f"the commit of {missing} for {group_id!r} is acknowledged, but not in the log")

    def _check_fetch(self, node: CoordinatorNode, group: FetchedGroup, require_stable: bool) -> None:
        """Check that a node that is up to date returns the committed offsets in the log."""
        group_id = group.group_id
        partition = self._cluster.partition_of(group_id)
        if group.error_code is not ErrorCode.NONE or not node.is_up_to_date(partition):
            return
        assert node.coordinator is not None
        served = node.coordinator.partition(partition)
        assert served is not None
        if group_id not in served.groups:
            # The node has no such group, and returns no offsets.
            require(all(p.committed_offset == -1 for t in group.topics for p in t.partitions), f"{group!r} is no more")
            return
        self.log.follow(partition)
        ledger = self.log.ledgers[partition]
        for topic in group.topics:
            for found in topic.partitions:
                key = (group_id, topic.name or "", found.partition_index)
                is_unstable = found.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                require(is_unstable == (require_stable and ledger.is_open(key)), f"{key} is answered as {found!r}")
                if not is_unstable:
                    _, record = ledger.committed.get(key, (-1, None))
                    in_log = (-1, "") if record is None else (record.offset, record.metadata)
                    answered = (found.committed_offset, found.metadata)
                    require(answered == in_log, f"{key} is answered as {answered}, the log has {in_log}")
                    self._transactions.check_read(group_id, found.metadata)

    def _check_append(self, entries: Sequence[LogRecord]) -> None:
        """Check records before they are written, and tombstones against the groups of each node."""
        records = [entry.record for entry in entries]
        check_append(records)
        if any(isinstance(record, OffsetTombstone | GroupTombstone) for record in records):
            for node in self._cluster.nodes:
                if node.coordinator is not None:
                    check_expiry(node.coordinator, records)

    # ------------------------------------------------------------ the costly ones

    def after_event(self) -> None:
        self._check_fenced()
        if self._cluster.active:
            now_ms = self._cluster.scheduler.time_ms
            if now_ms >= self._next_look_ms:
                self._next_look_ms = now_ms + self._interval_ms
                self.look()

    def look(self) -> None:
        self.looks += 1
        now_ms = self._cluster.scheduler.time_ms
        rebuilds = now_ms >= self._next_rebuild_ms
        if rebuilds:
            self._next_rebuild_ms = now_ms + REBUILD_INTERVAL_MS
        active, self._cluster.active = self._cluster.active, {}
        for node in active:
            self._look_at(node, rebuilds)

    def _check_consumers(self, coordinator: GroupCoordinator, group_id: str) -> None:
        if consumer_group_of(coordinator, group_id) is None:
            return
        owned: dict[str, set[tuple[UUID, int]]] = {}
        epochs: dict[str, int] = {}
        for (_, topic, index), claims in self._claims.get(group_id, {}).items():
            is_by_name = self._cluster.topics.was_deleted(topic)
            for claim in claims.values():
                if claim.is_stale or (is_by_name and claim.protocol is GroupProtocol.CLASSIC):
                    continue
                if self._is_out_of_date(group_id, claim):
                    continue
                owned.setdefault(claim.member_id, set()).add((claim.topic_id or ZERO_UUID, index))
                epochs[claim.member_id] = max(epochs.get(claim.member_id, 0), claim.generation_id)
        for member_id, partitions in owned.items():
            check_member_sees_what_is_durable(coordinator, group_id, member_id, epochs[member_id], partitions)

    def begin_calm(self, members: Mapping[str, Collection[str]]) -> None:
        """Check that consumer groups are at rest with these live members, and begin the state of rest."""
        for group_id, member_ids in members.items():
            coordinator = self._cluster.serving(group_id)
            if coordinator is None or not coordinator.may_answer():
                continue  # a lease shorter than the replicated log's latency ends from time to time
            if consumer_group_of(coordinator, group_id) is not None:
                check_consumer_group_is_served(coordinator, group_id, member_ids)
        for partition in range(self._cluster.partition_count):
            self.log.follow(partition)
        self.log.is_calm = True

    def conclude(self) -> None:
        for partition in range(self._cluster.partition_count):
            self.log.follow(partition)
            check_epochs_grow(self._cluster.log.memory, partition)
        self._cluster.active = dict.fromkeys(self._cluster.nodes)
        self._next_rebuild_ms = 0
        self.look()
        if self.shares is not None:
            self.shares.conclude()

    def _look_at(self, node: CoordinatorNode, rebuilds: bool) -> None:
        coordinator = node.coordinator
        if coordinator is None:
            return
        touched, node.touched = node.touched, set()
        if rebuilds:
            touched.update(range(self._cluster.partition_count))
        if rebuilds and self.shares is not None:
            self.shares.look_at(node)
        coordinator.check(touched)
        check_every_step(coordinator, node.outstanding, self._taken_back)
        for index in touched:
            served = coordinator.partition(index)
            if served is None or not node.is_up_to_date(index):
                continue
            was_compacted = self._cluster.log.is_loaded_compacted(index)
            check_replay(served, self.log.follow(index), was_compacted=was_compacted)
            if rebuilds:
                check_rebuilt(served, served.snapshot(), "its snapshot")
                place = mixed(index, self._cluster.scheduler.time_ms) / 2**32
                left = compacted(list(self._cluster.log.memory.read(index)), place)
                check_rebuilt(served, ((entry.offset, entry.record) for entry in left), "its compacted log")
        self._look_at_modern_groups(node, coordinator, rebuilds)

    def _look_at_modern_groups(self, node: CoordinatorNode, coordinator: GroupCoordinator, rebuilds: bool) -> None:
        """Check the modern groups of a node if one has changed, if there are new claims, or if ``rebuilds``."""
        groups = [
            group
            for index in range(self._cluster.partition_count)
            if (served := coordinator.partition(index)) is not None
            for group in map(as_modern_group, served.groups.values())
            if group is not None
        ]
        seen: list[object] = [part for group in groups for part in (group.state, group.writing)]
        before, self._seen[node.node_id] = self._seen.get(node.node_id, []), seen
        is_as_before = len(seen) == len(before) and all(map(is_, seen, before)) and not self._has_new_claims
        if is_as_before and not rebuilds:
            return
        self._has_new_claims = False
        check_writes_in_flight(coordinator)
        for group in filter(None, map(as_consumer_group, groups)):
            if node.is_up_to_date(self._cluster.partition_of(group.group_id)):
                self._check_consumers(coordinator, group.group_id)
                if rebuilds:
                    newcomer = stranger(group.group_id, group.state.subscribed_topics())
                    check_restart_writes_the_same(coordinator, [newcomer])


def _groups_of(request: Request) -> list[str]:
    if isinstance(request, OffsetFetch):
        return [group.group_id for group in request.groups if group.group_id is not None]
    group_id: str | None = getattr(request, "group_id", None)
    return [] if group_id is None else [group_id]


def _is_refused_for_metadata(response: OffsetCommitResponse | TxnOffsetCommitResponse) -> bool:
    results = (result for topic in response.topics for result in topic.partitions)
    return any(result.error_code is ErrorCode.OFFSET_METADATA_TOO_LARGE for result in results)
