"""Scenario files: what they may say, and complaints that name key and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupcoord.sim import ScenarioError, parse_scenario
from groupcoord.sim.durations import parse_duration, told_duration
from groupcoord.sim.faults import ConsumerStop
from groupcoord.sim.toml_lines import line_numbers

SCENARIOS = sorted((Path(__file__).parents[2] / "examples" / "scenarios").glob("*.toml"))

GOOD = """\
name = "a test"
duration = "10m"

[cluster]
nodes = 2

[topics]
orders = 6

[[groups]]
name = "billing"
copies = 2
members = 3
topics = ["orders"]

[groups.member]
session.timeout.ms = 10000
"heartbeat.interval.ms" = 3000

[[events]]
kind = "rolling-restart"
group = "billing-1"
at = ["1m", "2m"]
at_once = 2
every = "20s"
down = "3s"
"""


def test_a_good_file() -> None:
    """Groups are copied, Kafka's keys may be quoted or not, and events are drawn from the seed."""
    scenario = parse_scenario(GOOD)
    options = scenario.options_of(3)

    assert scenario.name == "a test"
    assert [group.group_id for group in options.groups] == ["billing-0", "billing-1"]
    assert options.groups[0].member.session_timeout_ms == 10_000
    assert options.groups[0].member.heartbeat_interval_ms == 3_000
    assert [type(fault) for fault in options.faults] == [ConsumerStop] * 3
    first, second, third = (fault.start_ms for fault in options.faults)
    assert 60_000 <= first <= 120_000
    assert (second, third) == (first, first + 20_000)
    assert options == scenario.options_of(3)
    assert options != scenario.options_of(4)


BAD = [
    ("duration = ", 'duration = "ten"\n#', "line 2: duration: 'ten' is no duration"),
    ("duration = ", "duration = 10\n#", "line 2: duration: must be a duration"),
    ('name = "a', 'nam = "a', "line 1: nam: is no key that is known here; did you mean name?"),
    ("nodes = 2", "nodes = 0", "line 5: cluster.nodes: must be a whole number from 1 to 100, not 0"),
    ("nodes = 2", "config = { group.max.siz = 3 }", "line 5: cluster.config.group.max.siz: unknown setting"),
    ("orders = 6", 'orders = "6"', "line 8: topics.orders: must be a whole number"),
    ("orders = 6", "", "line 7: topics: must name at least one topic"),
    ("members = 3", "", "line 10: groups[0].members: is missing"),
    ("members = 3", "membres = 3", "line 13: groups[0].membres: is no key that is known here; did you mean members?"),
    ("members = 3", "members = 200000", "line 13: groups[0].members: must be a whole number"),
    (
        'topics = ["orders"]',
        'topics = ["order"]',
        "line 14: groups[0].topics: there is no topic 'order'; there are orders",
    ),
    ('topics = ["orders"]', "topics = 3", "line 14: groups[0].topics: must be a list of names"),
    ("session.timeout.ms = 10000", "session.timeout = 1", "line 17: groups[0].member.session.timeout: unknown setting"),
    (
        '"heartbeat.interval.ms" = 3000',
        '"heartbeat.interval.ms" = 99000',
        "line 18: groups[0].member.heartbeat.interval.ms",
    ),
    ("session.timeout.ms = 10000", 'group.id = "x"', "line 17: groups[0].member.group.id: is given by the group"),
    ('kind = "rolling-restart"', 'kind = "earthquake"', "line 21: events[0].kind: must be one of rolling-restart"),
    ('group = "billing-1"', 'group = "billing"', "line 22: events[0].group: there is no group 'billing'"),
    ('at = ["1m", "2m"]', 'at = "11m"', "line 23: events[0].at: comes after the end"),
    ('at = ["1m", "2m"]', 'at = ["2m", "1m"]', "line 23: events[0].at: must not begin with the longer"),
    ("at_once = 2", "at_once = true", "line 24: events[0].at_once: must be a whole number"),
    ("at_once = 2", "at_onec = 2", "line 24: events[0].at_onec: is no key that is known here; did you mean at_once?"),
    ("[topics]", "[topics", "this is not TOML: Expected ']'"),
    ("[[groups]]", "[groups]", "line 10: groups: must be written as [[groups]] tables"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[f"{new[:30]}" for _, new, _ in BAD])
def test_complaints_name_key_and_line(old: str, new: str, message: str) -> None:
    """Whatever is wrong, the message says where."""
    assert old in GOOD

    with pytest.raises(ScenarioError, match=re.escape(message)):
        parse_scenario(GOOD.replace(old, new, 1))


def test_lines_of_keys() -> None:
    """Tables, arrays of tables below each other, dotted and quoted keys, comments and look-alikes in arrays."""
    text = '# x = 1\na.b = 1\n[[g]]\nn = [\n  "k",\n]\n[[g.h]]\n"q.r" = 2\n[[g]]\n[g.m] # c\nz = 3\n'

    assert line_numbers(text) == {
        ("a",): 2,
        ("a", "b"): 2,
        ("g", 0): 3,
        ("g", 0, "n"): 4,
        ("g", 0, "h", 0): 7,
        ("g", 0, "h", 0, "q.r"): 8,
        ("g", 1): 9,
        ("g", 1, "m"): 10,
        ("g", 1, "m", "z"): 11,
    }


def test_durations() -> None:
    """Durations are read as they are written, and told so that people can read them."""
    assert [parse_duration(text) for text in ("0ms", "250ms", "90s", "1h30m", "2d")] == [
        *(0, 250, 90_000),
        *(5_400_000, 172_800_000),
    ]
    assert [told_duration(ms) for ms in (5, 1_500, 90_000, 5_400_000)] == ["5 ms", "1.5 s", "1.5 min", "1.5 h"]


@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "1 s", "1.5s", "1s?", "367d", "9" * 13 + "d"])
def test_what_is_no_duration(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r"is (no duration|longer than a year)"):
        parse_duration(text)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_examples_are_scenarios(path: Path) -> None:
    """Each file in examples/scenarios is read without complaint."""
    assert parse_scenario(path.read_text("utf-8")).options_of(1).groups
