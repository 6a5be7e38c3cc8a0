"""Figures of consumer groups (KIP-848): what assignors moved, who gave partitions up slowly, epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from statistics import median_low

from groupcoord.analysis.fold.history.causes import REBALANCE_TIMEOUT, SESSION_EXPIRY
from groupcoord.analysis.fold.history.ownership import SWAP
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.rows import Row, at_ms, by_group, cut, known, none_first


def consumer_rows(
    epochs: Iterable[Row], memberships: Iterable[Row], moves: Iterable[Row], revocations: Iterable[Row]
) -> tuple[model.ConsumerGroupRow, ...]:
    """Return one row a consumer group: those in which members were slowest or fenced first."""
    lives, moved, revoked = by_group(memberships), by_group(moves), by_group(revocations)
    found = []
    for group_id, some in by_group(epochs).items():
        of_moves, took_ms = moved.get(group_id, []), known(row["took_ms"] for row in revoked.get(group_id, ()))
        found.append(
            model.ConsumerGroupRow(
                group_id,
                max(known(row["group_epoch"] for row in some)),
                sum(row["whose"] == "group" for row in some),
                len(lives.get(group_id, ())),
                sum(row["end"] in (REBALANCE_TIMEOUT, SESSION_EXPIRY) for row in lives.get(group_id, ())),
                *_moved(of_moves),
                max(known(row["unowned_ms"] for row in of_moves), default=None),
                len(revoked.get(group_id, ())),
                median_low(took_ms) if took_ms else None,
                max(took_ms, default=None),
            )
        )
    found.sort(key=lambda row: (-row.fenced, *_slowest_first(row.slowest_ms), -row.moved, row.group_id))
    return tuple(found[: model.CONSUMER_GROUPS_MAX])


def _slowest_first(slowest_ms: int | None) -> tuple[bool, int]:
    return slowest_ms is None, -(slowest_ms or 0)


def _moved(moves: Iterable[Row]) -> tuple[int, int]:
    """Return how many partitions that somebody had were moved, and how many of these without need."""
    moves = list(moves)
    return sum(_is_move(row) for row in moves), sum(row["reason"] == SWAP for row in moves)


def _is_move(row: Row) -> bool:
    return row["from_member"] is not None


def assignor_rows(moves: Iterable[Row]) -> tuple[model.AssignorRow, ...]:
    """Return what each assignor moved, most first."""
    by_assignor: defaultdict[str, list[Row]] = defaultdict(list)
    for row in moves:
        by_assignor[cut(row["assignor"])].append(row)
    found = []
    for assignor, some in by_assignor.items():
        took_ms = [
            row["assigned_ms"] - row["decided_ms"]
            for row in some
            if _is_move(row) and row["assigned_ms"] is not None and row["decided_ms"] is not None
        ]
        found.append(
            model.AssignorRow(
                assignor,
                len({row["group_id"] for row in some}),
                len({(row["group_id"], row["epoch"]) for row in some}),
                *_moved(some),
                median_low(took_ms) if took_ms else None,
                max(known(row["unowned_ms"] for row in some), default=None),
            )
        )
    found.sort(key=lambda row: (-row.moved, row.assignor))
    return tuple(found[: model.ASSIGNORS_MAX])


def slow_rows(revocations: Iterable[Row]) -> tuple[model.SlowMemberRow, ...]:
    """Return the clients that took longest to give partitions up."""
    by_client: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in revocations:
        if row["took_ms"] is not None:
            by_client[row["group_id"], row["client_id"]].append(row)
    found = []
    for (group_id, client_id), some in by_client.items():
        slowest = max(some, key=_slowness)
        found.append(
            model.SlowMemberRow(
                group_id,
                client_id,
                len(some),
                median_low([row["took_ms"] for row in some]),
                slowest["took_ms"],
                at_ms(slowest["asked_ms"]),
                slowest["rebalance_timeout_ms"],
                sum(row["end"] == REBALANCE_TIMEOUT for row in some),
            )
        )
    found.sort(key=lambda row: (-row.slowest_ms, *none_first(row.group_id, row.client_id)))
    return tuple(_cut(row) for row in found[: model.SLOW_MEMBERS_MAX])


def _slowness(row: Row) -> tuple[tuple[bool, object], ...]:
    # The moment decides between those that took as long, so that the answer is always the same.
    return none_first(row["took_ms"], row["asked_ms"], row["rebalance_timeout_ms"])


def _cut(row: model.SlowMemberRow) -> model.SlowMemberRow:
    return model.SlowMemberRow(
        row.group_id,
        cut(row.client_id),
        row.revocations,
        row.median_ms,
        row.slowest_ms,
        row.asked_ms,
        row.rebalance_timeout_ms,
        row.fenced,
    )


def epoch_lines(epochs: Iterable[Row], names: Collection[str]) -> Mapping[str, tuple[model.EpochPoint, ...]]:
    """Return how the epochs of some groups went on, oldest first; of very many, some all along."""
    wanted = (row for row in epochs if row["group_id"] in names and at_ms(row["log_timestamp_ms"]) is not None)
    return {group_id: _some(_epoch_points(rows)) for group_id, rows in sorted(by_group(wanted).items())}


def _epoch_points(rows: list[Row]) -> list[model.EpochPoint]:
    """Return how the epochs of a group went on: the last of each moment."""
    points: dict[int, model.EpochPoint] = {}
    members: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row["log_offset"]):
        if row["member_id"] is not None and (row["member_epoch"] or 0) > 0:
            members[row["member_id"]] = row["member_epoch"]
        elif row["member_id"] is not None:
            members.pop(row["member_id"], None)
        lowest, moment_ms = min(members.values(), default=None), row["log_timestamp_ms"]
        points[moment_ms] = model.EpochPoint(moment_ms, row["group_epoch"], row["target_epoch"], lowest)
    return list(points.values())


def _some(points: list[model.EpochPoint]) -> tuple[model.EpochPoint, ...]:
    count = min(len(points), model.EPOCHS_OF_GROUP_MAX)
    return tuple(points[(number + 1) * len(points) // count - 1] for number in range(count))
