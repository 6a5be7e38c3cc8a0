"""The report's page, pictures and words, made of plain rows: no Spark runs here."""

from __future__ import annotations

import json
import re

import pytest
from attrs import evolve

from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.model import BAD, FINE, WARNING, Standing
from groupcoord.analysis.report.html.page import report_page

from ..report import reports
from .reports import Page

PAGE_BYTES_MAX = 1_000_000


def test_page_is_whole_and_needs_nothing_else() -> None:
    """Tags match, links lead to sections of the page, and there is neither a script nor an address."""
    text = report_page(reports.report())
    page = Page(text)

    assert page.open == []
    assert not {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "object"}
    addresses = [one.get(name) for _, one in page.elements for name in ("href", "src", "xlink:href", "data")]
    assert {address for address in addresses if address is not None} <= {f"#{one}" for one in page.ids}
    assert len(set(page.ids)) == len(page.ids)
    assert not re.search(r"https?:|@import|url\(", text)
    assert page.ids[:4] == ["worst", "overview", "anomalies", "lag"]
    named = "worst overview states rebalances churn consumer troubled anomalies stale lag load groups"
    assert set(named.split()) <= set(page.ids)


@pytest.mark.parametrize("name", ["group-", "x" * 5_000, '&"<' * 2_000])
def test_page_of_ten_thousand_groups_is_small(name: str) -> None:
    """Every list at its limit, with names of any length, gives less than 1 MB."""
    text = report_page(reports.report(10_000, name))
    assert len(text.encode()) < PAGE_BYTES_MAX
    assert text.count("<article") == model.TROUBLED_MAX


def test_names_from_the_log_are_only_names() -> None:
    """A group's name is shown as text, whatever it contains."""
    text = report_page(reports.report(3, '<script>alert("x")</script>\x00\u202e'))
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;\\x00\\u202e" in text
    assert not set(text) & {"\x00", "\u202e"}


def test_sections_without_anything_are_left_out() -> None:
    """A log with hardly any content gives a page that says so, without empty tables."""
    overview = model.Overview(log_partitions=1)
    report = model.Report("nothing", ("a",), reports.START_MS, "0", overview, tables={"rebalances": 0, "anomalies": 0})
    page = Page(report_page(report))
    words = " ".join(page.words)

    assert page.ids == ["overview", "anomalies", "rebalances", "read"]
    assert "The log shows no rebalance." in words
    assert "None was found." in words


def test_what_was_skipped_is_told() -> None:
    """Corrupt bytes stand on the page with file, position, reason and the offsets that may be lost."""
    words = " ".join(Page(report_page(reports.report())).words)
    for told in ("could not be read", "4,096", "CRC does not match", "100 to 119", "unknown record type"):
        assert told in words


@pytest.mark.parametrize(
    ("differences", "told"),
    [((), "equal the tables of 72 groups"), (("group a: state",), "in 1 place (of 72 groups)")],
)
def test_verification_is_told(differences: tuple[str, ...], told: str) -> None:
    """Either all is well, or the differences are named."""
    verified = model.Verification(72, len(differences), differences)
    words = "".join(Page(report_page(evolve(reports.report(), verification=verified))).words)
    assert told in words
    assert all(difference in words for difference in differences)


def test_consumer_groups_have_a_section() -> None:
    """Moves by assignor and what of it was not necessary, who was slow and who was fenced."""
    text = report_page(reports.report())
    section = "".join(Page(text.split('<section id="consumer">')[1].split("</section>")[0]).words)
    assert "Assignors moved 34 partitions to another member, 4 of them unnecessarily. 2 members were fenced" in section
    for told in ("the brokers' default", "range", "client of group-0", "31.0 s", "Moves by assignor"):
        assert told in section, told
    assert 'id="consumer"' not in report_page(evolve(reports.report(), consumer_groups=()))


def test_names_of_troubled_groups_lead_to_their_stories() -> None:
    text = report_page(reports.report())
    assert text.count('<article class="card bad" id="group-2"><h3>2. <code>group-1</code>') == 1
    assert text.count('<a href="#group-2"><code>group-1</code></a>') >= 5
    assert "<code>group-11</code></a>" not in text


def test_figures_lead_to_sections_that_are_there() -> None:
    whole = report_page(reports.report())
    without = report_page(evolve(reports.report(), anomaly_counts=(), tables={}))
    assert '<a class="tile bad" href="#anomalies"><b>12</b><span>anomalies</span></a>' in whole
    assert '<div class="tile bad"><b>12</b><span>anomalies</span></div>' in without
    assert "<span>corrupt range</span>" in whole


@pytest.mark.parametrize(("rows", "style"), [(15, "scroll"), (16, "scroll long")])
def test_long_tables_scroll_in_a_box(rows: int, style: str) -> None:
    """A long table takes no more room than a box, which the keyboard reaches; a short one is shown whole."""
    lag = tuple(model.LagRow("a", f"topic-{number}", 1, 1, 1) for number in range(rows))
    section = report_page(evolve(reports.report(), lag=lag, statuses=())).split('<section id="lag">')[1]
    assert section.startswith(f'<h2>Lag</h2><div class="{style}" tabindex="0"><table>')


def test_statuses_and_retention_are_told() -> None:
    """Partitions by Burrow status, the worst status of each group, and the causes of expired offsets."""
    words = " ".join(" ".join(Page(report_page(reports.report())).words).split())
    without = "".join(Page(report_page(evolve(reports.report(), is_retention_told=False))).words)
    assert "Burrow's status partitions groups STOP 6 3 OK 40 7" in words
    assert "next record's age worst status" in words
    assert "after a retention of 1 day (as set on the brokers) without further use" in words
    assert "after a retention of 1 day (Kafka's default) without further use" in without


def words_of(section: str, report: model.Report) -> str:
    found = report_page(report).split(f'<section id="{section}">')[1].split("</section>")[0]
    return " ".join(" ".join(Page(found).words).split())


def test_the_worst_groups_come_first() -> None:
    """A page begins with at most five groups, each with its status in its colour, its lag and what is wrong with it."""
    report = reports.report()
    text = report_page(report).split('<section id="worst">')[1].split("</section>")[0]
    words = words_of("worst", report)

    assert text.count('<li class="bad">') == 5
    assert text.count('<a href="#group-1"><code>group-0</code></a><span class="pill bad">STOP</span>') == 1
    assert "12 of 12 groups need attention; 12 of them without progress, or with records processed twice." in words
    assert "group-0 STOP 5,000 records behind, 42.0 s Commits stopped of group-0:3: no commit for 900 s." in words
    assert "Others: group-5 STOP" in words


def test_a_warning_is_not_told_as_bad() -> None:
    """A group with a warning only has another colour, and no statement about records."""
    warned = evolve(reports.row("g", 1), standing=Standing(WARNING, "flapping member", "Flapping member: g came back."))
    report = evolve(reports.report(), groups=(warned,), severities={BAD: 0, WARNING: 1, FINE: 11}, troubled=())
    text = report_page(report)
    assert "1 of 12 groups needs attention." in words_of("worst", report)
    assert '<li class="warning">' in text
    assert '<li class="bad">' not in text


def test_that_all_is_well_is_told() -> None:
    """Without anything wrong the page begins with that, and with who is furthest behind; no group has a card."""
    rows = tuple(
        evolve(reports.row(f"g{number}", 0), standing=Standing(lag=number * 10, lag_ms=None)) for number in range(3)
    )
    report = evolve(reports.report(), groups=rows, severities={BAD: 0, WARNING: 0, FINE: 3}, troubled=())
    polled = evolve(report, polls=model.Polls(1, 0, 0, 0, ()), lag=(), statuses=())

    assert words_of("worst", report) == (
        "What is wrong No anomaly was found and each group keeps up with its topics. "
        "Furthest behind: g2 (20 records behind) and g1 (10 records behind)."
    )
    again = evolve(polled, polls=model.Polls(2, 0, 9, 0, ()))
    assert words_of("worst", polled).startswith("What is wrong Furthest behind: g2")
    assert words_of("worst", again).startswith("What is wrong Polls show no anomaly. Furthest behind: g2")
    assert "<article" not in report_page(report)


def test_who_has_what_is_told() -> None:
    """Each member has its partitions with commits and lag, or is listed without any."""
    words = words_of("troubled", reports.report())
    assert "group-0 0 10.0.0.1, 9 partitions, 360 commits, 8,100 behind group-0 orders:0 40" in words
    assert "900 42.0 s STOP 7 more" in words
    assert "idle group-0 10.0.0.2, 0 partitions, 0 commits nothing" in words


def test_findings_of_one_kind_are_told_once() -> None:
    """The summary has the first finding of each kind and the number of others, not one line per partition."""
    told = reports.story("a")
    storm = evolve(told.anomalies[0], kind="rebalance storm", subject="")
    report = evolve(reports.report(), troubled=(evolve(told, anomalies=(*told.anomalies, storm)),))
    words = "".join(Page(report_page(report)).words)
    assert "offset rewind of orders:3: a went from 500 back to 10 (and 1 more)" in words
    assert words.count("rebalance storm: ") == 1


def test_lists_that_are_cut_say_so() -> None:
    words = "".join(Page(report_page(reports.report(10_000))).words)
    assert f"The first {model.GROUPS_MAX} of 10,000 groups" in words
    assert f"The first {model.STALE_MAX} of 60 groups" in words


def test_summary_is_json() -> None:
    made = model.summary(reports.report())
    assert json.loads(json.dumps(made))["overview"]["rebalances"] == 97
    assert made["format_version"] == model.FORMAT_VERSION
    assert [row["group_id"] for row in made["groups"]] == [f"group-{number}" for number in range(12)]
