"""Groups whose members are no simulated consumers: of applications of Kafka Streams, for one."""

from __future__ import annotations

from attrs import define

from groupcoord.sim.cluster.simulated_cluster import SimulatedCluster


@define
class GuestGroup:
    """A group whose members are scripted clients.

    Attributes:
        group_id: its name.
        scripted_clients: how many of them are at work.
    """

    group_id: str
    _cluster: SimulatedCluster
    scripted_clients: int = 0

    def disturbed(self) -> None:
        """Something happened to the group: nobody asks whether it is steady."""

    def is_at_rest(self) -> bool:
        """Tell whether its clients are through, and its coordinator has nobody of them any more."""
        known = self._cluster.known_group(self.group_id)
        return not self.scripted_clients and known is not None and (known.group is None or known.group.is_empty)
