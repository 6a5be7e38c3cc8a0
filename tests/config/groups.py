"""Probes of a coordinator: what members, commits and timers show of its settings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from groupcoord import Config, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.assignors import GroupAssignment, GroupSpec, MemberTasks, StreamsGroupSpec
from groupcoord.core.host_queries import AskShareCoordinator, LoneShareHost
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    GroupToFetch,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
    TopicToCommit,
    TopicToFetch,
)
from groupcoord.testing.topics import Topics
from tests.core.streams.members import COUNTS, LINES

RANGE = (JoinProtocol("range", bytes.fromhex("0000 00000001 0005 6c696e6573 ffffffff")),)


class NoTasks:
    name = "none"

    def assign(self, group: StreamsGroupSpec) -> dict[str, MemberTasks]:
        return {member_id: MemberTasks() for member_id in group.members}


class FirstTakesAll:
    """An assignor of share groups and consumer groups that assigns all partitions to the first member."""

    name = "first"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        first = min(group.members)
        topic_ids = group.members[first].topic_ids
        return {first: {topic_id: tuple(range(group.partition_count(topic_id))) for topic_id in topic_ids}}


class LateStore(MemoryLogStore):
    def append(self, *arguments: Any) -> None:
        super().append(*arguments)


class CountingTopics(Topics):
    """Topics that count how often an expression is matched."""

    matches = 0

    def matching_topics(self, regex: str, principal: Any) -> list[str]:
        self.matches += 1
        return super().matching_topics(regex, principal)


class DumbShareHost(LoneShareHost):
    """Share coordinator that never answers, and counts its requests."""

    asked = 0

    def ask(self, question: AskShareCoordinator) -> None:
        self.asked += 1


class Node:
    """Coordinator that is called with one request after the other."""

    def __init__(self, *, log_store: MemoryLogStore | None = None, given: Any = (), **settings: Any) -> None:
        self.clock = ManualClock(1_000_000)
        self.topics = CountingTopics(lines=4, counts=4)
        ids = count(1)
        self.coordinator = GroupCoordinator(
            config=Config(**settings),
            clock=self.clock,
            topics=self.topics,
            regexes=self.topics,
            log_store=log_store,
            new_member_id=lambda prefix: f"{prefix}-{next(ids)}",
            **dict(given),
        )
        self.coordinator.load_all()

    def ask(self, request: Any) -> Any:
        self.coordinator.submit(request)
        replies = self.coordinator.take_replies()
        return replies[0].response if replies else None

    def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.coordinator.tick()

    def deadline_ms(self) -> int:
        """Return when the next timer expires, in milliseconds from now."""
        deadline_ms = self.coordinator.next_deadline_ms()
        assert deadline_ms is not None
        return deadline_ms - self.clock.now_ms()


def heartbeat_of(kind: str, member_id: str = "a", epoch: int = 0, **fields: Any) -> Any:
    if kind == "streams":
        none: dict[str, Any] = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ())
        new = {"topology": LINES, "process_id": member_id, "rebalance_timeout_ms": 60_000, **none} if epoch == 0 else {}
        return StreamsGroupHeartbeat("group", member_id, epoch, **{**new, **fields})
    topics = {"subscribed_topic_names": ("lines",)} if epoch == 0 else {}
    if kind == "share":
        return ShareGroupHeartbeat("group", member_id, epoch, **topics)
    owned = {"topic_partitions": (), "rebalance_timeout_ms": 60_000} if epoch == 0 else {}
    return ConsumerGroupHeartbeat("group", member_id, epoch, **{**topics, **owned, **fields})


def group_of(kind: str, settings: dict[str, Any]) -> tuple[Node, Any]:
    """Return a coordinator with a group of one member, and what that was answered; it is assigned at once."""
    node = Node(**{"group_streams_initial_rebalance_delay_ms": 0, **settings})
    return node, node.ask(heartbeat_of(kind))


def heartbeat(kind: str) -> Callable[..., str]:
    return lambda **settings: group_of(kind, settings)[1].error_code.name


def session_ms(kind: str) -> Callable[..., int]:
    return lambda **settings: group_of(kind, settings)[0].deadline_ms()


def heartbeat_interval_ms(kind: str) -> Callable[..., int]:
    return lambda **settings: group_of(kind, settings)[1].heartbeat_interval_ms


def second_member(kind: str) -> Callable[..., str]:
    return lambda **settings: group_of(kind, settings)[0].ask(heartbeat_of(kind, "b")).error_code.name


def is_assigned_at_once(kind: str) -> Callable[..., bool]:
    """Return whether a new target is computed when a second member joins."""

    def probe(**settings: Any) -> bool:
        node, first = group_of(kind, settings)
        return bool(node.ask(heartbeat_of(kind, "b")).member_epoch > first.member_epoch)

    return probe


# ---------------------------------------------------------------- classic groups, offsets


def _join(member_id: str = "") -> JoinGroup:
    return JoinGroup("group", member_id, protocols=RANGE, session_timeout_ms=10_000, requires_known_member_id=True)


def join(**settings: Any) -> str:
    answer = Node(**settings).ask(_join())
    return "NONE" if answer.error_code.name == "MEMBER_ID_REQUIRED" else str(answer.error_code.name)


def first_rebalance_ms(**settings: Any) -> int:
    node = Node(**settings)
    node.ask(_join(node.ask(_join()).member_id))
    return node.deadline_ms()


def second_join(**settings: Any) -> str:
    node = Node(**settings)
    node.ask(_join(node.ask(_join()).member_id))
    node.pass_ms(3_000)
    node.coordinator.take_replies()
    return str(node.ask(_join()).error_code.name)


def classic_member_joins(**settings: Any) -> str:
    return str(group_of("consumer", settings)[0].ask(_join()).error_code.name)


def _commit(node: Node) -> Any:
    offsets = (OffsetToCommit(0, 7, committed_metadata="text"),)
    answer = node.ask(OffsetCommit("group", topics=(TopicToCommit("lines", offsets),)))
    return None if answer is None else answer.topics[0].partitions[0].error_code.name


def commit(**settings: Any) -> Any:
    return _commit(Node(**settings))


def log_partition(**settings: Any) -> int:
    return Node(**settings).coordinator.partition_of("group")


def append_timeout_ms(**settings: Any) -> int:
    node = Node(log_store=LateStore(), **settings)
    assert _commit(node) is None
    deadline_ms = node.deadline_ms()
    node.pass_ms(deadline_ms)
    (reply,) = node.coordinator.take_replies()
    assert reply.response.topics[0].partitions[0].error_code.name == "COORDINATOR_NOT_AVAILABLE"
    return deadline_ms


def offset_after_ten_minutes(**settings: Any) -> int:
    node = Node(**settings)
    _commit(node)
    node.pass_ms(600_000)
    answer = node.ask(OffsetFetch((GroupToFetch("group", (TopicToFetch("lines", (0,)),)),)))
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def first_sweep_ms(**settings: Any) -> int:
    node = Node(**settings)
    _commit(node)
    return node.deadline_ms()


# ---------------------------------------------------------------- consumer groups, share groups


def asks_for_uniform(**settings: Any) -> str:
    return str(Node(**settings).ask(heartbeat_of("consumer", server_assignor="uniform")).error_code.name)


def matches_in_100_s(**settings: Any) -> int:
    node = Node(**settings)
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "l.*"}
    epoch = node.ask(heartbeat_of("consumer", **regex)).member_epoch
    for _ in range(10):
        node.pass_ms(10_000)
        epoch = node.ask(heartbeat_of("consumer", "a", epoch)).member_epoch
    return node.topics.matches


def share_assignment(**settings: Any) -> list[int]:
    node, first = group_of("share", {"group_share_assignment_interval_ms": 0, **settings})
    node.ask(heartbeat_of("share", "b"))
    assignment = node.ask(heartbeat_of("share", "a", first.member_epoch)).assignment or first.assignment
    return [index for topic in assignment for index in topic.partitions]


def initializations_in_20_s(**settings: Any) -> int:
    host = DumbShareHost(Config(**settings))
    node = Node(given={"share": host}, **settings)
    epoch = node.ask(heartbeat_of("share")).member_epoch
    for _ in range(4):
        node.pass_ms(5_000)
        node.ask(heartbeat_of("share", "a", epoch))
    return host.asked


# ---------------------------------------------------------------- streams groups


def standby_tasks(**settings: Any) -> int:
    """Return how many standby tasks the second member of a group with state has."""
    at_once = {"group_streams_assignment_interval_ms": 0, "group_streams_initial_rebalance_delay_ms": 0}
    node = Node(**at_once, **settings)
    node.ask(heartbeat_of("streams", topology=COUNTS))
    node.ask(heartbeat_of("streams", "b", topology=COUNTS))
    answer = node.ask(heartbeat_of("streams", "a", 2))
    return sum(len(task.partitions) for task in answer.standby_tasks)


def first_assignment_ms(**settings: Any) -> int:
    node = Node(**settings)
    node.ask(heartbeat_of("streams"))
    return node.deadline_ms()


def active_tasks(**settings: Any) -> Any:
    return dict(group_of("streams", settings)[1].active_tasks or ())


def active_tasks_by(own: dict[str, str]) -> Any:
    from groupcoord.broker.configs.definitions import group_settings
    from groupcoord.config.group_settings import StreamsGroupSettings

    config = Config(group_streams_initial_rebalance_delay_ms=0)
    held = group_settings(StreamsGroupSettings, own, config)
    given = {"streams_group_settings": lambda group_id: held, "task_assignors": (NoTasks(),)}
    assignors = ("sticky", "none")
    node = Node(given=given, group_streams_assignors=assignors, group_streams_initial_rebalance_delay_ms=0)
    return dict(node.ask(heartbeat_of("streams")).active_tasks or ())


def misses_tags(**settings: Any) -> bool:
    return "MISSING_CLIENT_TAGS" in {each.code.name for each in group_of("streams", settings)[1].status or ()}


def task_offset_interval_ms(**settings: Any) -> Any:
    return group_of("streams", settings)[1].task_offset_interval_ms


def acceptable_recovery_lag(**settings: Any) -> Any:
    return group_of("streams", settings)[1].acceptable_recovery_lag


def tasks_of_who_comes_back(**settings: Any) -> Any:
    at_once = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0}
    node = Node(**at_once, **settings)
    for heartbeat in (
        heartbeat_of("streams", instance_id="i"),
        heartbeat_of("streams", "b"),
        heartbeat_of("streams", "a", 2, instance_id="i", active_tasks=(), standby_tasks=(), warmup_tasks=()),
        heartbeat_of("streams", "b", 3),
        heartbeat_of("streams", "c", instance_id="i"),
        heartbeat_of("streams", "a", -2, instance_id="i"),
    ):
        node.ask(heartbeat)
    return dict(node.ask(heartbeat_of("streams", instance_id="i")).active_tasks or ())
