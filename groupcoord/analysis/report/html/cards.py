"""The most troubled groups, each with its story, its picture, what was found and its last rebalances."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from groupcoord.analysis.fold.history.causes import CAUSES
from groupcoord.analysis.report.data.model import (
    ANOMALIES_TOLD_MAX,
    REBALANCES_TOLD_MAX,
    AnomalyRow,
    GroupStory,
    RebalanceRow,
    Report,
)
from groupcoord.analysis.report.html.assignments import who_has_what
from groupcoord.analysis.report.html.elements import EMPTY, Html, element, joined, name, text
from groupcoord.analysis.report.html.layout import key, legend, listing, paragraph, pill, soft, table
from groupcoord.analysis.report.html.narrative import story_of
from groupcoord.analysis.report.html.pictures import Axis, cause_class, epoch_lines, group_picture, in_order
from groupcoord.analysis.report.html.sections import card_id
from groupcoord.analysis.report.html.top_groups import behind_told
from groupcoord.analysis.report.text import counted, format_number, format_share, format_span, format_time

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def troubled(report: Report) -> Html:
    """Return the section."""
    if not report.troubled:
        return EMPTY
    told = (
        "What is bad comes before what may become it; within that, points decide: 5 for each anomaly, 3 for each "
        "rebalance because a member expired or left or was fenced, 1 for each other. All pictures span the time of the "
        "whole log. The mark of a rebalance has the colour of its cause; triangles are anomalies. Point at a mark to "
        "read what it stands for."
    )
    axis = _axis(report)
    cards = (_card(place, story, report, axis) for place, story in enumerate(report.troubled, 1))
    return joined((soft(told), *cards))


def _card(place: int, story: GroupStory, report: Report, axis: Axis | None) -> Html:
    stands = story.row.standing
    behind = "" if stands.lag is None else f"{behind_told(stands)}, "
    points = element("span", f"{behind}{counted(story.row.trouble, 'point')}", class_="soft")
    return element(
        "article",
        element("h3", f"{place}. ", name(story.row.group_id), " ", pill(stands.word, stands.severity), " ", points),
        paragraph(_words(story, report)),
        _picture(story, axis),
        listing(_findings(story.anomalies)),
        who_has_what(story),
        _last_rebalances(story),
        class_=f"card {stands.severity}",
        id=card_id(place),
    )


def _words(story: GroupStory, report: Report) -> Html:
    """Return the story, in which moments stay on one line."""
    told = joined((text(sentence) for sentence in story_of(story, report.overview.last_timestamp_ms)), " ")
    return Html(_TIME.sub(lambda found: element("time", found[0]), told))


def _picture(story: GroupStory, axis: Axis | None) -> Html:
    if axis is None or not (story.rebalances or story.members or story.commits or story.epochs):
        return EMPTY
    causes = legend((cause, cause_class(cause)) for cause in in_order(story.causes, CAUSES))
    return joined((group_picture(story, axis), causes, _epochs(story, axis)))


def _epochs(story: GroupStory, axis: Axis) -> Html:
    """Return how far members of a consumer group were behind its epoch."""
    if not story.epochs:
        return EMPTY
    names = (("group epoch", "epoch-group"), ("target epoch", "epoch-target"), ("lowest member epoch", "epoch-member"))
    return joined((epoch_lines(story, axis), legend(names)))


def _axis(report: Report) -> Axis | None:
    """Return the time that all pictures span: that of the log, so that a group that stopped shows its silence."""
    first_ms, last_ms = report.overview.first_timestamp_ms, report.overview.last_timestamp_ms
    return None if first_ms is None or last_ms is None or first_ms >= last_ms else Axis(first_ms, last_ms)


def _last_rebalances(story: GroupStory) -> Html:
    told = story.rebalances[-REBALANCES_TOLD_MAX:]
    if not told:
        return EMPTY
    head = ("@ended", "#generation", "@cause", "#confidence", "#seen for", "#joined / left", "~evidence")
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
