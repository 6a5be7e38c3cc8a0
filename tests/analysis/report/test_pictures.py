"""Charts with the values of their rows, in distinguishable colours."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from groupcoord.analysis.fold.history.causes import CAUSES, EXPIRY_OR_LEAVE, JOIN
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.model import bin_width_ms, bins_of
from groupcoord.analysis.report.html.page import report_page
from groupcoord.analysis.report.html.pictures import TICKS_MAX, WIDTH, Axis, cause_class, state_class
from groupcoord.analysis.report.html.rendering import environment, style_sheet
from tests.tables import as_one_test

from ..report import reports

PICTURES = environment().get_template("analysis/report/html/pictures.html.jinja").module


def rects(picture: str, style: str) -> list[dict[str, float]]:
    found = re.findall(
        rf'<rect class="{style}" x="([\d.]+)" y="([\d.-]+)" width="([\d.]+)" height="([\d.]+)"/>', picture
    )
    return [dict(zip(("x", "y", "width", "height"), map(float, one), strict=True)) for one in found]


def brightness(colour: str) -> float:
    """Return the relative luminance of ``#rgb`` or ``#rrggbb``, from 0 to 1, as WCAG 2.1 defines it."""
    digits = colour.lstrip("#")
    whole = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    shares = [int(whole[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    darker, lighter = sorted((brightness(first), brightness(second)))
    return (lighter + 0.05) / (darker + 0.05)


FILLS = dict(re.findall(r"\.([\w-]+)\{--fill:var\(--(\w+)\)\}", style_sheet()))
SCHEMES = [
    dict(re.findall(r"--(\w+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\}", style_sheet(), re.DOTALL)
]


def test_every_shape_has_a_colour() -> None:
    """Each class of a filled shape, and each cause and state, has a colour that both schemes define."""
    text = report_page(reports.report())
    used = set(re.findall(r'<rect class="([^"]+)"', text)) | set(re.findall(r'class="key ([^"]+)"', text))
    used |= {cause_class(cause) for cause in CAUSES} | {state_class(state) for state in model.STATES}
    assert used <= set(FILLS)
    assert len(SCHEMES) == 2
    assert all(set(FILLS.values()) <= set(colours) for colours in SCHEMES)


@pytest.mark.parametrize("colours", SCHEMES, ids=["light", "dark"])
def test_colours_can_be_told_from_their_ground(colours: dict[str, str]) -> None:
    """As WCAG 2.1 asks for: text has a contrast of at least 4.5 with what is behind it, shapes of at least 3."""
    for ground in ("page", "card"):
        for name in ("text", "soft", "accent", "bad", "good", "warn"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for name in FILLS.values():
            assert contrast(colours[name], colours[ground]) >= 3, (name, ground)


def test_unknown_causes_and_states_are_drawn_too() -> None:
    """A name that is not in the lists gets the colour of others, behind those that are."""
    bins = model.Bins(0, 1_000, 1, {"cosmic ray": (1,), JOIN: (1,)})
    picture = PICTURES.cause_time_line(bins)
    assert cause_class("cosmic ray") == "cause-other"
    assert picture.index("cause-join") < picture.index("cause-other")
    assert "state-other" in PICTURES.state_bar({"Frozen": 1})


def test_columns_are_as_high_as_their_counts() -> None:
    """In the time line twice as many rebalances are twice as high, one cause on top of the other."""
    bins = model.Bins(0, 1_000, 3, {JOIN: (1, 2, 0), EXPIRY_OR_LEAVE: (1, 0, 0)})
    picture = PICTURES.cause_time_line(bins)
    (first, second), (on_top,) = rects(picture, "cause-join"), rects(picture, "cause-expiry-or-leave")
    assert second["height"] == pytest.approx(2 * first["height"], abs=0.2)
    assert on_top["y"] + on_top["height"] == pytest.approx(first["y"], abs=0.2)
    assert on_top["x"] == first["x"] < second["x"]


def test_churn_is_drawn_up_and_down() -> None:
    """Members that join stand above the line, those that leave hang below it."""
    picture = PICTURES.churn_time_line(model.Bins(0, 1_000, 2, {"joined": (3, 0), "left": (1, 0)}))
    (joined,), (left,) = rects(picture, "joined"), rects(picture, "left")
    assert joined["y"] + joined["height"] == pytest.approx(left["y"], abs=0.2)
    assert joined["height"] == pytest.approx(3 * left["height"], abs=0.2)


def test_hottest_group_has_its_share_of_the_column() -> None:
    picture = PICTURES.load_columns([reports.partition(0, 1_000)])
    (others,), (hot,) = rects(picture, "load"), rects(picture, "hot")
    assert hot["height"] / (hot["height"] + others["height"]) == pytest.approx(0.6, abs=0.01)


def test_a_lone_log_partition_does_not_fill_the_picture() -> None:
    (others,) = rects(PICTURES.load_columns([reports.partition(0, 1_000)]), "load")
    assert others["width"] <= 72


@as_one_test
@pytest.mark.parametrize("count", [1, 24, 25, 50, 200, model.PARTITIONS_MAX, 3_000])
def test_labels_of_log_partitions_do_not_overlap(count: int) -> None:
    picture = PICTURES.load_columns([reports.partition(number, 1_000) for number in range(count)])
    labels = [(float(x), int(told)) for x, told in re.findall(r'<text x="([\d.]+)" y="176"[^>]*>(\d+)<', picture)]
    assert labels[0][1] == 0
    assert all(after[0] - before[0] >= 28 for before, after in pairwise(labels))


def test_labels_of_times_are_inside_the_picture() -> None:
    """A label at the very end of the axis is moved until it fits."""
    day = PICTURES.cause_time_line(model.Bins(0, 3_600_000, 96, {JOIN: (1,) * 96}))
    labels = [(float(x), told) for x, told in re.findall(r'<text x="([\d.]+)"[^>]*middle">([^<]+)<', day)]
    assert labels[-1][1] == "1970-01-05"
    assert all(x + 7 * len(told) / 2 <= WIDTH for x, told in labels)


def test_picture_of_a_group_has_its_events_where_they_happened() -> None:
    """Marks of rebalances lie in the order of time inside the picture, each with its cause."""
    told = reports.story("a")
    axis = Axis(reports.START_MS, reports.START_MS + 30 * reports.MINUTE_MS)
    picture = PICTURES.group_picture(told, axis)
    marks = [mark for cause in told.causes for mark in rects(picture, cause_class(cause))]

    assert len(marks) == len(told.rebalances)
    marks.sort(key=lambda mark: mark["x"])
    for one, mark in zip(told.rebalances, marks, strict=True):
        assert mark["x"] + mark["width"] == pytest.approx(axis.x(one.ended_ms or 0), abs=0.2)
    assert picture.count('class="finding"') == len(told.anomalies)
    assert "at most 4 members" in picture
    assert "at most 4 commits in 1 min" in picture


def test_a_silence_at_the_end_is_shown() -> None:
    """From the last commit to the end of the log: all of it if there was none, nothing if it is short."""
    told = reports.story("a")
    last_ms = told.row.last_commit_ms or 0
    axis = Axis(reports.START_MS, last_ms + 30 * reports.MINUTE_MS)
    (silent,) = rects(PICTURES.group_picture(told, axis), "silence")
    (never,) = rects(
        PICTURES.group_picture(evolve(told, row=evolve(told.row, commits=0, last_commit_ms=None)), axis), "silence"
    )

    assert (silent["x"], never["x"]) == (pytest.approx(axis.x(last_ms), abs=0.1), pytest.approx(axis.x(axis.start_ms)))
    assert silent["x"] + silent["width"] == pytest.approx(axis.x(axis.end_ms), abs=0.1)
    assert "no commit for 30.0 min" in PICTURES.group_picture(told, axis)
    assert not rects(PICTURES.group_picture(told, Axis(reports.START_MS, last_ms + reports.MINUTE_MS)), "silence")


def test_epochs_are_steps() -> None:
    """A line keeps its height until the next epoch, and ends where no member has one."""
    points = (
        model.EpochPoint(0, 2, 2, 2),
        model.EpochPoint(500, 3, 2, 2),
        model.EpochPoint(600, 3, 3, None),
        model.EpochPoint(800, 4, 4, 4),
    )
    picture = PICTURES.epoch_lines(evolve(reports.story("a"), epochs=points), Axis(0, 1_000))
    lines = {
        style: [[tuple(map(float, point.split(","))) for point in drawn.split()] for drawn in found]
        for style in ("epoch-group", "epoch-target", "epoch-member")
        if (found := re.findall(rf'<polyline class="{style}" points="([^"]+)"', picture))
    }

    (group,), (target,), members = lines["epoch-group"], lines["epoch-target"], lines["epoch-member"]
    assert len(members) == 2
    assert group[0] == target[0] == members[0][0]
    assert group[1][1] == group[0][1] > group[2][1]
    middle = round(Axis(0, 1_000).x(500))
    assert [x for x, _ in group].count(middle) == 2
    assert middle not in [x for x, _ in target]


@given(st.integers(0, 2**62), st.integers(1, 2**62))
def test_axes_have_few_round_ticks(start_ms: int, span_ms: int) -> None:
    """Any span of time has some ticks at most, all inside of it and in the picture."""
    axis = Axis(start_ms, start_ms + span_ms)
    ticks = axis.ticks()
    assert len(ticks) <= TICKS_MAX + 1
    assert all(axis.start_ms <= tick <= axis.end_ms and tick % 1_000 == 0 for tick in ticks)
    assert axis.x(axis.start_ms - 5) == axis.x(axis.start_ms) <= axis.x(axis.end_ms) == axis.x(axis.end_ms + 5)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.sampled_from([model.BINS_MAX, model.BINS_OF_GROUP_MAX]))
def test_any_span_falls_into_few_bins(first_ms: int, span_ms: int, bins_max: int) -> None:
    """However long a log is, and however wrong its times, there are not more bins than fit; nothing is outside."""
    width_ms = bin_width_ms(span_ms, bins_max)
    last_ms = first_ms + span_ms
    bins = bins_of(first_ms, last_ms, {"a": {first_ms // width_ms: 2, last_ms // width_ms: 3}}, width_ms)
    assert bins.length <= bins_max
    assert bins.start_ms <= first_ms <= last_ms < bins.end_ms
    assert bins.total("a") == (3 if bins.length == 1 else 5)
