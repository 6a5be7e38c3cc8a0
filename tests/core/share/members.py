"""Requests of members of a share group, sent through a driver, and assertions on the group."""

from __future__ import annotations

from groupcoord import GroupCoordinator
from groupcoord.core.groups.share.group import ShareGroup
from groupcoord.core.host_queries import AskShareCoordinator, LoneShareHost, ShareCoordinatorAnswered
from groupcoord.errors import ErrorCode
from groupcoord.messages import (
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribedShareGroup,
    DescribedShareGroupOffsets,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    ShareGroupToDescribe,
    ShareOffsetToAlter,
    ShareTopicToAlter,
    ShareTopicToDescribe,
    ShareTopicToForget,
)
from groupcoord.testing.machine.consumers import Sent
from tests.core.driver import Driver

HOST = "/127.0.0.1"


class SlowShareHost(LoneShareHost):
    """Share coordinator with answers that a test gives."""

    is_slow = False

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Answer at once, or later."""
        if not self.is_slow:
            return super().ask(question)
        self.asked.append(question)
        return None

    @property
    def asked(self) -> list[AskShareCoordinator]:
        return self.__dict__.setdefault("_asked", [])  # type: ignore[no-any-return]

    def answer(self, coordinator: GroupCoordinator, *, reachable: bool = True) -> None:
        """Answer the oldest question: agree, or be out of reach."""
        question = self.asked.pop(0)
        coordinator.found_out(super().ask(question) if reachable else ShareCoordinatorAnswered(question, None))


class Members:
    """The members of one share group: what they send, and how the group looks."""

    def __init__(self, driver: Driver, group_id: str = "group") -> None:
        self.driver = driver
        self.group_id = group_id

    @property
    def inside(self) -> ShareGroup | None:
        """The share group as the coordinator has it; None if it has none."""
        coordinator = self.driver.coordinator
        partition = coordinator.partition(coordinator.partition_of(self.group_id))
        group = None if partition is None else partition.groups.get(self.group_id)
        return group if isinstance(group, ShareGroup) else None

    @property
    def described(self) -> DescribedShareGroup:
        """The group as administrators see it."""
        return self.driver.coordinator.call(ShareGroupDescribe((self.group_id,))).groups[0]

    def heartbeat(self, member_id: str, epoch: int, *names: str, rack: str | None = None) -> Sent:
        """Send a heartbeat; fields without a value are unchanged."""
        return self.driver.submit(
            ShareGroupHeartbeat(self.group_id, member_id, epoch, rack, names or None, "client", HOST)
        )

    def join(self, member_id: str, *names: str) -> Sent:
        """Send the first heartbeat of a member, subscribed to these topics (``orders`` by default)."""
        return self.heartbeat(member_id, 0, *(names or ("orders",)))

    def leave(self, member_id: str) -> Sent:
        return self.heartbeat(member_id, -1)

    def alter(self, topic: str, **offsets: int) -> Sent:
        """Alter share group offsets: ``p0=5`` sets partition 0 to offset 5."""
        wanted = tuple(ShareOffsetToAlter(int(name[1:]), offset) for name, offset in offsets.items())
        return self.driver.submit(AlterShareGroupOffsets(self.group_id, (ShareTopicToAlter(topic, wanted),)))

    def forget(self, *topics: str) -> Sent:
        """Delete the share group offsets of topics."""
        return self.driver.submit(DeleteShareGroupOffsets(self.group_id, tuple(map(ShareTopicToForget, topics))))

    def ask_where(self, topic: str, *partitions: int) -> Sent:
        wanted = ShareGroupToDescribe(self.group_id, (ShareTopicToDescribe(topic, partitions),))
        return self.driver.submit(DescribeShareGroupOffsets((wanted,)))

    @property
    def offsets(self) -> DescribedShareGroupOffsets:
        """Return the group's offsets as DescribeShareGroupOffsets does."""
        sent = self.driver.submit(DescribeShareGroupOffsets((ShareGroupToDescribe(self.group_id),)))
        return sent.answer(DescribeShareGroupOffsetsResponse).groups[0]

    @property
    def starts(self) -> dict[str, list[int]]:
        """The start offsets of the partitions of each topic."""
        return {topic.topic_name: [entry.start_offset for entry in topic.partitions] for topic in self.offsets.topics}


def answered(sent: Sent) -> ShareGroupHeartbeatResponse:
    return sent.answer(ShareGroupHeartbeatResponse)


def told(sent: Sent) -> tuple[int, list[int] | None]:
    """Return the epoch and the partitions that a heartbeat is answered; None: as before."""
    response = answered(sent)
    assert response.error_code is ErrorCode.NONE
    if response.assignment is None:
        return response.member_epoch, None
    return response.member_epoch, [index for topic in response.assignment for index in topic.partitions]
