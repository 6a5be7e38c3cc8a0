"""Assignors of the Java consumer, with the same results as in Java: range, round-robin, sticky and cooperative-sticky.

A custom assignor is any object that implements :class:`Assignor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from groupcoord.member.assignors.base import (
    AssignmentError as AssignmentError,
    Assignor as Assignor,
    Cluster as Cluster,
    ClusterTopic as ClusterTopic,
    RangeAssignor as RangeAssignor,
    RebalanceProtocol as RebalanceProtocol,
    RoundRobinAssignor as RoundRobinAssignor,
    StatelessAssignor as StatelessAssignor,
)
from groupcoord.member.assignors.sticky import (
    CooperativeStickyAssignor as CooperativeStickyAssignor,
    StickyAssignor as StickyAssignor,
)

ASSIGNORS: Mapping[str, Callable[[], Assignor]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}
"""Constructors of the assignors by name."""
