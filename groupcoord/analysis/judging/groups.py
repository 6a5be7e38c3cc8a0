"""Groups as a coordinator that loads the log would describe them, and who has which partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from groupcoord.analysis.history import GROUP, MEMBER

Row = dict[str, Any]
Histories = Mapping[str, list[Row]]
"""By kind (:data:`groupcoord.analysis.history.KINDS`), rows with the group and its log partition."""

Place = tuple[str, str, int]
"""A group, a topic and its partition."""

HOLDER = ("member_id", "client_id", "client_host")
"""What :func:`partition_holders` tells of members."""


def groups(found: Histories, current_offsets: pa.Table) -> list[Row]:
    """Return every group as a coordinator that loads the log would describe it.

    The columns are :data:`groupcoord.analysis.columns.group_tables.GROUPS`.

    Args:
        found: the groups' histories.
        current_offsets: the table of this name.
    """
    by_group = current_offsets.group_by("group_id").aggregate([("commit_timestamp_ms", "max"), ([], "count_all")])
    counts = {row["group_id"]: row for row in by_group.to_pylist()}
    nothing = {"commit_timestamp_ms_max": None, "count_all": 0}
    rows = []
    for row in found[GROUP]:
        counted = counts.get(row["group_id"], nothing)
        rows.append(row | {"last_commit_ms": counted["commit_timestamp_ms_max"], "offset_count": counted["count_all"]})
    return rows


def members_now(found: Histories) -> Iterable[Row]:
    """Yield the members of groups as the log ends."""
    now = {(row["group_id"], row["generation_or_epoch"], row["type"]) for row in found[GROUP]}
    return (row for row in found[MEMBER] if (row["group_id"], row["generation"], row["type"]) in now)


def partition_holders(found: Histories) -> dict[Place, Row]:
    """Return who has which partition as the log ends: one a partition, though several members may claim it."""
    holders: dict[Place, Row] = {}
    for member in members_now(found):
        holder = {name: member[name] for name in HOLDER}
        for assigned in member["assignment"] or ():
            for partition in assigned["partitions"]:
                place = (member["group_id"], assigned["topic"], partition)
                holders[place] = min(holder, holders.get(place, holder), key=_order)
    return holders


def _order(holder: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((holder[name] is not None, holder[name]) for name in HOLDER)
