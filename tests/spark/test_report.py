"""The report's page, pictures and words, made of plain rows: no Spark runs here."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.spark import report_model as model
from groupcoord.spark.causes import CAUSES, EXPIRY_OR_LEAVE, JOIN
from groupcoord.spark.report_figures import bin_width_ms, bins_of
from groupcoord.spark.report_page import report_page
from groupcoord.spark.report_pictures import (
    TICKS_MAX,
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
    light, dark = style_sheet().split("@media (prefers-color-scheme: dark)")

    assert used <= set(FILLS)
    assert all(f"--{colour}:" in light and f"--{colour}:" in dark for colour in FILLS.values())


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
    assert [told_clock(DAY_MS, span) for span in (1_000, 2 * DAY_MS, 4 * DAY_MS)] == ["00:00:00", "00:00", "1970-01-02"]


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
