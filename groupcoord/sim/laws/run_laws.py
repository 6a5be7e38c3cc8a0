"""The laws that hold at every moment of every run, and the state of rest that follows when nothing goes wrong any more.

What a coordinator can prove about itself it does (:meth:`GroupCoordinator.check`); here is what only the world around
it can see. Cheap laws are looked at with each event. The others cost as much as the state is large: ``interval_ms``
says how much virtual time passes between two looks; 0: after every event of a node.
"""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.events import Cause, Event, GroupRemoved, MemberRemoved, MemberReplaced
from groupcoord.laws import check_rebuilt, check_replay, check_size, check_tokens, compacted, require
from groupcoord.messages import (
    DeleteGroups,
    DeleteGroupsResponse,
    DescribeGroups,
    DescribeGroupsResponse,
    FetchedGroup,
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
from groupcoord.sim.actors.stage import PartitionOfGroup
from groupcoord.sim.actors.transactions import Transactions
from groupcoord.sim.cluster.nodes import CoordinatorNode
from groupcoord.sim.cluster.simulated_cluster import SimulatedCluster
from groupcoord.sim.kernel.randomness import mixed
from groupcoord.sim.laws.administration_laws import check_deleted, check_described, check_listed
from groupcoord.sim.laws.log_laws import LogLaws

REBUILD_INTERVAL_MS = 30_000
"""So rarely hard state is compared with what a snapshot and a compacted log make."""


class RunLaws:
    """Judges a run (an :class:`~groupcoord.sim.actors.stage.OwnershipObserver`).

    Args:
        cluster: what is judged.
        interval_ms: how much virtual time passes between two looks at the costly laws; 0: after every event of a node.
        transactions: what became of them.
    """

    def __init__(self, cluster: SimulatedCluster, interval_ms: int, transactions: Transactions) -> None:
        self.log = LogLaws(cluster)
        self._transactions = transactions
        self.looks = 0
        self._cluster = cluster
        self._environment = cluster.environment
        self._interval_ms = interval_ms
        self._next_look_ms = 0
        self._next_rebuild_ms = 0
        self._owners: dict[PartitionOfGroup, dict[str, int]] = {}
        self._gone: dict[int, dict[str, set[str]]] = {node.node_id: {} for node in cluster.nodes}

    # ------------------------------------------------------------ what members see

    def assigned(self, consumer: str, key: PartitionOfGroup, generation_id: int) -> None:
        """A consumer was given a partition: within its generation nobody else has it."""
        owners = self._owners.setdefault(key, {})
        for other, other_generation_id in owners.items():
            require(
                other == consumer or other_generation_id != generation_id,
                f"{consumer} and {other} both own {key} in generation {generation_id}",
            )
        owners[consumer] = generation_id

    def given_up(self, consumer: str, key: PartitionOfGroup) -> None:
        """A consumer does not believe any more that it owns a partition."""
        self._owners.get(key, {}).pop(consumer, None)

    def joined(self, group_id: str, generation_id: int) -> None:
        """A member was told its assignment: the log knows that generation."""
        partition = self._cluster.partition_of(group_id)
        record = self.log.follow(partition).classic_record(group_id)
        require(
            record is not None and record.generation_id >= generation_id,
            f"a member of {group_id!r} has an assignment of generation {generation_id}, the log has {record!r}",
        )

    # ------------------------------------------------------------ what nodes do

    def on_event(self, node: CoordinatorNode, event: Event) -> None:
        """Remember who is gone."""
        gone = self._gone[node.node_id]
        if isinstance(event, GroupRemoved):
            gone.pop(event.group_id, None)
            if event.cause is not Cause.UNLOAD:
                # The next group of this name counts its generations anew.
                for key, owners in self._owners.items():
                    if key[0] == event.group_id:
                        owners.clear()
        elif isinstance(event, MemberRemoved):
            gone.setdefault(event.group_id, set()).add(event.member_id)
        elif isinstance(event, MemberReplaced):
            # A replacement that the log refuses is taken back: then the other id is gone.
            ids = gone.setdefault(event.group_id, set())
            ids.add(event.old_member_id)
            ids.discard(event.member_id)

    def crashed(self, node: CoordinatorNode) -> None:
        """A node forgot everything."""
        self._gone[node.node_id].clear()

    def on_answer(self, node: CoordinatorNode, request: Request, response: Response, *, is_clean: bool) -> None:
        """Look at an answer before it travels; ``is_clean``: there is no error in it."""
        match request:
            case Heartbeat():
                assert isinstance(response, HeartbeatResponse)
                ids = self._gone[node.node_id].get(request.group_id)
                if ids is not None and request.member_id in ids:
                    require(
                        response.error_code is not ErrorCode.NONE,
                        f"{request.member_id} is out of {request.group_id!r}, and yet its heartbeat is taken",
                    )
            case OffsetCommit() | TxnOffsetCommit():
                assert isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse)
                self._check_commit(request, response, is_clean)
            case OffsetFetch():
                assert isinstance(response, OffsetFetchResponse)
                for group in response.groups:
                    self._check_fetch(node, group, request.require_stable)
            case ListGroups():
                assert isinstance(response, ListGroupsResponse)
                check_listed(response, lambda group_id: self._is_known(node, group_id))
            case DescribeGroups():
                assert isinstance(response, DescribeGroupsResponse)
                for described in response.groups:
                    check_described(described, self._gone[node.node_id].get(described.group_id, set()))
            case DeleteGroups():
                assert isinstance(response, DeleteGroupsResponse)
                check_deleted(response, self._has_just_removed)

    def _is_known(self, node: CoordinatorNode, group_id: str) -> bool | None:
        """Tell whether the log has a group; None if the node need not know."""
        partition = self._cluster.partition_of(group_id)
        return group_id in self.log.follow(partition).groups if node.is_up_to_date(partition) else None

    def _has_just_removed(self, group_id: str) -> bool:
        return self.log.has_just_removed(self._cluster.partition_of(group_id), group_id)

    def _check_commit(
        self,
        request: OffsetCommit | TxnOffsetCommit,
        response: OffsetCommitResponse | TxnOffsetCommitResponse,
        is_clean: bool,
    ) -> None:
        """An acknowledged commit is in the log."""
        accepted = {
            (topic.name or "", sent.partition_index): sent.committed_offset
            for topic in request.topics
            for sent in topic.partitions
        }
        if not is_clean:
            for topic, results in zip(request.topics, response.topics, strict=True):
                for result in results.partitions:
                    if result.error_code is not ErrorCode.NONE:
                        del accepted[topic.name or "", result.partition_index]
        if accepted:
            group_id = request.group_id or ""
            missing = self.log.missing(self._cluster.partition_of(group_id), group_id, accepted)
            require(not missing, f"the commit of {missing} for {group_id!r} is acknowledged, but not in the log")

    def _check_fetch(self, node: CoordinatorNode, group: FetchedGroup, require_stable: bool) -> None:
        """What a node that is up to date tells of committed offsets is what the log says."""
        group_id = group.group_id
        partition = self._cluster.partition_of(group_id)
        if group.error_code is not ErrorCode.NONE or not node.is_up_to_date(partition):
            return
        assert node.coordinator is not None
        served = node.coordinator.partition(partition)
        assert served is not None
        if group_id not in served.groups:
            # It is about to be deleted, and has nothing to say any more.
            require(all(p.committed_offset == -1 for t in group.topics for p in t.partitions), f"{group!r} is no more")
            return
        self.log.follow(partition)
        ledger = self.log.ledgers[partition]
        for topic in group.topics:
            for found in topic.partitions:
                key = (group_id, topic.name or "", found.partition_index)
                is_unstable = found.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                require(is_unstable == (require_stable and ledger.is_open(key)), f"{key} is told as {found!r}")
                if not is_unstable:
                    _, record = ledger.committed.get(key, (-1, None))
                    in_log = (-1, "") if record is None else (record.offset, record.metadata)
                    told = (found.committed_offset, found.metadata)
                    require(told == in_log, f"{key} is told as {told}, the log has {in_log}")
                    self._transactions.check_read(group_id, found.metadata)

    # ------------------------------------------------------------ the costly ones

    def after_event(self) -> None:
        """Look at every node that has done something, if it is time."""
        if self._environment.active:
            now_ms = self._cluster.scheduler.time_ms
            if now_ms >= self._next_look_ms:
                self._next_look_ms = now_ms + self._interval_ms
                self.look()

    def look(self) -> None:
        """Look at every node that has done something since the last time: the others are as they were."""
        self.looks += 1
        now_ms = self._cluster.scheduler.time_ms
        rebuilds = now_ms >= self._next_rebuild_ms
        if rebuilds:
            self._next_rebuild_ms = now_ms + REBUILD_INTERVAL_MS
        active, self._environment.active = self._environment.active, {}
        for node in active:
            self._look_at(node, rebuilds)

    def conclude(self) -> None:
        """Look at everything in the end."""
        for partition in range(self._cluster.partition_count):
            self.log.follow(partition)
        self._environment.active = dict.fromkeys(self._cluster.nodes)
        self._next_rebuild_ms = 0
        self.look()

    def _look_at(self, node: CoordinatorNode, rebuilds: bool) -> None:
        coordinator = node.coordinator
        if coordinator is None:
            return
        coordinator.check()
        check_tokens(coordinator, node.outstanding)
        check_size(coordinator)
        for index in range(self._cluster.partition_count):
            served = coordinator.partition(index)
            if served is None or not node.is_up_to_date(index):
                continue
            check_replay(served, self.log.follow(index))
            if rebuilds:
                check_rebuilt(served, served.snapshot(), "its snapshot")
                place = mixed(index, self._cluster.scheduler.time_ms) / 2**32
                left = compacted(list(self._cluster.log.memory.read(index)), place)
                check_rebuilt(served, ((entry.offset, entry.record) for entry in left), "its compacted log")
