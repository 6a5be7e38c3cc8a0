"""Sticky assignors: balanced assignments in which each member keeps its partitions as far as possible."""

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
    """Balances first and then minimizes moves (KIP-54, KIP-341), with regard to racks (KIP-881).

    Members are eager: they revoke everything before they join, and send what they had in the user data of their
    subscription. Source: ``StickyAssignor`` of Kafka's Java client.
    """

    name = "sticky"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation_id = UNKNOWN_GENERATION_ID

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return the last assignment of this member and its generation, or None before the first."""
        return None if self._partitions is None else encode_sticky_user_data(self._partitions, self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Store the partitions and the generation."""
        self._partitions, self._generation_id = assignment.partitions, generation_id

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member.

        Raises:
            AssignmentError: the members' claims are inconsistent.
        """
        return assign_sticky(cluster, subscriptions, _claim_in_user_data).assignments()


def _claim_in_user_data(subscription: Subscription) -> Claim:
    return decode_sticky_user_data(subscription.user_data)


class CooperativeStickyAssignor:
    """Assigns as :class:`StickyAssignor`, but takes no partition away from an owner.

    A partition that changes its owner is withheld. Its old owner finds it missing from its assignment, revokes it and
    joins again (KIP-429). Subscriptions hold the owned partitions; a member that sends no generation there sends it in
    the user data. Source: ``CooperativeStickyAssignor`` of Kafka's Java client.
    """

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation_id = UNKNOWN_GENERATION_ID

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return the generation of the last assignment, or -1 before the first."""
        return encode_generation(self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Store the generation."""
        self._generation_id = generation_id

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member, without partitions that another member still owns.

        Raises:
            AssignmentError: the members' claims are inconsistent.
        """
        answer = assign_sticky(cluster, subscriptions, _claim_in_subscription)
        answer.withhold_moving(subscriptions)
        return answer.assignments()


def _claim_in_subscription(subscription: Subscription) -> Claim:
    if subscription.generation_id > UNKNOWN_GENERATION_ID:
        return Claim(subscription.owned_partitions, subscription.generation_id)
    return Claim(subscription.owned_partitions, decode_generation(subscription.user_data))
