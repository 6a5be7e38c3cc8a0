"""Who has what of a group as the log ends: its members and their partitions, with commits and lag of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.report.data.commits import CommitCount, Place
from groupcoord.analysis.report.data.group_status import (
    MEMBERS_TOLD_MAX,
    PARTITIONS_OF_MEMBER_MAX,
    MemberShare,
    PartitionShare,
)
from groupcoord.analysis.report.data.standings import severity_of_status
from groupcoord.analysis.report.data.values import Row, known


def members_now(batches: Iterable[pa.RecordBatch], groups: Mapping[str, int]) -> dict[str, list[Row]]:
    """Return the members of some groups as the log ends.

    Args:
        batches: of the table of members.
        groups: in which generation or epoch each group is.
    """
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for batch in batches:
        for group_id, generation in groups.items():
            is_wanted = pc.and_(pc.equal(batch["group_id"], group_id), pc.equal(batch["generation"], generation))
            found[group_id] += batch.filter(is_wanted).to_pylist()
    # A generation whose static member was replaced comes again.
    lasts = {group_id: max((row["log_offset"] for row in rows), default=0) for group_id, rows in found.items()}
    return {group_id: [row for row in rows if row["log_offset"] == lasts[group_id]] for group_id, rows in found.items()}


def shares(members: Iterable[Row], commits: Mapping[Place, CommitCount], lag: Iterable[Row]) -> tuple[MemberShare, ...]:
    """Return who has what of a group: first what nobody has, then members by how far they are behind.

    Args:
        members: of the group, as the log ends.
        commits: of each of its partitions.
        lag: the group's rows of the table.
    """
    behind = {(row["topic"], row["topic_partition"]): row for row in lag}
    left = dict.fromkeys([*behind, *commits])
    found = []
    for member in members:
        places = [(one["topic"] or one["topic_id"], part) for one in member["assignment"] for part in one["partitions"]]
        for place in places:
            left.pop(place, None)
        found.append(_share(member["client_id"], member["client_host"], places, commits, behind))
    found.sort(key=lambda share: (-(share.lag or 0), share.partition_count, share.client_id or ""))
    nobodys = [place for place in left if (behind.get(place) or {}).get("lag")]
    if nobodys and found:
        found.insert(0, _share(None, None, nobodys, commits, behind))
    return tuple(found[:MEMBERS_TOLD_MAX])


def _share(
    client_id: str | None,
    client_host: str | None,
    places: Sequence[Any],
    commits: Mapping[Place, CommitCount],
    behind: Mapping[Any, Row],
) -> MemberShare:
    partitions = []
    for place in places:
        counted, row = commits.get(place, CommitCount()), behind.get(place, {})
        lag, lag_ms, status = row.get("lag"), row.get("lag_ms"), row.get("status") or ""
        topic, number = place
        partitions.append(PartitionShare(topic, number, *counted, lag, lag_ms, status, severity_of_status(status)))
    lags = known(one.lag for one in partitions)
    partitions.sort(key=lambda one: (-(one.lag or 0), one.topic, one.partition))
    return MemberShare(
        client_id,
        client_host,
        len(partitions),
        sum(one.commits for one in partitions),
        sum(lags) if lags else None,
        tuple(partitions[:PARTITIONS_OF_MEMBER_MAX]),
    )
