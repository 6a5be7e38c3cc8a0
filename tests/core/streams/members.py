"""Requests of Kafka Streams threads, sent through a driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupcoord.core.groups.streams.records import Subtopology, TaskIds, TopicInfo
from groupcoord.messages import (
    DescribedStreamsGroup,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from groupcoord.testing.machine.consumers import Sent
from tests.core.driver import Driver

SETTINGS: dict[str, Any] = {
    "group_streams_initial_rebalance_delay_ms": 0,
    "group_streams_assignment_interval_ms": 0,
    "offsets_commit_timeout_ms": 3_600_000,
}
"""Nobody waits for others, or for the log."""

LINES = Topology(0, (Subtopology("0", ("lines",)),))
"""Reads a topic, and keeps nothing."""

COUNTS = Topology(0, (Subtopology("0", ("lines",), state_changelog_topics=(TopicInfo("counts"),)),))
"""Reads a topic, and keeps state."""


def tasks(given: Mapping[str, tuple[int, ...]]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(name, partitions) for name, partitions in given.items())


class Threads:
    """The members of one streams group, and how the group looks."""

    def __init__(self, driver: Driver, topology: Topology = LINES) -> None:
        self.driver = driver
        self.topology = topology

    @property
    def described(self) -> DescribedStreamsGroup:
        """The group as administrators see it."""
        return self.driver.coordinator.call(StreamsGroupDescribe(("group",))).groups[0]

    def join(self, member_id: str, **what: Any) -> Sent:
        fields = {
            "rebalance_timeout_ms": 60_000,
            "topology": self.topology,
            "active_tasks": (),
            "standby_tasks": (),
            "warmup_tasks": (),
            "process_id": f"process-{member_id}",
        }
        return self.driver.submit(StreamsGroupHeartbeat("group", member_id, 0, **{**fields, **what}))

    def beat(self, member_id: str, epoch: int, runs: Mapping[str, tuple[int, ...]] | None = None, **what: Any) -> Sent:
        """Send a heartbeat, optionally with running tasks."""
        owned = {} if runs is None else {"active_tasks": tasks(runs), "standby_tasks": (), "warmup_tasks": ()}
        return self.driver.submit(StreamsGroupHeartbeat("group", member_id, epoch, **owned, **what))


def answered(sent: Sent) -> StreamsGroupHeartbeatResponse:
    return sent.answer(StreamsGroupHeartbeatResponse)


def active(sent: Sent) -> dict[str, tuple[int, ...]] | None:
    """Return the active tasks that an answer gives; None if it gives none."""
    given = answered(sent).active_tasks
    return None if given is None else dict(given)
