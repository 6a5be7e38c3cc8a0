"""The members of a group in the order in which range and round-robin give to them."""

from __future__ import annotations

from collections.abc import Mapping

from groupcoord.consumer_protocol import Subscription
from groupcoord.java import string_sort_key


def members_in_order(subscriptions: Mapping[str, Subscription], visiting_order: list[str]) -> list[str]:
    """Return the member ids: static members by their instance id, then the others by member id.

    Args:
        subscriptions: by member id.
        visiting_order: the order that stays among members with the same instance id.
    """

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, string_sort_key(member_id if instance_id is None else instance_id)

    return sorted(visiting_order, key=place)


def subscribers_by_topic(subscriptions: Mapping[str, Subscription], members: list[str]) -> dict[str, tuple[int, ...]]:
    """Return for each topic the positions in ``members`` of those who subscribe to it, ascending.

    Members with equal subscriptions are looked at together, and topics with the same subscribers share one list.
    """
    alike: dict[tuple[str, ...], list[int]] = {}
    for position, member_id in enumerate(members):
        alike.setdefault(subscriptions[member_id].topics, []).append(position)
    crowds = list(alike.values())
    crowds_of: dict[str, list[int]] = {}
    for crowd, topics in enumerate(alike):
        for topic in dict.fromkeys(topics):
            crowds_of.setdefault(topic, []).append(crowd)
    merged: dict[tuple[int, ...], tuple[int, ...]] = {}
    subscribers: dict[str, tuple[int, ...]] = {}
    for topic, chosen in crowds_of.items():
        key = tuple(chosen)
        if key not in merged:
            merged[key] = tuple(sorted(position for crowd in chosen for position in crowds[crowd]))
        subscribers[topic] = merged[key]
    return subscribers
