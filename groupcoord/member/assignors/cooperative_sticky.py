"""The cooperative sticky assignor: the sticky algorithm, for members that keep their partitions while they rejoin."""

from __future__ import annotations

from collections.abc import Mapping

from groupcoord.consumer_protocol import Assignment, Subscription
from groupcoord.core.messages import UNKNOWN_GENERATION_ID
from groupcoord.member.assignors.base import Cluster, RebalanceProtocol
from groupcoord.member.assignors.claims import Claim
from groupcoord.member.assignors.sticky_assignment import assign_sticky
from groupcoord.member.assignors.sticky_user_data import decode_generation, encode_generation


class CooperativeStickyAssignor:
    """Assigns as :class:`~groupcoord.member.assignors.sticky.StickyAssignor` does, but takes nothing away from anybody.

    A partition that changes its owner is withheld until the old owner, which sees that it is not in its assignment any
    more, has given it up and joins again (KIP-429). What members have is in their subscriptions; a member that sends no
    generation there tells it in the user data. Source: ``CooperativeStickyAssignor`` of Kafka's Java client.
    """

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation_id = UNKNOWN_GENERATION_ID

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return the generation of the last assignment, -1 before the first."""
        return encode_generation(self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Remember the generation."""
        self._generation_id = generation_id

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return each member's assignment, without the partitions that another member still has.

        Raises:
            AssignmentError: members claim partitions in a way that defeats the algorithm.
        """
        answer = assign_sticky(cluster, subscriptions, _claim_of)
        answer.withhold_moving(subscriptions)
        return answer.assignments()


def _claim_of(subscription: Subscription) -> Claim:
    if subscription.generation_id > UNKNOWN_GENERATION_ID:
        return Claim(subscription.owned_partitions, subscription.generation_id)
    return Claim(subscription.owned_partitions, decode_generation(subscription.user_data))
