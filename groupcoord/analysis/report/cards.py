"""The most troubled groups, each with its story, its picture, what was found and its last rebalances."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from groupcoord.analysis.history.causes import CAUSES
from groupcoord.analysis.report.html import EMPTY, Html, element, joined, name, text
from groupcoord.analysis.report.layout import key, legend, listing, paragraph, soft, table
from groupcoord.analysis.report.model import (
    ANOMALIES_TOLD_MAX,
    REBALANCES_TOLD_MAX,
    AnomalyRow,
    GroupStory,
    RebalanceRow,
    Report,
)
from groupcoord.analysis.report.pictures import Axis, cause_class, epoch_lines, group_picture, in_order
from groupcoord.analysis.report.sections import card_id
from groupcoord.analysis.report.story import story_of
from groupcoord.analysis.report.text import counted, format_number, format_share, format_span, format_time

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def troubled(report: Report) -> Html:
    """Return the section."""
    if not report.troubled:
        return EMPTY
    told = (
        "By points: 5 for each anomaly, 3 for each rebalance because a member expired or left or was fenced, 1 for "
        "each other. The mark of a rebalance has the colour of its cause; triangles are anomalies. Point at a mark to "
        "read what it stands for."
    )
    return joined((soft(told), *(_card(place, story, report) for place, story in enumerate(report.troubled, 1))))


def _card(place: int, story: GroupStory, report: Report) -> Html:
    points = element("span", counted(story.row.trouble, "point"), class_="soft")
    return element(
        "article",
        element("h3", f"{place}. ", name(story.row.group_id), " ", points),
        paragraph(_words(story, report)),
        _picture(story),
        listing(_findings(story.anomalies)),
        _last_rebalances(story),
        class_="card",
        id=card_id(place),
    )


def _words(story: GroupStory, report: Report) -> Html:
    """Return the story, in which moments stay on one line."""
    told = joined((text(sentence) for sentence in story_of(story, report.overview.last_timestamp_ms)), " ")
    return Html(_TIME.sub(lambda found: element("time", found[0]), told))


def _picture(story: GroupStory) -> Html:
    axis = _axis(story)
    if axis is None:
        return EMPTY
    causes = legend((cause, cause_class(cause)) for cause in in_order(story.causes, CAUSES))
    return joined((group_picture(story, axis), causes, _epochs(story, axis)))


def _epochs(story: GroupStory, axis: Axis) -> Html:
    """Return how far members of a consumer group were behind its epoch."""
    if not story.epochs:
        return EMPTY
    names = (("group epoch", "epoch-group"), ("target epoch", "epoch-target"), ("lowest member epoch", "epoch-member"))
    return joined((epoch_lines(story, axis), legend(names)))


def _axis(story: GroupStory) -> Axis | None:
    """Return the time that a group's picture spans: from its first sign to its last."""
    times = [at_ms for one in story.rebalances for at_ms in (one.started_ms, one.ended_ms) if at_ms is not None]
    times += [at_ms for at_ms, _ in story.members] + [point.at_ms for point in story.epochs]
    if story.commits is not None:
        times += [story.commits.start_ms, story.commits.end_ms]
    times = [at_ms for at_ms in times if at_ms >= 0]
    return Axis(min(times), max(times)) if times and max(times) > min(times) else None


def _last_rebalances(story: GroupStory) -> Html:
    told = story.rebalances[-REBALANCES_TOLD_MAX:]
    if not told:
        return EMPTY
    head = ("@ended", "#generation", "@cause", "#confidence", "#seen for", "#joined / left", "evidence")
    summary = f"Its last {counted(len(told), 'rebalance')}" if len(told) < story.row.rebalances else "Its rebalances"
    return element("details", element("summary", summary), table(head, map(_rebalance_cells, told)))


def _rebalance_cells(one: RebalanceRow) -> tuple[str, ...]:
    before = "" if one.from_generation is None else f"{one.from_generation:,}"
    took_ms = None if one.started_ms is None or one.ended_ms is None else one.ended_ms - one.started_ms
    return (
        format_time(one.ended_ms if one.ended_ms is not None else one.started_ms),
        f"{before} → {format_number(one.to_generation)}",
        joined((key(cause_class(one.cause)), text(one.cause))),
        format_share(one.confidence),
        format_span(took_ms),
        f"{one.joined:,} / {one.left:,}",
        text(one.evidence),
    )


def _findings(anomalies: Sequence[AnomalyRow]) -> Iterator[Html]:
    """Yield an item for each of the kinds that there are: its first finding, and how many more there are."""
    kinds: dict[str, list[AnomalyRow]] = {}
    for one in anomalies:
        kinds.setdefault(one.kind, []).append(one)
    for kind, (first, *others) in islice(kinds.items(), ANOMALIES_TOLD_MAX):
        subject = joined((" of ", text(first.subject))) if first.subject else ""
        more = f" (and {len(others):,} more)" if others else ""
        yield joined(
            (f"{format_time(first.first_ms)}: ", element("b", text(kind)), subject, ": ", text(first.evidence), more)
        )
