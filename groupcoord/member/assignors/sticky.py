"""The sticky assignors: balanced, and each member keeps what it had as far as that allows."""

from __future__ import annotations

from collections.abc import Mapping

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.core.messages import UNKNOWN_GENERATION_ID
from groupcoord.member.assignors.base import Cluster, RebalanceProtocol
from groupcoord.member.assignors.claims import (
    Claim,
    decode_generation,
    decode_sticky_user_data,
    encode_generation,
    encode_sticky_user_data,
)
from groupcoord.member.assignors.sticky_algorithm import assign_sticky


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
        return assign_sticky(cluster, subscriptions, _claim_in_user_data).assignments()


def _claim_in_user_data(subscription: Subscription) -> Claim:
    return decode_sticky_user_data(subscription.user_data)


class CooperativeStickyAssignor:
    """Assigns as :class:`StickyAssignor` does, but takes nothing away from anybody.

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
        answer = assign_sticky(cluster, subscriptions, _claim_in_subscription)
        answer.withhold_moving(subscriptions)
        return answer.assignments()


def _claim_in_subscription(subscription: Subscription) -> Claim:
    if subscription.generation_id > UNKNOWN_GENERATION_ID:
        return Claim(subscription.owned_partitions, subscription.generation_id)
    return Claim(subscription.owned_partitions, decode_generation(subscription.user_data))
