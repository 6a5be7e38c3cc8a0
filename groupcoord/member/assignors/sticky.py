"""The sticky assignor: balanced, and each member keeps what it had as far as that allows."""

from __future__ import annotations

from collections.abc import Mapping

from groupcoord.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.core.messages import UNKNOWN_GENERATION_ID
from groupcoord.member.assignors.base import Cluster, RebalanceProtocol
from groupcoord.member.assignors.claims import Claim
from groupcoord.member.assignors.sticky_assignment import assign_sticky
from groupcoord.member.assignors.sticky_user_data import decode_sticky_user_data, encode_sticky_user_data


class StickyAssignor:
    """Balances first, and moves as few partitions as it can second (KIP-54, KIP-341), racks considered (KIP-881).

    Members are eager: they give up everything before they join, and tell what they had in the user data of their
    subscription. Source: ``StickyAssignor`` of Kafka's Java client.
    """

    name = "sticky"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation_id = UNKNOWN_GENERATION_ID

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return what this member was given last and in which generation; None before the first assignment."""
        return None if self._partitions is None else encode_sticky_user_data(self._partitions, self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Remember the partitions and the generation."""
        self._partitions, self._generation_id = assignment.partitions, generation_id

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return each member's assignment.

        Raises:
            AssignmentError: members claim partitions in a way that defeats the algorithm.
        """
        return assign_sticky(cluster, subscriptions, _claim_of).assignments()


def _claim_of(subscription: Subscription) -> Claim:
    return decode_sticky_user_data(subscription.user_data)
