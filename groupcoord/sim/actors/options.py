"""What a group of simulated consumers is like."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from attrs import evolve, field, frozen

from groupcoord.member import MemberConfig


class GroupProtocol(Enum):
    """The values of ``group.protocol``."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@frozen
class GroupOptions:
    """A group of consumers.

    Attributes:
        group_id: its name; its consumers are called by it and a number from 0 on.
        consumer_count: how many there are.
        topics: what all of them subscribe to; also what of those that exist from the start ``regex`` stands for.
        regex: the regular expression that they subscribe to instead; empty: they name the topics.
        is_static: each has an instance id (KIP-345).
        consumer_protocol_count: so many, the last ones, begin with ``group.protocol=consumer`` (KIP-848).
        remote_assignor: which of the coordinator's assignors these ask for; None: its default.
        member: their settings; group, instance and client id are filled in. Those that ``group.protocol=consumer`` does
            not know hold for consumers that use the classic protocol.
        processing_ms: how long their application works on what a poll has brought before it polls again, from … to …;
            0: it does nothing but poll.
        start_spread_ms: they start at moments spread over so long.
        clock_skew_ms: their clocks are off by up to this much, either way.
        clock_drift_ppm: their clocks run faster or slower by up to so many millionths.
    """

    group_id: str
    consumer_count: int
    topics: tuple[str, ...]
    regex: str = ""
    is_static: bool = False
    consumer_protocol_count: int = 0
    remote_assignor: str | None = None
    member: MemberConfig = field(factory=MemberConfig)
    processing_ms: tuple[int, int] = (0, 0)
    start_spread_ms: int = 0
    clock_skew_ms: int = 0
    clock_drift_ppm: int = 0

    def first_protocol_of(self, index: int) -> GroupProtocol:
        """Return the protocol with which a consumer of the group begins."""
        is_classic = index < self.consumer_count - self.consumer_protocol_count
        return GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER

    def config_of(self, name: str, protocol: GroupProtocol) -> MemberConfig:
        """Return the settings of a consumer of the group."""
        instance_id = name if self.is_static else None
        named = evolve(self.member, group_id=self.group_id, group_instance_id=instance_id, client_id=name)
        return consumer_protocol_config(named, self.remote_assignor) if protocol is GroupProtocol.CONSUMER else named

    def subscribes_to(self, topic: str) -> bool:
        """Tell whether its consumers subscribe to a topic."""
        return bool(re.fullmatch(self.regex, topic)) if self.regex else topic in self.topics

    def subscribed(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return those of these topics to which its consumers subscribe."""
        return tuple(topic for topic in topics if self.subscribes_to(topic))


def consumer_protocol_config(classic: MemberConfig, remote_assignor: str | None) -> MemberConfig:
    """Return settings for ``group.protocol=consumer``: without those that it does not know."""
    usual = MemberConfig()
    return evolve(
        classic,
        group_protocol=GroupProtocol.CONSUMER.value,
        group_remote_assignor=remote_assignor,
        session_timeout_ms=usual.session_timeout_ms,
        heartbeat_interval_ms=usual.heartbeat_interval_ms,
        partition_assignment_strategy=usual.partition_assignment_strategy,
    )
