"""The laws of all kinds of groups whose state is in the log: whatever the log takes, groups are sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.consumer.state import ConsumerState
from groupcoord.core.kinds import as_consumer_group
from groupcoord.core.modern.conversion import WhenConverted
from groupcoord.core.modern.group import ModernGroup
from groupcoord.core.modern.membership import WhenDrafted
from groupcoord.core.modern.state import ModernGroupState
from groupcoord.core.record_keys import RecordKey
from groupcoord.core.records import CLASSIC_GROUP_KEY, GroupRecord, GroupTombstone, Record
from groupcoord.core.share.membership import WhenTopicForgotten
from groupcoord.core.share.state import ShareState
from groupcoord.core.streams.state import StreamsState
from groupcoord.laws.consumer_groups import OF_NO_GROUP, check_is_no_classic_group, check_sound_consumer_group
from groupcoord.laws.coordinator import require, served_partitions
from groupcoord.laws.epochs import check_sound_epochs
from groupcoord.laws.streams_groups import check_sound_streams_group

SOUND: dict[type[ModernGroupState[Any, Any]], Callable[[Any], None]] = {
    ConsumerState: check_sound_consumer_group,
    ShareState: check_sound_epochs,
    StreamsState: check_sound_streams_group,
}
"""By class of state: what must hold of every such group."""


def check_writes_in_flight(coordinator: GroupCoordinator) -> None:
    """A group has one write in flight, built on what is durable; whatever the log takes of all, groups are sound.

    Raises:
        LawBrokenError: a group has two, or one that builds on something else, or that would leave an unsound group.
    """
    for partition in served_partitions(coordinator):
        writes: dict[str, Sequence[Record]] = {}
        drafted = set()
        for append in partition.writer.in_flight:
            continuation = append.continuation
            for part in continuation.drafted if isinstance(continuation, WhenTopicForgotten) else (continuation,):
                if isinstance(part, WhenDrafted | WhenConverted):
                    group_id = part.group.group_id
                    require(group_id not in writes, f"group {group_id!r} has two writes in flight")
                    writes[group_id] = [
                        each for each in append.records if getattr(each, "group_id", group_id) == group_id
                    ]
                    if isinstance(part, WhenDrafted):
                        drafted.add(group_id)
        for group_id, group in partition.groups.items():
            if isinstance(group, ModernGroup):
                SOUND[type(group.state)](group.state)
                draft = group.writing
                require(
                    (draft is not None) == (group_id in drafted) and (draft is None or draft.durable is group.state),
                    f"{group!r} does not write what it has drafted, or has drafted it on something that is not durable",
                )
            if (consumer_group := as_consumer_group(group)) is not None and group_id not in writes:
                check_is_no_classic_group(coordinator, consumer_group)
        for group_id, records in writes.items():
            _check_sound_records(group_id, partition.hard.groups.get(group_id, {}).values(), records)


def _check_sound_records(group_id: str, durable: Iterable[tuple[int, GroupRecord]], written: Iterable[Record]) -> None:
    left: dict[RecordKey, GroupRecord] = {record.key: record for _, record in durable}
    for record in written:
        if isinstance(record, GroupTombstone):
            left.pop(record.key, None)
        elif not isinstance(record, OF_NO_GROUP):
            left[record.key] = record
    if CLASSIC_GROUP_KEY in left:
        require(len(left) == 1, f"what is written makes group {group_id!r} one of two kinds: {sorted(left)}")
        return
    kinds = [kind for kind in SOUND if any(type(record) in kind.APPLY for record in left.values())]
    require(len(kinds) <= 1, f"what is written makes group {group_id!r} one of two kinds: {sorted(left)}")
    for kind in kinds:
        SOUND[kind](kind.of(group_id, left.values()))
