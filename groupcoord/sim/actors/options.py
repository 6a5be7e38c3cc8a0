"""What a group of simulated consumers is like."""

from __future__ import annotations

from attrs import field, frozen

from groupcoord.member import MemberConfig


@frozen
class GroupOptions:
    """A group of consumers.

    Attributes:
        group_id: its name; its consumers are called by it and a number from 0 on.
        consumer_count: how many there are.
        topics: what all of them subscribe to.
        is_static: each has an instance id (KIP-345).
        member: their settings; group, instance and client id are filled in.
        start_spread_ms: they start at moments spread over so long.
        clock_skew_ms: their clocks are off by up to this much, either way.
        clock_drift_ppm: their clocks run faster or slower by up to so many millionths.
    """

    group_id: str
    consumer_count: int
    topics: tuple[str, ...]
    is_static: bool = False
    member: MemberConfig = field(factory=MemberConfig)
    start_spread_ms: int = 0
    clock_skew_ms: int = 0
    clock_drift_ppm: int = 0
