"""What threads of an application of Kafka Streams send, in tests with a driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupcoord.core.streams.records import Subtopology, TaskIds, TopicInfo
from groupcoord.messages import (
    DescribedStreamsGroup,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from groupcoord.testing.fleet import Sent
from tests.core.driver import Driver

LINES = Topology(0, (Subtopology("0", ("lines",)),))
"""Reads a topic, and keeps nothing."""

WORD_COUNT = Topology(
    0,
    (
        Subtopology("0", ("lines",), repartition_sink_topics=("words",)),
        Subtopology(
            "1", state_changelog_topics=(TopicInfo("counts"),), repartition_source_topics=(TopicInfo("words"),)
        ),
    ),
)
"""Needs two internal topics."""


def tasks(given: Mapping[str, tuple[int, ...]]) -> tuple[TaskIds, ...]:
    """Return tasks as a heartbeat names them."""
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
        """Somebody joins, in a process of its own."""
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
        """A member says that it lives, and maybe which tasks it runs."""
        owned = {} if runs is None else {"active_tasks": tasks(runs), "standby_tasks": (), "warmup_tasks": ()}
        return self.driver.submit(StreamsGroupHeartbeat("group", member_id, epoch, **owned, **what))


def answered(sent: Sent) -> StreamsGroupHeartbeatResponse:
    """Return the answer of a heartbeat."""
    return sent.answer(StreamsGroupHeartbeatResponse)


def active(sent: Sent) -> dict[str, tuple[int, ...]] | None:
    """Return the active tasks that an answer gives; None if it gives none."""
    given = answered(sent).active_tasks
    return None if given is None else dict(given)
