"""Variants of a scenario, what they differ by, and the keys that this is good for: measure_from, processing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupcoord.sim import Comparison, FleetReport, Run, ScenarioError, World, parse_variants, read_setting
from groupcoord.sim.reports.measures import MEASURES
from groupcoord.sim.reports.page import comparison_page, format_verdict
from groupcoord.sim.reports.runs import GroupFigures
from tests.tables import as_one_test

from .conftest import Simulate

REBALANCES = MEASURES[0]
KEYS = [measure.key for measure in MEASURES]
SCENARIO = """
name = "two <ways>"
duration = "4m"

[topics]
orders = 4

[[groups]]
name = "billing"
members = 2
topics = ["orders"]

[groups.member]
partition.assignment.strategy = "range"

[[events]]
kind = "stop-consumer"
group = "billing"
consumer = 1
down = "30s"
at = "2m"
"""
VARIANTS = """
[[variants]]
name = "idle"

[[variants]]
name = "at work"
set.groups.billing.processing = ["4s", "5s"]
set.groups.billing.member.session.timeout.ms = 20000
"""


def unowned_ms(text: str) -> list[int]:
    """Return how long each partition was without owner, in one seed."""
    (scenario,) = parse_variants(text)
    world = World(1, scenario.options_of(1))
    world.run()
    return [figure.unowned_ms for figure in world.groups[0].observations.partitions.values()]


def test_variants_set_keys_otherwise() -> None:
    """Each variant is the fleet with its keys; Kafka's settings are reached through their dots."""
    idle, busy = parse_variants(SCENARIO + VARIANTS, {"groups.*.members": 3, "topics.orders": 8})

    assert [scenario.variant for scenario in (idle, busy)] == ["idle", "at work"]
    first, second = idle.options.groups[0], busy.options.groups[0]
    assert (first.processing_ms, second.processing_ms) == ((0, 0), (4_000, 5_000))
    assert second.member.session_timeout_ms == 20_000
    assert second.member.partition_assignment_strategy == ("range",)
    assert first.consumer_count == second.consumer_count == 3
    assert idle.options.topics == {"orders": 8}


def test_a_variant_unsets_keys() -> None:
    added = """
[[variants]]
name = "as it is"

[[variants]]
name = "by default"
set.groups.billing.members = 3
set.groups.billing.processing = "4s"
unset = ["groups.*.member.partition.assignment.strategy", "groups.billing.processing"]
"""
    first, second = parse_variants(SCENARIO + added)

    (default,) = parse_variants(SCENARIO.replace('partition.assignment.strategy = "range"', ""))
    assert second.options.groups[0].member == default.options.groups[0].member != first.options.groups[0].member
    assert second.options.groups[0].consumer_count == 3


def test_an_error_of_the_file_names_no_variant() -> None:
    """An error that exists without variants, too, is one of the file; others name the variant."""
    wrong = SCENARIO.replace("orders = 4", "orders = 0")
    with pytest.raises(ScenarioError, match=r"^line 6: topics.orders: must be a whole number"):
        parse_variants(wrong + VARIANTS)
    with pytest.raises(ScenarioError, match=r"^variant 'a': .*topics.orders: must be a whole number"):
        parse_variants(SCENARIO + '[[variants]]\nname = "a"\nset.topics.orders = 0')


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ('[[variants]]\nname = "a"\nunset = ["measure_from"]', "variant 'a': measure_from: is not set, and can't be"),
        ('[[variants]]\nname = "a"\nunset = ["duration"]', r"variant 'a': .*duration: is missing"),
        ('[[variants]]\nname = "a"\nunset = ["events.0"]', "variant 'a': events.0: needs a key after it"),
        ('[[variants]]\nname = "a"\nset.groups.other.members = 1', "groups.other.members: there is no 'other'"),
        (
            '[[variants]]\nname = "a"\n[[variants]]\nname = "a"',
            r"line 25: variants\[1\].name: there are two",
        ),
        ('[[variants]]\nname = "a"\nset.groups.billing.members = 0', r"variant 'a': .*must be a whole number"),
        ("[[variants]]", r"variants\[0\].name: is missing"),
    ],
)
def test_what_is_wrong_with_a_variant(added: str, message: str) -> None:
    """The message names the variant, or key and line."""
    with pytest.raises(ScenarioError, match=message):
        parse_variants(SCENARIO + added)


def test_settings_from_the_command_line() -> None:
    """A value is TOML, or else the text that it is."""
    assert read_setting("groups.billing.members=5") == ("groups.billing.members", 5)
    assert read_setting("groups.*.processing = 90s") == ("groups.*.processing", "90s")
    assert read_setting('at=["1s", "2s"]') == ("at", ["1s", "2s"])
    with pytest.raises(ScenarioError, match="must be KEY=VALUE"):
        read_setting("members")


def test_an_application_that_works_makes_eager_rebalancing_slow() -> None:
    """A consumer that processes for seconds between polls rejoins late, and all partitions wait for it."""
    idle = unowned_ms('measure_from = "1m"\n' + SCENARIO)
    busy = unowned_ms(
        'measure_from = "1m"\n' + SCENARIO.replace("members = 2", 'members = 2\nprocessing = ["4s", "5s"]')
    )

    assert max(idle) < 1_000
    assert max(busy) > 3_000


def test_what_is_before_the_measured_time_is_not_counted() -> None:
    """The group's first start takes three seconds, and counts only without measure_from."""
    whole = unowned_ms(SCENARIO)
    measured = unowned_ms('measure_from = "1m"\n' + SCENARIO)

    assert min(a - b for a, b in zip(whole, measured, strict=True)) >= 3_000
    with pytest.raises(ScenarioError, match=r"line 1: measure_from: must lie before the end of the run"):
        parse_variants('measure_from = "4m"\n' + SCENARIO)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"range"', '"nope"', r"line 14: .*partition.assignment.strategy.*unknown assignor 'nope'"),
        (
            "members = 2",
            'members = 2\nprotocol = "consumer"\nassignor = "nope"',
            "assignor: must be one of uniform",
        ),
        ("[topics]", '[cluster.config]\ngroup.consumer.assignors = "nope"\n[topics]', "line 6: .*no assignor 'nope'"),
    ],
)
def test_assignors_that_there_are_not(old: str, new: str, message: str) -> None:
    """A wrong name is an error of the file, with its line."""
    with pytest.raises(ScenarioError, match=message):
        parse_variants(SCENARIO.replace(old, new))


def report(variant: str, *rebalances: int) -> FleetReport:
    runs = []
    for seed, count in enumerate(rebalances):
        figures = GroupFigures("g", {"rebalances": (count,)}, {})
        runs.append(Run(seed, None, (figures,)))
    return FleetReport("f", runs, variant)


def test_differences_are_paired_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupcoord.sim.reports.runs.MEASURES", [REBALANCES])
    first, steady, chance = report("a", 10, 200, 3_000), report("b", 11, 201, 3_002), report("c", 20, 150, 3_010)
    comparison = Comparison((first, steady, chance))

    (clear,) = comparison.differences(steady)
    (unclear,) = comparison.differences(chance)

    assert (clear.seeds, round(clear.mean, 3), clear.is_clear) == (3, 1.333, False)
    assert (round(clear.least or 0, 3), round(clear.most or 0, 3)) == (-0.101, 2.768)
    assert not unclear.is_clear
    (alone,) = Comparison((report("a", 1), report("b", 3))).differences(report("b", 3))
    assert (alone.mean, alone.least, alone.is_clear) == (2, None, False)
    assert Comparison((report("a", 1, 5, 9), report("b", 3, 7, 11))).differences(report("b", 3, 7, 11))[0].is_clear


def fleet(variant: str, *unowned_s: float, records: int = 1) -> FleetReport:
    values = [
        {**dict.fromkeys(KEYS, ()), "unowned_ms": (int(s * 1_000),), "group_records": (records,)} for s in unowned_s
    ]
    runs = [Run(seed, None, (GroupFigures("g", each, {}),)) for seed, each in enumerate(values)]
    return FleetReport("f", runs, variant)


@as_one_test
@pytest.mark.parametrize(
    ("reports", "told"),
    [
        (
            [fleet("a", 20, 30, 40), fleet("b", 17, 28, 37), fleet("c", 5, 10, 20)],
            "c costs least: 18.3 s less without owner per partition than a, 95 % between 11.2 and 25.5 s.",
        ),
        (
            [fleet("a", 20, 30, 40), fleet("b", 18, 29, 37), fleet("c", 18, 29, 38)],
            "No variant clearly costs least: b is 2.0 s less without owner per partition than a, "
            "95 % between -0.48 and 4.5 s.",
        ),
        (
            [fleet("a", 1, 2, 3), fleet("b", 11, 12, 13), fleet("c", 6, 7, 8)],
            "a costs least: 5.0 s less without owner per partition than c, 95 % between 5.0 and 5.0 s.",
        ),
        (
            [fleet("a", 20, 30, 40), fleet("b", 10, 20, 29), fleet("c", 10, 20, 30)],
            "b costs least: 10.3 s less without owner per partition than a, 95 % between 8.9 and 11.8 s. "
            "c may be as good: the difference isn't clear.",
        ),
        (
            [fleet("a", 20), fleet("b", 10)],
            "b costs least: 10.0 s less without owner per partition than a, in one seed.",
        ),
        ([report("a"), report("b")], ""),
    ],
)
def test_the_answer_comes_first(reports: list[FleetReport], told: str) -> None:
    """A sentence has the cheapest variant, compared with the first or the next best, and its certainty."""
    assert format_verdict(Comparison(tuple(reports))) == told


def test_better_and_worse_have_colours() -> None:
    """Each variant lists the measures in which it is clearly better or worse; the table's cells have colours."""
    page = comparison_page(Comparison((fleet("a", 20, 30, 40), fleet("b", 10, 20, 29, records=3))), "simulate")

    assert (
        page.index("b costs least") < page.index('<b class="better">less</b>: without owner') < page.index("<section")
    )
    assert '<b class="worse">more</b>: records.' in page
    assert '<td class="t">s per partition</td><td class="n"><span class="better">-10.3 (-11.8 to -8.9)</span>' in page
    assert '<span class="worse">+2 (+2 to +2)</span>' in page


def test_the_command_compares(simulate: Simulate, tmp_path: Path) -> None:
    """Variants are shown side by side in text, in JSON with each seed's values, and on one page."""
    path, page = tmp_path / "s.toml", tmp_path / "s.html"
    path.write_text(SCENARIO + VARIANTS)

    status, out, _ = simulate(str(path), "--seeds", "2", "--jobs", "1", "--html", str(page))
    found = json.loads(simulate(str(path), "--seeds", "2", "--jobs", "1", "--json", "--set", "groups.*.members=3")[1])

    assert status == 0
    assert "2 variants, each with 2 seeds (0 to 1): every law held" in out
    assert "difference from idle" in out
    assert "No variant clearly costs least: idle is " in out
    html = page.read_text()
    assert "two &lt;ways&gt;" in html
    assert html.count("time line of billing") == 2
    assert found["compared_with"] == "idle"
    assert len(found["variants"]["at work"]["by_seed"]["1"]["billing"]["unowned_ms"]) == 4
    assert found["differences"]["at work"]["unowned_ms"]["mean"] > 0
    assert simulate(str(path), "--seed", "1")[2].endswith(
        "--seed wants one of the variants: --variant idle or at work\n"
    )
    assert simulate(str(path), "--variant", "x")[2].endswith("there is no variant 'x'; there are idle, at work\n")
    assert simulate(str(path), "--set", "x")[0] == 2
    assert simulate("--set", "a=1")[2].endswith("--set and --variant need a scenario\n")
    trace = simulate(str(path), "--seed", "1", "--variant", "idle")[1]
    assert "at rest" in trace
