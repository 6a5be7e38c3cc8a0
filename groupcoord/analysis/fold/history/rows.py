"""The rows that a fold gives: their kinds, and how those about members are made."""

from __future__ import annotations

from typing import Any

from groupcoord.analysis.fold.history.embedded import TopicPartitions
from groupcoord.analysis.fold.history.views import CLASSIC, STREAMS, GroupView, MemberView, by_topic
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE

Row = dict[str, Any]

GENERATION, MEMBER, REBALANCE, GROUP = "generation", "member", "rebalance", "group"
EPOCH, MEMBERSHIP, MOVE, REVOCATION = "epoch", "membership", "move", "revocation"
DUPLICATE = "duplicate"
"""Kinds of rows. Epochs and memberships are of groups that have epochs, moves and revocations of those among them whose
members don't share partitions. A duplicate is a partition that several members have at a time."""

HOLDER = ("member_id", "client_id", "client_host")
"""What rows of ``lag`` hold of the member that has a partition."""

_BY_TOPIC = ("assignment", "pending", "target", "partitions")
"""Columns with partitions by topic."""


def subscribed(view: GroupView | None) -> list[str] | None:
    """Return the topics that protect their offsets from expiry; None if they are not known."""
    if view is None or not view.members:
        return []
    topics: set[str] = set()
    for member in view.members.values():
        if member.topics is None or view.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics |= member.topics
    return sorted(topics)


def member_row(view: GroupView, member: MemberView, topics: dict[str, str]) -> Row:
    """Return the row of a member of a generation or an epoch; topics that are assigned by id have names if known."""
    is_classic = view.group_type == CLASSIC
    is_by_name = view.group_type in (CLASSIC, STREAMS)
    return {
        "type": view.group_type,
        "generation": view.generation,
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "subscription": {
            "topics": None if member.topics is None else sorted(member.topics),
            "topic_regex": member.topic_regex,
            "owned_partitions": [{"topic": topic, "partitions": found} for topic, found in by_topic(member.owned)],
            "generation": member.owned_generation,
            "rack_id": member.rack_id,
            "user_data": member.user_data,
            "raw": member.metadata or None,
        },
        "assignment": _by_name(member.held) if is_by_name else _by_id(member.held, topics),
        "pending": None if is_by_name else _by_id(member.pending, topics),
        "target": None if is_by_name else _by_id(member.assigned, topics),
        "standby": _by_name(member.standby) if view.group_type == STREAMS else None,
        "warmup": _by_name(member.warmup) if view.group_type == STREAMS else None,
        "assignor": member.assignor,
        "is_leader": member.member_id == view.leader,
        "member_epoch": None if is_classic else member.epoch,
        "log_offset": view.log_offset,
    }


def _by_name(partitions: TopicPartitions) -> list[Row]:
    return [{"topic": topic, "topic_id": None, "partitions": found} for topic, found in by_topic(partitions)]


def _by_id(partitions: TopicPartitions, topics: dict[str, str]) -> list[Row]:
    """Return partitions by topic, sorted: the ids, and the names if they are known."""
    rows = [
        {"topic": topics.get(topic_id), "topic_id": topic_id, "partitions": found}
        for topic_id, found in by_topic(partitions)
    ]
    return sorted(rows, key=lambda row: row["topic"] or row["topic_id"])


def named(row: Row, topics: dict[str, str]) -> Row:
    """Return a row about members, moves or revocations, which tell topics by id, with the names that are known."""
    told: Row = {name: _named(row[name], topics) for name in _BY_TOPIC if isinstance(row.get(name), list)}
    if row.get("topic_id") is not None:
        told["topic"] = topics.get(row["topic_id"], row["topic"])
    return row | told


def of_tasks(row: Row) -> Row:
    """Return a row about moves or revocations of tasks, which have a subtopology in a topic's place."""
    if isinstance(row.get("partitions"), list):
        return row | {"partitions": [one | {"topic": one["topic_id"], "topic_id": None} for one in row["partitions"]]}
    return row | {"topic": row["topic_id"], "topic_id": None} if "topic_id" in row else row


def _named(partitions: list[Row], topics: dict[str, str]) -> list[Row]:
    found = [one | {"topic": topics.get(one["topic_id"], one["topic"])} for one in partitions]
    return sorted(found, key=lambda one: one["topic"] or one["topic_id"])
