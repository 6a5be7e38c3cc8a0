"""Observations, figures, the page and the command."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from groupcoord.analysis.report.html.pictures import ticks
from groupcoord.analysis.report.html.rendering import environment
from groupcoord.core.groups.classic.rebalance import Rebalance
from groupcoord.member import TopicPartition
from groupcoord.sim import FleetReport, parse_variants, report_page, run_seed
from groupcoord.sim.actors.observations import RECORD_INTERVAL_MS, GroupObservations
from groupcoord.sim.reports import measures, page
from groupcoord.sim.reports.measures import (
    MEASURES,
    Distribution,
    Measure,
    format_value,
    histogram,
    scale_of,
)
from groupcoord.sim.reports.page import span_of
from groupcoord.sim.reports.runs import Run, Timeline
from tests.analysis.report.reports import Page
from tests.tables import as_one_test

from .conftest import Simulate
from .worlds import small_world

PARTS = environment().get_template("sim/reports/parts.html.jinja").make_module({"measures": measures, "page": page})
PARTITION = TopicPartition("orders", 0)
SCENARIO = """\
name = "two <consumers>"
duration = "2m"
settle = "2m"
[topics]
orders = 4
[[groups]]
name = "billing"
members = 2
topics = ["orders"]
[[events]]
kind = "crash-consumer"
group = "billing"
at = ["40s", "60s"]
down = "forever"
"""

OTHERS = """\
[[events]]
kind = "transactional-producer"
group = "billing"
producers = 2
at = "20s"
for = "60s"
crash_percent = 10
transaction_timeout = "5s"
[[events]]
kind = "simple-consumer"
group = "<archive>"
topics = ["orders"]
at = "20s"
for = "30s"
[[events]]
kind = "delete-group"
group = "<archive>"
at = "70s"
[[events]]
kind = "foreign-record"
record = "unreadable"
at = "80s"
"""


@pytest.fixture(name="scenario")
def _scenario(tmp_path: Path) -> str:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    return str(path)


def test_a_partition_changes_hands() -> None:
    """Time without owner, moves and what is processed again come from who had it when."""
    seen = GroupObservations((PARTITION,), 0)
    seen.begin(1_000)
    seen.assigned("a", PARTITION, 4_000)
    seen.started("a", PARTITION, 0, 4_500)
    seen.given_up("a", PARTITION, 10_000)
    seen.assigned("b", PARTITION, 12_000)
    seen.started("b", PARTITION, 800, 12_100)
    seen.given_up("b", PARTITION, 20_000)
    seen.assigned("b", PARTITION, 20_000)
    seen.finish(30_000)

    figures = seen.partitions[PARTITION]
    assert figures.unowned_ms == 3_000 + 2_000
    assert figures.moves == 1
    assert figures.duplicate_ms == (10_000 // RECORD_INTERVAL_MS - 800) * RECORD_INTERVAL_MS
    assert figures.longest_duplicate_ms == figures.duplicate_ms
    assert seen.figures.offsets_waits_ms == [500, 100, 10_000]


def test_backlog_and_the_time_to_catch_up() -> None:
    """A consumer begins with older records; partitions without owner are behind until these are processed."""
    other = TopicPartition("orders", 1)
    seen = GroupObservations((PARTITION, other), 0)
    seen.begin(0)
    for partition in (PARTITION, other):
        seen.assigned("a", partition, 1_000)
        seen.started("a", partition, 0, 1_000)
        seen.caught_up(partition, 1_500)
    seen.begin_measuring(5_000)
    seen.given_up("a", PARTITION, 10_000)
    seen.assigned("b", PARTITION, 12_000)
    seen.started("b", PARTITION, 900, 12_100)
    seen.caught_up(PARTITION, 13_000)
    seen.caught_up(PARTITION, 14_000)
    seen.finish(20_000)

    assert seen.figures.catch_up_ms == [3_000]
    assert seen.figures.most_unowned == 1
    assert [figure.furthest_behind_ms for figure in seen.partitions.values()] == [3_100, 0]


def test_who_is_closed_does_first_what_it_works_on() -> None:
    """An application in the midst of what a poll has brought ends that and commits it: nothing is done again."""
    scenario = (
        SCENARIO.replace('name = "billing"', 'name = "billing"\nprocessing = ["4s", "5s"]')
        .replace('kind = "crash-consumer"', 'kind = "stop-consumer"')
        .replace('"forever"', '"20s"')
    )
    (parsed,) = parse_variants(scenario)
    (group,) = run_seed(1, parsed.options_of(1)).groups

    assert sum(group.values["moves"]) > 0
    assert sum(group.values["duplicate_ms"]) == 0


def test_two_consumers_at_once_process_twice() -> None:
    """While a replaced consumer continues, its work is counted as duplicate."""
    seen = GroupObservations((PARTITION,), 0)
    seen.begin(0)
    seen.assigned("a", PARTITION, 0)
    seen.started("a", PARTITION, 0, 0)
    seen.assigned("b", PARTITION, 5_000)
    seen.started("b", PARTITION, 500, 5_000)
    seen.given_up("b", PARTITION, 20_000)
    seen.given_up("a", PARTITION, 10_000)

    assert seen.partitions[PARTITION].duplicate_ms == 10_000
    assert seen.partitions[PARTITION].unowned_ms == 0


def test_figures() -> None:
    """Percentiles are values that occur; bins cover all values; nothing at all is zeros."""
    found = Distribution.of(list(range(1, 101)))

    assert (found.least, found.most, found.mean) == (1, 100, 50.5)
    assert found.percentiles == {50: 50, 90: 90, 99: 99}
    assert sum(count for _, _, count in histogram(list(range(100)), 7)) == 100
    assert histogram([5, 5]) == [(5, 5, 2)]
    assert histogram([0, 1, 1, 3], 7) == [(0, 0, 1), (1, 1, 2), (2, 2, 0), (3, 3, 1)]
    assert histogram([10, 14, 15, 20], 3) == [(10, 13, 1), (14, 17, 2), (18, 21, 1)]
    assert histogram([]) == []
    assert Distribution.of([]).to_json()["p50"] == 0


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    """Elements are closed in order, there is a plot for each measure, its row leads to it, and nothing is loaded."""
    report = FleetReport("a <b>name</b>", [run_seed(seed, small_world()) for seed in (1, 2)])

    page = report_page(report, "groupcoord simulate 'x.toml'")

    parsed = Page(page)
    tags = [tag for tag, _ in parsed.elements]
    assert not parsed.open
    measures = [measure.key for measure in MEASURES if report.values(measure.key)]
    assert tags.count("svg") == len(measures) > 10
    assert tags.count("rect") > len(measures)
    assert parsed.ids == ["distributions", *measures, "causes"]
    links = [values[name] for _, values in parsed.elements for name in ("src", "href") if name in values]
    assert links == ["#distributions", "#causes", *(f"#{name}" for name in measures)]
    assert "script" not in tags
    assert "&lt;b&gt;name" in page
    assert "http" not in page


def plot(measure: Measure, *series: tuple[str, list[int]]) -> str:
    reports = [(name, SimpleNamespace(values={measure.key: values}.get)) for name, values in series]
    return PARTS.card(measure, page.histograms(measure, reports))


def test_a_plot_can_be_read() -> None:
    """One value among thousands is seen, a lone bar is no wider than any, and both axes have round ticks."""
    measure = Measure("a", "a", "times", "group", "")
    lone, few, many = (plot(measure, ("", values)) for values in ([5], [0] * 9_999 + [2], list(range(41))))

    assert 'width="47"' in lone
    assert 'height="1.5"' in few
    assert [f">{value}</text>" in few for value in (0, 1, 2, 3)] == [True, True, True, False]
    assert ">5,000</text>" in few
    assert [f">{value}</text>" in many for value in (0, 20, 40)] == [True] * 3
    assert format_value(measure, 12_345.5) == "12,345.50"


@as_one_test
@pytest.mark.parametrize(
    ("unit", "values", "told"),
    [
        ("times", (3, 0.25, 1_200), ("times", "3", "0.25", "1,200")),
        ("ms", (3, 999), ("ms", "3", "999")),
        ("ms", (-30, 370, 4_300, 0), ("s", "-0.030", "0.37", "4.3", "0")),
        ("ms", (600_000, 90_000), ("min", "10.0", "1.5")),
        ("ms", (36_000_000,), ("h", "10.0")),
    ],
)
def test_a_row_has_one_unit(unit: str, values: tuple[float, ...], told: tuple[str, ...]) -> None:
    """All values of a row stand in the unit that fits the largest, so that they can be compared at a glance."""
    scale = scale_of(Measure("a", "a", unit, "group", ""), values)

    assert (scale.name, *map(scale.format, values)) == told


def test_a_time_line_shows_what_happens() -> None:
    """It begins before the first measured event and ends after the last; colours have a legend."""
    spans = (("billing-0", 3_000, 120_000), ("billing-11", 130_000, 600_000))
    timeline = Timeline("billing", 600_000, 60_000, ((1_000, 3_000), (120_000, 130_000)), (("orders-0", spans),), 1)

    span = span_of([timeline])
    picture = PARTS.draw_timeline(timeline, span, "eager")

    assert span == (119_000, 131_000)
    assert "1 rebalance;" in picture
    assert "12.0 s of 10.0 min are shown" in picture
    assert picture.index("billing-0</span>") < picture.index("billing-11</span>")
    assert 'class="owner-0"' in picture
    assert 'class="owner-1"' in picture
    assert span_of([Timeline("billing", 600_000, 60_000, ((1_000, 3_000),), (), 0)]) == (0, 600_000)


def test_plots_of_variants_have_the_same_axes() -> None:
    """With distant values of two variants, both plots have the ticks of all values."""
    both = plot(Measure("a", "a", "ms", "group", ""), ("fast", [0, 1_000]), ("slow", [60_000] * 8))

    assert both.count("<svg") == 2
    for tick in (">30.0 s</text>", ">1.0 min</text>", ">5</text>"):
        assert both.count(tick) == 2, tick


@as_one_test
@pytest.mark.parametrize(
    ("least", "most", "is_time", "found"),
    [
        (0, 3, False, [0, 1, 2, 3]),
        (4, 97, False, [50]),
        (0, 7_200_000, True, [0, 1_800_000, 3_600_000, 5_400_000, 7_200_000]),
        (130, 890, True, [200, 400, 600, 800]),
        (17, 17, False, [17]),
        (0, 10**12, True, [0, 333_417_600_000, 666_835_200_000]),
    ],
)
def test_ticks_are_round(least: int, most: int, is_time: bool, found: list[int]) -> None:
    """Ticks are round numbers, of time those of a clock, and no more than there is room for."""
    assert ticks(least, most, 5 if is_time and most < 10**9 else 4, is_time=is_time) == found


def test_seeds_that_failed_are_on_the_page() -> None:
    """The page has the number of seeds that broke a law, the law, and the command to repeat them,
    and no empty table.
    """
    page = report_page(FleetReport("a", [Run(7, None, failure="LawBrokenError: <no>")]), "groupcoord simulate x")

    assert "1 seed broke a law:" in page
    assert "LawBrokenError: &lt;no&gt;<br><code>groupcoord simulate x --seed 7</code>" in page
    assert "<table" not in page


def test_a_table_json_and_a_page(simulate: Simulate, scenario: str, tmp_path: Path) -> None:
    """Table, JSON and page have the same report; two runs agree on every digest."""
    page = tmp_path / "report.html"
    status, table, _ = simulate(scenario, "--seeds", "3", "--jobs", "1", "--html", str(page))

    assert status == 0
    assert "two <consumers>" in table
    assert "without owner" in table
    assert "every law held" in table
    assert "two &lt;consumers&gt;" in page.read_text()

    status, printed, _ = simulate(scenario, "--seeds", "3", "--jobs", "2", "--json")
    again = simulate(scenario, "--seeds", "3", "--jobs", "1", "--json", "--no-fast-forward")[1]
    report = json.loads(printed)
    assert status == 0
    assert report["seeds"] == 3
    assert report["failed"] == []
    assert report["all"]["rebalances"]["min"] >= 2
    assert report["rebalance_causes"]["session expiry"] == 3
    assert len(set(report["digests"].values())) == 3
    assert report == json.loads(again)


def test_what_others_do_is_told(simulate: Simulate, scenario: str, tmp_path: Path) -> None:
    """Results of transactions and of other clients' requests are in the table, in JSON and on the page."""
    Path(scenario).write_text(SCENARIO + OTHERS)
    page = tmp_path / "report.html"

    status, table, _ = simulate(scenario, "--seeds", "2", "--jobs", "1", "--html", str(page))
    report = json.loads(simulate(scenario, "--seeds", "2", "--jobs", "2", "--json")[1])
    again = json.loads(simulate(scenario, "--seeds", "2", "--jobs", "1", "--json", "--no-fast-forward")[1])

    assert status == 0
    assert report == again
    transactions = report["clients"]["transactional producer"]["transaction"]
    assert transactions["committed"] == report["all"]["offsets_late_ms"]["count"] > 10
    assert sum(transactions.values()) == report["groups"]["billing"]["transaction_open_ms"]["count"]
    assert transactions["timed out"] > 0
    assert report["all"]["transaction_open_ms"]["max"] > 5_000
    assert report["clients"]["administrator"] == {"DeleteGroups": {"NONE": 2}}
    assert report["clients"]["other writer"] == {"unreadable": {"written": 2}}
    assert report["clients"]["simple consumer"]["OffsetCommit"]["NONE"] > 5
    assert f"transactional producer, transaction: committed {transactions['committed']}" in table
    assert "offsets visible late" in table
    assert "waited for offsets" in table
    parsed = Page(page.read_text())
    assert not parsed.open
    plots = sum(each["count"] > 0 for each in report["all"].values())
    assert [tag for tag, _ in parsed.elements].count("svg") == plots + 1  # and the time line
    assert f'<td>transaction</td><td>committed</td><td class="n">{transactions["committed"]}</td>' in page.read_text()


def test_measures_without_values_are_not_shown(simulate: Simulate, scenario: str, tmp_path: Path) -> None:
    """Without transactions, table and page have nothing about them; JSON always has the same keys."""
    page = tmp_path / "report.html"

    table = simulate(scenario, "--seeds", "1", "--jobs", "1", "--html", str(page))[1]
    report = json.loads(simulate(scenario, "--seeds", "1", "--jobs", "1", "--json")[1])

    assert "transaction open" not in table + page.read_text()
    assert "visible late" not in table + page.read_text()
    assert "Operations of clients" not in page.read_text()
    assert report["all"]["transaction_open_ms"]["count"] == 0
    assert report["clients"] == {}


def test_consumers_that_fail_are_told(simulate: Simulate, scenario: str, tmp_path: Path) -> None:
    """Kafka refuses a static member that restarts in a full group until its session is over: the report has it."""
    full = SCENARIO.replace("[topics]", "[cluster.config]\ngroup.max.size = 2\n[topics]").replace(
        "[[events]]", "static = true\n[[events]]"
    )
    Path(scenario).write_text(full.replace('"forever"', '"5s"'))

    table = simulate(scenario, "--seeds", "2", "--jobs", "1")[1]
    report = json.loads(simulate(scenario, "--seeds", "2", "--jobs", "1", "--json")[1])

    failed = report["clients"]["consumer"]["JoinGroup failed"]["GROUP_MAX_SIZE_REACHED"]
    assert failed > 10
    assert f"consumer, JoinGroup failed: GROUP_MAX_SIZE_REACHED {failed}" in table
    assert report["all"]["unowned_ms"]["max"] > 40_000


@pytest.mark.parametrize("option", [("--json",), ("--html", "report.html")], ids=["json", "page"])
def test_a_trace_has_no_report(simulate: Simulate, scenario: str, option: tuple[str, ...]) -> None:
    """Asking for the trace of one seed and for a report at once is refused, with the way to get the report."""
    status, output, error = simulate(scenario, "--seed", "2", *option)

    assert (status, output) == (2, "")
    assert "--seeds 1 --first-seed" in error


def test_the_trace_of_one_seed(simulate: Simulate, scenario: str) -> None:
    """A seed alone prints one line per event with a picture of everybody, and its digest."""
    status, trace, _ = simulate(scenario, "--seed", "2")

    lines = trace.splitlines()
    assert status == 0
    assert lines[0].startswith("nodes:")
    assert any(line.endswith("billing-0  starts") for line in lines)
    assert any(" 1 22  billing-" in line for line in lines)
    assert any("1 4." in line or "1 .4" in line for line in lines)
    assert "digest" in lines[-1]


def test_a_failing_seed_is_told_with_its_command(
    simulate: Simulate, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken law makes exit status 1, and the line that replays the seed is printed; replaying fails as well."""
    monkeypatch.setattr(Rebalance, "assign", lambda self, written, now_ms: None)

    status, table, _ = simulate(scenario, "--seeds", "1", "--first-seed", "7", "--jobs", "1")
    assert status == 1
    assert "seed 7 FAILED: LawBrokenError: GroupMetadata('billing', CompletingRebalance" in table
    assert f"replay it: groupcoord simulate {scenario} --seed 7" in table

    status, trace, _ = simulate(scenario, "--seed", "7")
    assert status == 1
    assert trace.splitlines()[-1].startswith("LawBrokenError: GroupMetadata('billing', CompletingRebalance")


def test_without_a_scenario(simulate: Simulate) -> None:
    """Without a file, small fleets with everything going wrong are run."""
    status, table, _ = simulate("--seeds", "2", "--jobs", "1")

    assert status == 0
    assert "every law held" in table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "two.toml can't be read: No such file or directory"),
        (SCENARIO.replace("members = 2", "members = 0"), "two.toml: line 8: groups[0].members: "),
    ],
)
def test_a_file_that_can_not_be_used(simulate: Simulate, tmp_path: Path, text: str | None, message: str) -> None:
    """A missing or bad file is a message on stderr and exit status 2."""
    path = tmp_path / "two.toml"
    if text is not None:
        path.write_text(text)

    status, output, error = simulate(str(path))

    assert (status, output) == (2, "")
    assert message in error


def test_a_page_that_can_not_be_written(simulate: Simulate, scenario: str, tmp_path: Path) -> None:
    """A page that can't be written is a message on stderr and exit status 2."""
    status, _, error = simulate(scenario, "--seeds", "1", "--html", str(tmp_path))

    assert status == 2
    assert "can't be written" in error
