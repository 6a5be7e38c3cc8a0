"""Assignors of the Java consumer, with the same results as in Java: range, round-robin, sticky and cooperative-sticky.

A custom assignor is any object that implements :class:`Assignor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from groupcoord.member.assignors.base import (
    AssignmentError,
    Assignor,
    Cluster,
    ClusterTopic,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StatelessAssignor,
)
from groupcoord.member.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

ASSIGNORS: Mapping[str, Callable[[], Assignor]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}
"""Constructors of the assignors by name."""

__all__ = [
    "ASSIGNORS",
    "AssignmentError",
    "Assignor",
    "Cluster",
    "ClusterTopic",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StatelessAssignor",
    "StickyAssignor",
]
