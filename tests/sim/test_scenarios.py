"""Scenario files: valid contents, and errors that name key and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupcoord.analysis.report.text import format_duration, parse_duration
from groupcoord.sim import (
    AdminAction,
    Administrator,
    ClientOperation,
    ConsumerStop,
    ForeignRecords,
    ScenarioError,
    SimpleConsumer,
    TransactionalProducer,
    parse_scenario,
    run_seed,
)
from groupcoord.sim.actors.clients import FOREIGN
from groupcoord.sim.scenarios.table_reader import line_numbers
from tests.tables import as_one_test

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


CLIENT_EVENTS = """\

[[events]]
kind = "transactional-producer"
group = "billing-0"
producers = 2
at = "1m"
for = ["1m", "2m"]
every = "3s"
open = "40ms"
abort_percent = 5
crash_percent = 6
zombie_percent = 7
transaction_timeout = "30s"

[[events]]
kind = "simple-consumer"
group = "archive"
topics = ["orders"]
at = "2m"
for = "1m"
every = "7s"
metadata_length = 9

[[events]]
kind = "describe-group"
group = "archive"
at = "3m"
times = 4
every = "2s"

[[events]]
kind = "delete-group"
group = "archive"
at = "4m"

[[events]]
kind = "delete-offsets"
group = "billing-1"
topic = "orders"
at = "5m"

[[events]]
kind = "remove-member"
group = "billing-1"
at = "6m"

[[events]]
kind = "foreign-record"
partition = 3
record = "share-group"
at = "7m"

[[events]]
kind = "foreign-record"
at = "8m"
"""


def test_clients_that_are_no_consumers() -> None:
    """Producers, simple consumers, administrators and other writers are configured by the file, each with an id."""
    faults = parse_scenario(GOOD + CLIENT_EVENTS).options_of(3).faults
    others = [fault for fault in faults if not isinstance(fault, ConsumerStop)]
    first, second, simple, *administrators, foreign, drawn = others

    assert isinstance(first, TransactionalProducer)
    assert isinstance(second, TransactionalProducer)
    assert (first.producer_id, second.producer_id) == (1, 2)
    assert first == TransactionalProducer(
        start_ms=60_000,
        end_ms=first.end_ms,
        producer_id=1,
        group="billing-0",
        pauses_ms=(3_000,),
        commit_pauses_ms=(40,),
        abort_percent=5,
        crash_percent=6,
        least_timeout_ms=30_000,
        most_timeout_ms=30_000,
        zombie_percent=7,
    )
    assert 120_000 <= first.end_ms <= 180_000
    assert simple == SimpleConsumer(
        start_ms=120_000,
        end_ms=180_000,
        group="archive",
        topics=("orders",),
        pauses_ms=(7_000,),
        metadata_lengths=(9,),
    )
    actions = [(fault.group, fault.action) for fault in administrators if isinstance(fault, Administrator)]
    assert actions == [
        ("archive", AdminAction.LOOK),
        ("archive", AdminAction.DELETE_GROUP),
        ("billing-1", AdminAction.DELETE_OFFSETS),
        ("billing-1", AdminAction.REMOVE_MEMBER),
    ]
    assert isinstance(administrators[0], Administrator)
    assert (administrators[0].looks, administrators[0].look_pause_ms) == (4, 2_000)
    assert foreign == ForeignRecords(start_ms=420_000, end_ms=420_000, partition=3, kind="share-group")
    assert isinstance(drawn, ForeignRecords)
    assert drawn.kind in FOREIGN
    assert 0 <= drawn.partition < 50


BAD = [
    ("duration = ", 'duration = "ten"\n#', "line 2: duration: 'ten' is no duration"),
    ("duration = ", "duration = 10\n#", "line 2: duration: must be a duration"),
    ('name = "a', 'nam = "a', "line 1: nam: is an unknown key; did you mean 'name'?"),
    ("nodes = 2", "nodes = 0", "line 5: cluster.nodes: must be a whole number from 1 to 100, not 0"),
    ("nodes = 2", "config = { group.max.siz = 3 }", "line 5: cluster.config.group.max.siz: unknown setting"),
    ("orders = 6", 'orders = "6"', "line 8: topics.orders: must be a whole number"),
    ("orders = 6", "", "line 7: topics: must name at least one topic"),
    ("members = 3", "", "line 10: groups[0].members: is missing"),
    ("members = 3", "membres = 3", "line 13: groups[0].membres: is an unknown key; did you mean 'members'?"),
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
    ("at_once = 2", "at_onec = 2", "line 24: events[0].at_onec: is an unknown key; did you mean 'at_once'?"),
    ("[topics]", "[topics", "this is not TOML: Expected ']'"),
    ("[[groups]]", "[groups]", "line 10: groups: must be a list of tables, in TOML [[groups]]"),
    (
        'group = "billing-0"',
        'group = "archive"',
        "line 30: events[1].group: there is no group 'archive'; there are bill",
    ),
    ("producers = 2", "producers = 0", "line 31: events[1].producers: must be a whole number from 1 to 10000, not 0"),
    (
        "producers = 2",
        "producer = 2",
        "line 31: events[1].producer: is an unknown key; did you mean 'producers'?",
    ),
    ('every = "3s"', 'every = "0ms"', "line 34: events[1].every: must not be 0"),
    (
        "abort_percent = 5",
        "abort_percent = 101",
        "line 36: events[1].abort_percent: must be a whole number from 0 to 100",
    ),
    (
        'topics = ["orders"]\nat = "2m"',
        'topics = ["x"]\nat = "2m"',
        "line 44: events[2].topics: there is no topic 'x'; the",
    ),
    ('topics = ["orders"]\nat = "2m"', 'at = "2m"', "line 41: events[2].topics: is missing"),
    ('group = "archive"\nat = "3m"', 'group = "billing"\nat = "3m"', "there are billing-0, billing-1, archive"),
    ("times = 4", "times = 0", "line 54: events[3].times: must be a whole number from 1"),
    ('topic = "orders"', 'topic = "x"', "line 65: events[5].topic: there is no topic 'x'; there are orders"),
    ('group = "billing-1"\nat = "6m"', 'group = "archive"\nat = "6m"', "line 70: events[6].group: there is no group"),
    ("partition = 3", "partition = 50", "line 75: events[7].partition: must be a whole number from -1 to 49, not 50"),
    (
        'record = "share-group"',
        'record = "x"',
        "line 76: events[7].record: there is no record 'x'; there are consumer-gr",
    ),
]


@as_one_test
@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[new[:30] for _, new, _ in BAD])
def test_complaints_name_key_and_line(old: str, new: str, message: str) -> None:
    """Every message has the place of the error."""
    whole = GOOD + CLIENT_EVENTS
    assert old in whole

    with pytest.raises(ScenarioError, match=re.escape(message)):
        parse_scenario(whole.replace(old, new, 1))


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
    """Durations are read as they are written, and printed readably."""
    assert [parse_duration(text) for text in ("0ms", "250ms", "90s", "1h30m", "2d")] == [
        *(0, 250, 90_000),
        *(5_400_000, 172_800_000),
    ]
    assert [format_duration(ms) for ms in (5, 1_500, 90_000, 5_400_000)] == ["5 ms", "1.5 s", "1.5 min", "1.5 h"]


@as_one_test
@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "1 s", "1.5s", "1s?", "367d", "9" * 13 + "d"])
def test_what_is_no_duration(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r"is (no duration|longer than a year)"):
        parse_duration(text)


@pytest.mark.ci
def test_exactly_once() -> None:
    """In the example, transactions are committed, aborted and time out, zombies fail, and subscribed offsets stay."""
    text = next(path for path in SCENARIOS if path.stem == "exactly_once").read_text("utf-8")

    run = run_seed(2, parse_scenario(text).options_of(2))

    assert run.failure is None
    outcomes = {(operation.name, operation.outcome) for operation in run.operations}
    assert {("transaction", fate) for fate in ("committed", "aborted", "timed out")} <= outcomes
    assert ("TxnOffsetCommit", "INVALID_TXN_STATE") in outcomes
    assert ("OffsetDelete", "GROUP_SUBSCRIBED_TO_TOPIC") in outcomes
    assert ("DeleteGroups", "NONE") in outcomes
    (billing,) = run.groups
    committed = ClientOperation("transactional producer", "transaction", "committed")
    assert len(billing.values["offsets_late_ms"]) == run.operations[committed]
    assert max(billing.values["transaction_open_ms"]) > 30_000


@as_one_test
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_examples_are_scenarios(path: Path) -> None:
    """Each file in examples/scenarios is read without complaint."""
    options = parse_scenario(path.read_text("utf-8")).options_of(1)
    assert options.groups or options.faults
