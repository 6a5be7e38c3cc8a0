"""The report's page, pictures and words, made of plain rows: no Spark runs here."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.history.causes import CAUSES, EXPIRY_OR_LEAVE, JOIN
from groupcoord.spark import report_model as model
from groupcoord.spark.report_figures import bin_width_ms, bins_of
from groupcoord.spark.report_page import LONG_TABLE_ROWS, report_page
from groupcoord.spark.report_pictures import (
    COLUMN_WIDTH_MAX,
    TICKS_MAX,
    WIDTH,
    Axis,
    cause_class,
    cause_time_line,
    churn_time_line,
    group_picture,
    load_columns,
    state_bar,
    state_class,
)
from groupcoord.spark.report_story import story_of
from groupcoord.spark.report_style import FILLS, style_sheet
from groupcoord.spark.report_text import (
    clipped,
    counted,
    html_name,
    html_text,
    listed,
    told_clock,
    told_limit,
    told_share,
    told_size,
    told_span,
    told_time,
)

from . import reports

PAGE_BYTES_MAX = 1_000_000
VOID = frozenset({"meta", "br", "hr", "img", "link"})
DAY_MS = 86_400_000


class Page(HTMLParser):
    """Reads a page and complains about tags that don't match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember the tag."""
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember a tag that closes itself."""
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """It closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Remember the words."""
        self.words.append(data)


def rects(picture: str, style: str) -> list[dict[str, float]]:
    """Return the rectangles of a style."""
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


SCHEMES = [
    dict(re.findall(r"--(\w+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\}", style_sheet(), re.DOTALL)
]


# ---------------------------------------------------------------- the page


def test_page_is_whole_and_needs_nothing_else() -> None:
    """Tags match, links lead to sections of the page, and there is neither a script nor an address."""
    text = report_page(reports.report())
    page = Page(text)

    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert all(address.startswith("#") and address[1:] in page.ids for address in page.addresses)
    assert len(set(page.ids)) == len(page.ids)
    assert not re.search(r"https?:|@import|url\(", text)
    assert {
        "overview",
        "states",
        "rebalances",
        "churn",
        "troubled",
        "anomalies",
        "stale",
        "lag",
        "load",
        "groups",
    } <= set(page.ids)


@pytest.mark.parametrize("name", ["group-", "x" * 5_000, '&"<' * 2_000])
def test_page_of_ten_thousand_groups_is_small(name: str) -> None:
    """Every list at its limit, with names of any length, gives less than 1 MB."""
    text = report_page(reports.report(10_000, name))

    assert len(text.encode()) < PAGE_BYTES_MAX
    assert text.count("<article") == model.TROUBLED_MAX


def test_names_from_the_log_are_only_names() -> None:
    """What someone puts into a group's name is shown and does nothing."""
    text = report_page(reports.report(3, '<script>alert("x")</script>\x00\u202e'))

    assert "<script" not in text
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;\\x00\\u202e" in text
    assert not set(text) & {"\x00", "\u202e"}


def test_sections_without_anything_are_left_out() -> None:
    """A log that shows hardly anything gives a page that says so, without empty tables."""
    overview = model.Overview(None, None, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)
    report = model.Report("nothing", ("a",), reports.START_MS, "0", overview, tables={"rebalances": 0, "anomalies": 0})
    page = Page(report_page(report))
    words = " ".join(page.words)

    assert page.ids == ["overview", "rebalances", "anomalies", "read"]
    assert "The log shows no rebalance." in words
    assert "None was found." in words


def test_what_was_skipped_is_told() -> None:
    """Corrupt bytes stand on the page with file, position, reason and the offsets that may be lost."""
    words = " ".join(Page(report_page(reports.report())).words)

    for told in ("could not be read", "4,096", "CRC does not match", "100 to 119", "unknown record type"):
        assert told in words


@pytest.mark.parametrize(
    ("differences", "told"),
    [((), "answers for each of 72 groups what the tables say"), (("group a: state",), "in 1 place (of 72 groups)")],
)
def test_verification_is_told(differences: tuple[str, ...], told: str) -> None:
    """Either all is well, or the differences are named."""
    verified = model.Verification(72, len(differences), differences)
    words = "".join(Page(report_page(evolve(reports.report(), verification=verified))).words)

    assert told in words
    assert all(difference in words for difference in differences)


def test_names_of_troubled_groups_lead_to_their_stories() -> None:
    """Wherever such a group is named, its name leads to its card; other names lead nowhere."""
    text = report_page(reports.report())

    assert text.count('<article class="card" id="group-2"><h3>2. <code>group-1</code>') == 1
    assert text.count('<a href="#group-2"><code>group-1</code></a>') >= 5
    assert "<code>group-11</code></a>" not in text


def test_figures_lead_to_sections_that_are_there() -> None:
    """A figure on top leads to its section, and is plain where that section was left out."""
    whole = report_page(reports.report())
    without = report_page(evolve(reports.report(), anomaly_counts=(), tables={}))

    assert '<a class="tile bad" href="#anomalies"><b>12</b><span>anomalies</span></a>' in whole
    assert '<div class="tile bad"><b>12</b><span>anomalies</span></div>' in without
    assert "<span>corrupt range</span>" in whole


@pytest.mark.parametrize(("rows", "style"), [(LONG_TABLE_ROWS, "scroll"), (LONG_TABLE_ROWS + 1, "scroll long")])
def test_long_tables_scroll_in_a_box(rows: int, style: str) -> None:
    """A long table takes no more room than a box, which the keyboard reaches; a short one is shown whole."""
    lag = tuple(model.LagRow("a", f"topic-{number}", 1, 1, 1) for number in range(rows))
    section = report_page(evolve(reports.report(), lag=lag)).split('<section id="lag">')[1]

    assert section.startswith(f'<h2>Lag</h2><div class="{style}" tabindex="0"><table>')


def test_findings_of_one_kind_are_told_once() -> None:
    """A story tells the first finding of each kind and how many more there are, not one line for each partition."""
    told = reports.story("a")
    storm = evolve(told.anomalies[0], kind="rebalance storm", subject="")
    report = evolve(reports.report(), troubled=(evolve(told, anomalies=(*told.anomalies, storm)),))
    words = "".join(Page(report_page(report)).words)

    assert "offset rewind of orders:3: a went from 500 back to 10 (and 1 more)" in words
    assert words.count("rebalance storm: ") == 1


def test_lists_that_are_cut_say_so() -> None:
    """A table that holds the first rows alone tells how many there are."""
    words = "".join(Page(report_page(reports.report(10_000))).words)

    assert f"The first {model.GROUPS_MAX} of 10,000 groups" in words
    assert f"The first {model.STALE_MAX} of 60 groups" in words


def test_summary_is_json() -> None:
    """The figures survive a round through JSON, under the names of the model."""
    made = model.summary(reports.report())

    assert json.loads(json.dumps(made))["overview"]["rebalances"] == 97
    assert made["format_version"] == model.FORMAT_VERSION
    assert [row["group_id"] for row in made["groups"]] == [f"group-{number}" for number in range(12)]


# ---------------------------------------------------------------- pictures


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
        for name in ("text", "soft", "accent", "bad", "good"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for name in FILLS.values():
            assert contrast(colours[name], colours[ground]) >= 3, (name, ground)


def test_unknown_causes_and_states_are_drawn_too() -> None:
    """A name that is not in the lists gets the colour of others, behind those that are."""
    bins = model.Bins(0, 1_000, 1, {"cosmic ray": (1,), JOIN: (1,)})
    picture = cause_time_line(bins)

    assert cause_class("cosmic ray") == "cause-other"
    assert picture.index("cause-join") < picture.index("cause-other")
    assert "state-other" in state_bar({"Frozen": 1})


def test_columns_are_as_high_as_their_counts() -> None:
    """In the time line twice as many rebalances are twice as high, one cause on top of the other."""
    bins = model.Bins(0, 1_000, 3, {JOIN: (1, 2, 0), EXPIRY_OR_LEAVE: (1, 0, 0)})
    picture = cause_time_line(bins)
    (first, second), (on_top,) = rects(picture, "cause-join"), rects(picture, "cause-expiry-or-leave")

    assert second["height"] == pytest.approx(2 * first["height"], abs=0.2)
    assert on_top["y"] + on_top["height"] == pytest.approx(first["y"], abs=0.2)
    assert on_top["x"] == first["x"] < second["x"]


def test_churn_is_drawn_up_and_down() -> None:
    """Members that join stand above the line, those that leave hang below it."""
    picture = churn_time_line(model.Bins(0, 1_000, 2, {"joined": (3, 0), "left": (1, 0)}))
    (joined,), (left,) = rects(picture, "joined"), rects(picture, "left")

    assert joined["y"] + joined["height"] == pytest.approx(left["y"], abs=0.2)
    assert joined["height"] == pytest.approx(3 * left["height"], abs=0.2)


def test_hottest_group_has_its_share_of_the_column() -> None:
    """The hot part of a log partition's column is as high as its share."""
    picture = load_columns([reports.partition(0, 1_000)])
    (others,), (hot,) = rects(picture, "load"), rects(picture, "hot")

    assert hot["height"] / (hot["height"] + others["height"]) == pytest.approx(0.6, abs=0.01)


def test_a_lone_log_partition_does_not_fill_the_picture() -> None:
    """However few log partitions there are, a column is a column."""
    (others,) = rects(load_columns([reports.partition(0, 1_000)]), "load")

    assert others["width"] <= COLUMN_WIDTH_MAX


@pytest.mark.parametrize("count", [1, 24, 25, 50, 200, model.PARTITIONS_MAX, 3_000])
def test_labels_of_log_partitions_do_not_overlap(count: int) -> None:
    """Many log partitions are labelled at round distances, with room for four digits between two labels."""
    picture = load_columns([reports.partition(number, 1_000) for number in range(count)])
    labels = [(float(x), int(told)) for x, told in re.findall(r'<text x="([\d.]+)" y="176.0"[^>]*>(\d+)<', picture)]

    assert labels[0][1] == 0
    assert all(after[0] - before[0] >= 28 for before, after in pairwise(labels))


def test_labels_of_times_are_inside_the_picture() -> None:
    """A label at the very end of the axis is moved until it fits."""
    day = cause_time_line(model.Bins(0, 3_600_000, 96, {JOIN: (1,) * 96}))
    labels = [(float(x), told) for x, told in re.findall(r'<text x="([\d.]+)"[^>]*middle">([^<]+)<', day)]

    assert labels[-1][1] == "1970-01-05"
    assert all(x + 7 * len(told) / 2 <= WIDTH for x, told in labels)


def test_picture_of_a_group_has_its_events_where_they_happened() -> None:
    """Marks of rebalances lie in the order of time inside the picture, each with its cause."""
    told = reports.story("a")
    axis = Axis(reports.START_MS, reports.START_MS + 30 * reports.MINUTE_MS)
    picture = group_picture(told, axis)
    marks = [mark for cause in told.causes for mark in rects(picture, cause_class(cause))]

    assert len(marks) == len(told.rebalances)
    marks.sort(key=lambda mark: mark["x"])
    for one, mark in zip(told.rebalances, marks, strict=True):
        assert mark["x"] + mark["width"] == pytest.approx(axis.x(one.ended_ms or 0), abs=0.2)
    assert picture.count('class="finding"') == len(told.anomalies)
    assert "at most 4 members" in picture
    assert "at most 4 commits in 1 min" in picture


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


# ---------------------------------------------------------------- words


def test_story_tells_what_happened() -> None:
    """State, pace, causes, time taken, churn, commits and findings, in sentences."""
    told = story_of(reports.story("a"), reports.START_MS + 30 * reports.MINUTE_MS)

    assert told == [
        "A classic group, Stable in generation 9, with 3 members at the end of the log.",
        "It rebalanced 9 times from 2026-11-21T07:23:37Z to 2026-11-21T07:31:37Z, every 1.0 min on average.",
        "That was 3 times because a member expired or left, 3 times because a member joined and 3 times because a "
        "member left.",
        "From the last join to the assignments, each took 3.0 s.",
        "In all, 6 members joined, 3 members went and 21 partitions changed hands.",
        "5 of the rebalances (56%) fell into the five minutes after 2026-11-21T07:23:37Z.",
        "The log holds 1,234 commits of it; the last was at 2026-11-21T07:48:37Z, 5.0 min before the log ends.",
        "What stands out: offset rewind (2).",
    ]


def test_story_of_a_group_that_is_gone() -> None:
    """A group that left traces only is told as gone, and what is not known is not told."""
    row = model.GroupRow("a", 1, rebalances=1)
    one = evolve(reports.rebalance("a", 1), started_ms=None)

    assert story_of(model.GroupStory(row, {JOIN: 1}, (one,), (), (), None), None) == [
        "A coordinator that loads this log would not know the group any more.",
        "It rebalanced once.",
        "That was because a member joined.",
        "It committed nothing that the log still holds.",
    ]


def test_story_of_a_quiet_group() -> None:
    """Without rebalances nothing is told of them."""
    row = model.GroupRow("a", 0, type="Consumer", state="Empty", generation=4, members=0, commits=1)

    assert story_of(model.GroupStory(row, {}, (), (), (), None), None) == [
        "A consumer group, Empty in epoch 4, without members at the end of the log.",
        "The log shows no rebalance of it.",
        "The log holds 1 commit of it.",
    ]


@pytest.mark.parametrize(
    ("at_ms", "told"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_795_245_817_999, "2026-11-21T07:23:37Z"),
        (None, "-"),
        (-1, "-"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_times_are_iso_in_utc(at_ms: int | None, told: str) -> None:
    """A moment is ISO 8601 to the second; what no calendar holds stays a number."""
    assert told_time(at_ms) == told


def test_numbers_are_told_with_their_units() -> None:
    """Sizes, spans, shares and counts as people read them."""
    assert [told_size(size) for size in (None, 0, 1_023, 1_536, 5 * 2**40)] == [
        *("-", "0 bytes", "1,023 bytes", "1.5 KiB", "5.0 TiB")
    ]
    assert [told_span(span) for span in (None, 999, 90_000, 3 * DAY_MS)] == ["-", "999 ms", "1.5 min", "3.0 days"]
    assert [told_share(share) for share in (None, 0.456)] == ["-", "46%"]
    assert [counted(number, "group") for number in (1, 2_000)] == ["1 group", "2,000 groups"]
    assert [listed(list(words)) for words in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert [told_clock(DAY_MS, span) for span in (1_000, 600_000, 2 * DAY_MS, 4 * DAY_MS)] == [
        *("00:00:00", "00:00", "01-02 00:00", "1970-01-02")
    ]
    assert [told_limit(limit) for limit in (250, 2_000, 600_000, 5_400_000, DAY_MS, 7 * DAY_MS)] == [
        *("250 ms", "2 s", "10 min", "90 min", "1 day", "7 days")
    ]


@given(st.text(), st.integers(6, 50))
def test_text_is_bounded_and_printable(text: str, length_max: int) -> None:
    """Clipped text has no control characters and no more than its length, with a mark where it was cut."""
    shown = clipped(text, length_max)

    assert len(shown) <= length_max + 1
    assert all(char.isprintable() for char in shown)
    assert shown == text or not text.isprintable() or shown == text[:length_max] + "…"
    assert "<" not in html_text(text, length_max)


def test_names_that_are_missing_or_empty() -> None:
    """A name that is not there and one that is empty look different."""
    assert html_name(None) == "-"
    assert html_name("") == "<i>no name</i>"
    assert html_name("a") == "<code>a</code>"
