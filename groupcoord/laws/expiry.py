"""Laws of offset expiry (KIP-211)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.administration import MS_PER_MINUTE
from groupcoord.core.events import Cause
from groupcoord.core.groups.classic.group import GroupState
from groupcoord.core.groups.group import Group
from groupcoord.core.groups.group_types import as_classic_group
from groupcoord.core.log.records import NO_TIMESTAMP, GroupTombstone, OffsetTombstone, Record
from groupcoord.core.offsets.commits import WhenDeleted
from groupcoord.core.partition import Partition
from groupcoord.laws.coordinator import require, served_partitions


def check_expiry(coordinator: GroupCoordinator, records: Iterable[Record]) -> None:
    """Check that expiry removes only old and unused offsets.

    Groups with an open transaction stay, as do pending transactional offsets (KAFKA-19163). So do offsets of topics
    that members use (KAFKA-4682, KAFKA-13636), and young ones (KAFKA-8069).

    ``records`` are any append, before it is written; only those of an expiry are checked.

    Raises:
        LawBrokenError: it does not hold.
    """
    about_to_be_written = list(records)
    for partition in served_partitions(coordinator):
        for append in partition.writer.in_flight:
            if (
                isinstance(append.continuation, WhenDeleted)
                and append.continuation.cause is Cause.EXPIRY
                and list(append.records) == about_to_be_written
            ):
                # The groups that end with this append have been removed already.
                groups = partition.groups | {group.group_id: group for group in append.continuation.groups}
                for record in append.records:
                    _check_expired(coordinator, partition, groups, record)


def offsets_of_topic(coordinator: GroupCoordinator, topic_id: UUID) -> set[tuple[str, str, int]]:
    """Return the committed offsets of a topic, as group, topic and partition, in all served log partitions."""
    return {
        (group_id, topic, index)
        for partition in served_partitions(coordinator)
        for group_id, topics in partition.hard.offsets.committed.items()
        for topic, commits in topics.items()
        for index, commit in commits.items()
        if commit.kind.topic_id == topic_id
    }


def check_forgets_topic(committed: Iterable[tuple[str, str, int]], records: Iterable[Record]) -> None:
    """Check that the deletion of a topic deletes its committed offsets.

    Args:
        committed: the offsets before the deletion, from :func:`offsets_of_topic`.
        records: what the coordinator wrote after the deletion.

    Raises:
        LawBrokenError: it does not hold.
    """
    ends = {(one.group_id, one.topic, one.partition) for one in records if isinstance(one, OffsetTombstone)}
    left = sorted(set(committed) - ends)
    require(not left, f"the topic is deleted, and its offsets {left} stay")


def _check_expired(
    coordinator: GroupCoordinator, partition: Partition, groups: Mapping[str, Group], record: Record
) -> None:
    offsets = partition.hard.offsets
    if isinstance(record, GroupTombstone):
        is_open = offsets.has_open_transaction(record.group_id)
        require(not is_open, f"expiry writes {record!r}, of which a transaction is open")
    if not isinstance(record, OffsetTombstone):
        return
    is_open = offsets.is_unstable(record.group_id, record.topic, record.partition)
    require(not is_open, f"expiry writes {record!r}, of which a transaction is open")
    group = groups.get(record.group_id)
    commit = offsets.of_group(record.group_id).get(record.topic, {}).get(record.partition)
    if group is None or commit is None:
        return
    require(not _uses(group, record.topic), f"expiry writes {record!r}, a topic that members use")
    now_ms, retention_ms = coordinator.clock.now_ms(), coordinator.config.offsets_retention_minutes * MS_PER_MINUTE
    if commit.kind.expire_timestamp_ms != NO_TIMESTAMP:
        is_old = now_ms >= commit.kind.expire_timestamp_ms
    else:
        base_ms = group.offset_age_base_ms(commit.kind)
        is_old = base_ms is None or now_ms - base_ms >= retention_ms
    require(is_old, f"expiry writes {record!r} before the offset's time: {commit!r}")


def _uses(group: Group, topic: str) -> bool:
    classic = as_classic_group(group)
    # In a rebalance of a classic group the subscriptions are unknown.
    is_in_a_round = classic is not None and classic.state is not GroupState.STABLE
    return not group.is_empty and (is_in_a_round or group.uses_topic(topic))
