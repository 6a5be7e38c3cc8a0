"""The story of one group in words."""

from __future__ import annotations

from collections import Counter
from statistics import median

from groupcoord.analysis.fold.history.causes import (
    ASSIGNOR_CHANGE,
    COORDINATOR_MOVE,
    EXPIRY_OR_LEAVE,
    JOIN,
    LEADER_REJOIN,
    LEAVE,
    METADATA_CHANGE,
    REBALANCE_TIMEOUT,
    REGEX_CHANGE,
    SESSION_EXPIRY,
    STATIC_REPLACE,
    TOPIC_CHANGE,
    UNKNOWN,
)
from groupcoord.analysis.report.data.model import GroupRow, GroupStory, RebalanceRow
from groupcoord.analysis.report.text import counted, format_share, format_span, format_time, listed

_BECAUSE = {
    JOIN: "because a member joined",
    LEAVE: "because a member left",
    EXPIRY_OR_LEAVE: "because a member expired or left",
    SESSION_EXPIRY: "because a static member did not come back in time",
    REBALANCE_TIMEOUT: "because a member did not give partitions up in time",
    METADATA_CHANGE: "because a subscription or its metadata changed",
    TOPIC_CHANGE: "because its topics changed",
    REGEX_CHANGE: "because other topics matched a regular expression",
    ASSIGNOR_CHANGE: "because a member asked for another assignor",
    LEADER_REJOIN: "because the leader joined again",
    STATIC_REPLACE: "because a static member came back under a new id",
    COORDINATOR_MOVE: "after the coordinator moved",
    UNKNOWN: "for a reason that the log does not show",
}
_OFTEN_MS = 300_000

CAUSES_MAX = 4
"""So many causes of rebalances are told: more would be cut from the sentence."""


def story_of(story: GroupStory, end_ms: int | None) -> list[str]:
    """Return the story as sentences of plain text.

    Args:
        story: the group.
        end_ms: when the log ends, to say how long ago the last commit was.
    """
    row = story.row
    sentences = [_what_it_is(row)]
    if row.rebalances:
        sentences.append(_how_often(row))
        sentences.append(_why(story))
        sentences += _how_long(row, story.rebalances)
        sentences += _churn(row)
        sentences += _repeated(story.rebalances)
    else:
        sentences.append("The log shows no rebalance of it.")
    sentences.append(_commits(row, end_ms))
    if story.anomalies:
        kinds = Counter(anomaly.kind for anomaly in story.anomalies)
        told = [f"{kind} ({number})" if number > 1 else kind for kind, number in kinds.items()]
        sentences.append(f"What stands out: {listed(told)}.")
    return sentences


def _what_it_is(row: GroupRow) -> str:
    if row.state is None:
        return "A coordinator that loads this log would not know the group any more."
    kind = f"A {row.type.lower()} group" if row.type else "A group"
    generation = "" if row.generation is None else f" in generation {row.generation:,}"
    if row.type and row.type.lower() != "classic":
        generation = generation.replace("generation", "epoch")
    members = "without members" if not row.members else f"with {counted(row.members, 'member')}"
    return f"{kind}, {row.state}{generation}, {members} at the end of the log."


def _how_often(row: GroupRow) -> str:
    first, last = row.first_rebalance_ms, row.last_rebalance_ms
    times = _times(row.rebalances)
    if first is None or last is None or row.rebalances == 1:
        return f"It rebalanced {times}" + (f", at {format_time(last)}." if last is not None else ".")
    every = (last - first) / (row.rebalances - 1)
    pace = f", every {format_span(round(every))} on average" if row.rebalances > 2 else ""
    return f"It rebalanced {times} from {format_time(first)} to {format_time(last)}{pace}."


def _times(number: int) -> str:
    return "once" if number == 1 else "twice" if number == 2 else f"{number:,} times"


def _why(story: GroupStory) -> str:
    ordered = sorted(story.causes.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) == 1:
        told = [_BECAUSE.get(cause, f"because of {cause}") for cause, _ in ordered]
    else:
        told = [
            f"{_times(number)} {_BECAUSE.get(cause, f'because of {cause}')}" for cause, number in ordered[:CAUSES_MAX]
        ]
        others = sum(number for _, number in ordered[CAUSES_MAX:])
        told += [f"{_times(others)} for other reasons"] if others else []
    return f"That was {listed(told)}."


def _how_long(row: GroupRow, rebalances: tuple[RebalanceRow, ...]) -> list[str]:
    """Tell how long rebalances were under way, as far as the log shows: joining leaves no trace in it."""
    known = [
        (one.ended_ms - one.started_ms, one)
        for one in rebalances
        if one.started_ms is not None and one.ended_ms is not None and one.ended_ms >= one.started_ms
    ]
    if not known:
        return []
    longest_ms, longest = max(known, key=lambda pair: pair[0])
    middle = format_span(round(median(duration for duration, _ in known)))
    is_classic = row.type is None or row.type.lower() == "classic"
    what = "From the last join to the assignments" if is_classic else "Until all members had come to a new epoch"
    generation = "generation" if is_classic else "epoch"
    where = "" if longest.to_generation is None else f", to {generation} {longest.to_generation:,},"
    if format_span(longest_ms) == middle:
        return [f"{what}, {'it' if len(known) == 1 else 'each'} took {middle}."]
    return [f"{what}, half of them took {middle} or less, and the longest{where} took {format_span(longest_ms)}."]


def _churn(row: GroupRow) -> list[str]:
    if not row.joined + row.left + row.partitions_moved:
        return []
    parts = []
    if row.joined:
        parts.append(f"{counted(row.joined, 'member')} joined")
    if row.left:
        parts.append(f"{counted(row.left, 'member')} went")
    if row.partitions_moved:
        parts.append(f"{counted(row.partitions_moved, 'partition')} changed hands")
    return [f"In all, {listed(parts)}."]


def _repeated(rebalances: tuple[RebalanceRow, ...]) -> list[str]:
    """Point out the worst five minutes, if more than half of the rebalances fall into them."""
    times = sorted(one.ended_ms for one in rebalances if one.ended_ms is not None)
    most, start, first = 0, 0, 0
    for place, at_ms in enumerate(times):
        while times[first] <= at_ms - _OFTEN_MS:
            first += 1
        if place - first + 1 > most:
            most, start = place - first + 1, first
    spans_more = len(times) > 1 and times[-1] - times[0] > _OFTEN_MS
    if most < 3 or not spans_more or most * 2 <= len(times):
        return []
    share = format_share(most / len(times))
    return [f"{most:,} of the rebalances ({share}) fell into the five minutes after {format_time(times[start])}."]


def _commits(row: GroupRow, end_ms: int | None) -> str:
    if not row.commits:
        return "It committed nothing that the log still holds."
    text = f"The log holds {counted(row.commits, 'commit')} of it"
    if row.last_commit_ms is None:
        return f"{text}."
    ago = ""
    if end_ms is not None and end_ms >= row.last_commit_ms:
        ago = f", {format_span(end_ms - row.last_commit_ms)} before the log ends"
    return f"{text}; the last was at {format_time(row.last_commit_ms)}{ago}."
