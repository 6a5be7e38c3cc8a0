"""Topics of a cluster as groups see them, their partitions, and subscribed topic names in Kafka's order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from attrs import frozen

from groupcoord.core.fast_construct import fast_init
from groupcoord.core.javacompat import copied_set, string_hash, string_sort_key


@fast_init
@frozen
class Topic:
    """One topic of the cluster.

    Attributes:
        name: its name.
        topic_id: its id, which changes when the topic is created again.
        partition_count: number of partitions, numbered from 0.
        racks: for each partition the known racks of its replicas; empty without racks.
    """

    NEVER_CHANGES = True

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()


def subscribed_names(
    names: Collection[str], regular_expression: str | None, resolved: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the distinct topic names of a subscription, in the order in which Kafka walks its sets."""
    named = _names_in_order(names)
    matched = _names_in_order(resolved.get(regular_expression, ()) if regular_expression else ())
    # Kafka walks the larger set first, and that of the expression if both are as large.
    first, second = (named, matched) if len(named) > len(matched) else (matched, named)
    return list(dict.fromkeys((*first, *second)))


def _names_in_order(names: Collection[str]) -> list[str]:
    # Nothing to order; most members name one topic.
    if len(names) < 2:
        return list(names)
    return copied_set(string_hash, sorted(names, key=string_sort_key)).in_order()


class TopicPartitions(NamedTuple):
    """Partitions of one topic: in a target assignment, a heartbeat or its answer.

    Attributes:
        topic_id: the topic.
        partitions: their numbers, as the assignor gave them.
    """

    topic_id: UUID
    partitions: tuple[int, ...]
