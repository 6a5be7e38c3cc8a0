"""Member of a consumer group with the test as its coordinator."""

from __future__ import annotations

from typing import Any

from groupcoord.member import MemberState
from groupcoord.messages import ConsumerGroupHeartbeat

from ..script import FOREVER_MS, Script, partitions

MEMBER_ID = "member"


class ConsumerScript(Script):
    def __init__(self, **settings: Any) -> None:
        super().__init__(group_protocol="consumer", member_id=MEMBER_ID, **settings)

    @property
    def heartbeat(self) -> ConsumerGroupHeartbeat:
        return self.request(ConsumerGroupHeartbeat)

    def joining(self, poll_ms: int = FOREVER_MS) -> ConsumerScript:
        self.subscribed(poll_ms)
        self.find()
        assert self.member.state is MemberState.JOINING
        return self

    def in_group(self, *numbers: int, poll_ms: int = FOREVER_MS) -> ConsumerScript:
        """Be in the group at epoch 1 with these partitions, acknowledged."""
        self.joining(poll_ms)
        self.beat(1, *numbers)
        self.poll(poll_ms)
        self.member.listener_returned(self.now_ms)
        self.beat(1)
        assert self.member.state is MemberState.STABLE
        assert self.member.assignment == partitions(*numbers)
        self.forget()
        return self

    def working(self) -> ConsumerScript:
        return self.in_group(0, 1)
