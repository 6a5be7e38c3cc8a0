"""Groups as a coordinator that loads the log would describe them, and who has which partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from groupcoord.analysis.fold.history import GROUP, MEMBER
from groupcoord.analysis.fold.history.rows import HOLDER
from groupcoord.analysis.fold.history.views import SHARE, STREAMS

Row = dict[str, Any]
Histories = Mapping[str, list[Row]]
"""By kind (:data:`groupcoord.analysis.fold.history.KINDS`), rows with the group and its log partition."""

Place = tuple[str, str, int]
"""A group, a topic and its partition."""


def groups(found: Histories, current_offsets: pa.Table) -> list[Row]:
    """Return every group as a coordinator that loads the log would describe it.

    The columns are :data:`groupcoord.analysis.decode.group_tables.GROUPS`.

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


def partition_holders(found: Histories) -> dict[Place, Row]:
    """Return who has which partition as the log ends: one a partition, though several members may claim it.

    Besides :data:`HOLDER` told are since when the group has its generation or epoch, in which log partition its records
    lie, and whether it is one of those whose members share partitions. Tasks of streams groups are no partitions.
    """
    now = {(row["group_id"], row["generation_or_epoch"], row["type"]): row for row in found[GROUP]}
    holders: dict[Place, Row] = {}
    for member in found[MEMBER]:
        group = now.get((member["group_id"], member["generation"], member["type"]))
        if group is not None and group["type"] != STREAMS:
            told = {"since_ms": began_ms(group), "log_partition": group["log_partition"]}
            holder = {name: member[name] for name in HOLDER} | told | {"is_shared": group["type"] == SHARE}
            for assigned in member["assignment"] or ():
                for partition in assigned["partitions"]:
                    place = (member["group_id"], assigned["topic"], partition)
                    holders[place] = min(holder, holders.get(place, holder), key=_order)
    return holders


def began_ms(group: Row) -> int | None:
    """Return when a group came to its generation or epoch, in milliseconds since 1970; None: the log does not tell."""
    at_ms: int | None = group["state_timestamp_ms"]
    return None if at_ms is None or at_ms < 0 else at_ms


def _order(holder: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((holder[name] is not None, holder[name]) for name in HOLDER)
