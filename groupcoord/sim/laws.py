"""The laws that hold at every moment of every run, and the state of rest that follows when nothing goes wrong any more.

What a coordinator can prove about itself it does (:meth:`GroupCoordinator.check`); here is what only the world around
it can see. Cheap laws are looked at with each event. The others cost as much as the state is large: ``interval_ms``
says how much virtual time passes between two looks; 0: after every event of a node.
"""

from __future__ import annotations

from collections import Counter

from groupcoord.coordinator import GroupState
from groupcoord.core.hard_state import HardState
from groupcoord.core.offsets import record_of
from groupcoord.core.records import GroupMetadataRecord, GroupTombstone, OffsetCommitRecord
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.events import Cause, Event, GroupRemoved, MemberRemoved, MemberReplaced
from groupcoord.log_store import LogRecord
from groupcoord.messages import (
    Heartbeat,
    HeartbeatResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    Request,
    Response,
)
from groupcoord.sim.cluster import Cluster
from groupcoord.sim.nodes import CoordinatorNode

PartitionOfGroup = tuple[str, str, int]
"""Group id, topic, partition."""


class LawBrokenError(GroupcoordError):
    """A law does not hold."""


def require(holds: bool, law: str) -> None:
    """Go on if a law holds.

    Raises:
        LawBrokenError: it does not.
    """
    if not holds:
        raise LawBrokenError(law)


class LogLaws:
    """Follows what is written to the log.

    Attributes:
        replayed: log partition → the hard state that its records make.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.replayed = [HardState() for _ in range(cluster.partition_count)]
        self._fresh = cluster.log.fresh
        self._generations: dict[str, int] = {}

    def follow(self, partition: int) -> HardState:
        """Take over what was written to a log partition since the last time; return what all of it makes."""
        hard, fresh = self.replayed[partition], self._fresh[partition]
        for entry in fresh:
            record = entry.record
            if isinstance(record, GroupMetadataRecord):
                last = self._generations.get(record.group_id, 0)
                require(record.generation_id >= last, f"the generation of {record.group_id!r} only grows in the log")
                self._generations[record.group_id] = record.generation_id
            elif isinstance(record, GroupTombstone):
                self._generations.pop(record.group_id, None)
            hard.apply(record, entry.offset)
        fresh.clear()
        return hard

    def has_just_written(self, partition: int, key: PartitionOfGroup, offset: int) -> bool:
        """Tell whether a commit is among the records that were written since the last :meth:`follow`."""
        return any(_is_commit(entry, key, offset) for entry in reversed(self._fresh[partition]))

    def told(self) -> str:
        """Return all that is durable in the end, without log offsets: what is left out of the log leaves no gap."""
        lines = []
        for hard in self.replayed:
            for group_id, record in sorted(hard.groups.items()):
                lines.append(f"{group_id} {record!r}")
            for _, topics in sorted(hard.offsets.committed.items()):
                for _, partitions in sorted(topics.items()):
                    lines += [repr(record_of(index, entry)) for index, entry in sorted(partitions.items())]
        return "\n".join(lines)


def _is_commit(entry: LogRecord, key: PartitionOfGroup, offset: int) -> bool:
    record = entry.record
    return (
        isinstance(record, OffsetCommitRecord)
        and record.offset == offset
        and (record.group_id, record.topic, record.partition) == key
    )


class Laws:
    """Judges a run.

    Args:
        cluster: what is judged.
        interval_ms: how much virtual time passes between two looks at the costly laws; 0: after every event of a node.
    """

    def __init__(self, cluster: Cluster, interval_ms: int) -> None:
        self.log = LogLaws(cluster)
        self.looks = 0
        self._cluster = cluster
        self._interval_ms = interval_ms
        self._next_look_ms = 0
        self._activity_seen = -1
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
        record = self.log.follow(partition).groups.get(group_id)
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

    def on_answer(self, node: CoordinatorNode, request: Request, response: Response) -> None:
        """Look at an answer before it travels."""
        if isinstance(request, Heartbeat):
            assert isinstance(response, HeartbeatResponse)
            ids = self._gone[node.node_id].get(request.group_id)
            if ids is not None and request.member_id in ids:
                require(
                    response.error_code is not ErrorCode.NONE,
                    f"{request.member_id} is out of {request.group_id!r}, and yet its heartbeat is taken",
                )
        elif isinstance(request, OffsetCommit):
            assert isinstance(response, OffsetCommitResponse)
            self._check_commit(request, response)
        elif isinstance(request, OffsetFetch):
            assert isinstance(response, OffsetFetchResponse)
            self._check_fetch(node, response)

    def _check_commit(self, request: OffsetCommit, response: OffsetCommitResponse) -> None:
        """An acknowledged commit is in the log."""
        group_id = request.group_id or ""
        partition = self._cluster.partition_of(group_id)
        for topic, results in zip(request.topics, response.topics, strict=True):
            for sent, result in zip(topic.partitions, results.partitions, strict=True):
                if result.error_code is ErrorCode.NONE:
                    key = (group_id, topic.name or "", sent.partition_index)
                    require(
                        self.log.has_just_written(partition, key, sent.committed_offset),
                        f"the commit of {sent.committed_offset} for {key} is acknowledged, but not in the log",
                    )

    def _check_fetch(self, node: CoordinatorNode, response: OffsetFetchResponse) -> None:
        """What a node that is up to date tells of committed offsets is what the log says."""
        for group in response.groups:
            partition = self._cluster.partition_of(group.group_id)
            if group.error_code is not ErrorCode.NONE or not node.is_up_to_date(partition):
                continue
            committed = self.log.follow(partition).offsets.of_group(group.group_id)
            for fetched in group.topics:
                for found in fetched.partitions:
                    entry = committed.get(fetched.name or "", {}).get(found.partition_index)
                    in_log = -1 if entry is None else record_of(found.partition_index, entry).offset
                    require(
                        found.committed_offset == in_log,
                        f"{group.group_id!r} is told offset {found.committed_offset} of {fetched.name}-"
                        f"{found.partition_index}, the log has {in_log}",
                    )

    # ------------------------------------------------------------ the costly ones

    def after_event(self) -> None:
        """Look at everything, if it is time and a node has done something since."""
        now_ms = self._cluster.scheduler.time_ms
        if now_ms >= self._next_look_ms and self._cluster.activity != self._activity_seen:
            self._next_look_ms = now_ms + self._interval_ms
            self._activity_seen = self._cluster.activity
            self.look()

    def look(self) -> None:
        """Look at everything now."""
        self.looks += 1
        for partition in range(self._cluster.partition_count):
            self.log.follow(partition)
        for node in self._cluster.nodes:
            coordinator = node.coordinator
            if coordinator is None:
                continue
            coordinator.check()
            require(
                Counter(coordinator.waiting_tokens()) == Counter(list(node.outstanding)),
                f"every request without an answer waits in exactly one place of {node.name}",
            )
            for index in range(self._cluster.partition_count):
                served = coordinator.partition(index)
                if served is None or not node.is_up_to_date(index):
                    continue
                require(
                    served.hard_facts() == self.log.replayed[index].facts(),
                    f"hard state of log partition {index} on {node.name} is what its log says",
                )
                max_size = self._cluster.config.group_max_size
                for group in served.groups.values():
                    is_formed = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
                    size = len(group.members)
                    require(not is_formed or size <= max_size, f"{group!r} has {size} members")
