"""``groupcoord dump``: what it prints of sound and of damaged logs, its filters, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from groupcoord.core.log.records import (
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    Record,
    TransactionMarker,
)
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record
from groupcoord.records.describe import describe_record
from tests.command import dump
from tests.records.broker_segment import segment_bytes, segment_records
from tests.tables import as_one_test

SUBSCRIPTION = bytes.fromhex("0001 00000001 0002 7431 ffffffff 00000001 0002 7431 00000001 00000003")
ASSIGNMENT = bytes.fromhex("0000 00000001 0002 7431 00000002 00000000 00000001 00000002 abcd")
TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
MEMBER = MemberRecord("m1", None, "c", "/127.0.0.1", 60_000, 10_000, SUBSCRIPTION, ASSIGNMENT)
COMMIT = OffsetCommitRecord("g1", "t1", 3, 100, 7, "m", 1_000, topic_id=TOPIC_ID)
GROUP = GroupMetadataRecord("g1", "consumer", 5, "range", "m1", 2_000, (MEMBER,))


def batch(offset: int, *records: Record, timestamp_ms: int = 1_000, producer_id: int = -1) -> bytes:
    """Return a batch of these records; one with a producer is of a transaction, a marker alone is a control batch."""
    return encode_batch(
        offset,
        [(*encode_record(record), timestamp_ms) for record in records],
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 3,
        is_transactional=producer_id >= 0,
        is_control=isinstance(records[0], TransactionMarker),
    )


@pytest.fixture
def data_directory(tmp_path: Path) -> Path:
    """Two log partitions: offsets, a group, a transaction; the second partition has two segments."""
    first = tmp_path / "__consumer_offsets-2"
    second = tmp_path / "__consumer_offsets-10"
    for folder in (first, second, tmp_path / "orders-0"):
        folder.mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").write_bytes(b"not ours")
    (first / "00000000000000000000.log").write_bytes(batch(0, COMMIT) + batch(1, GROUP, timestamp_ms=2_000))
    (second / "00000000000000000000.log").write_bytes(
        batch(0, OffsetCommitRecord("g2", "t1", 0, 1), producer_id=77)
        + batch(1, TransactionMarker(77, 3, True, 9), producer_id=77)
    )
    (second / "00000000000000000002.log").write_bytes(
        batch(2, OffsetTombstone("g2", "t1", 0), GroupTombstone("g2"), timestamp_ms=3_000)
    )
    return tmp_path


def printed(*words: str | Path) -> list[dict[str, Any]]:
    done = dump(*words)
    assert done.status == 0, done.error
    assert done.error == ""
    return [json.loads(line) for line in done.output.splitlines()]


def places(lines: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(line["partition"], line["offset"]) for line in lines]


def test_a_data_directory(data_directory: Path) -> None:
    """Every record of every log partition, in order of partitions and offsets; other topics are left alone."""
    assert places(printed(data_directory)) == [(2, 0), (2, 1), (10, 0), (10, 1), (10, 2), (10, 3)]


def test_what_a_line_says(data_directory: Path) -> None:
    """Place, time, producer and flags, and key and value in the shape of Kafka's formatter."""
    commit, group, transactional, marker, tombstone, _ = printed(data_directory)

    assert commit == {
        "partition": 2,
        "offset": 0,
        "timestamp": 1_000,
        "producerId": -1,
        "producerEpoch": -1,
        "isTransactional": False,
        "isControl": False,
        "recordType": "OFFSET_COMMIT",
        "key": {"type": 1, "data": {"group": "g1", "topic": "t1", "partition": 3}},
        "value": {
            "version": 4,
            "data": {
                "offset": 100,
                "leaderEpoch": 7,
                "metadata": "m",
                "commitTimestamp": 1_000,
                "topicId": "AQIDBAUGBwgJCgsMDQ4PEA",
            },
        },
    }
    (member,) = group["value"]["data"]["members"]
    assert member["subscription"] == {
        "version": 1,
        "data": {"topics": ["t1"], "userData": None, "ownedPartitions": [{"topic": "t1", "partitions": [3]}]},
    }
    assert member["assignment"] == {
        "version": 0,
        "data": {"assignedPartitions": [{"topic": "t1", "partitions": [0, 1]}], "userData": "abcd"},
    }
    assert (transactional["producerId"], transactional["producerEpoch"], transactional["isTransactional"]) == (
        77,
        3,
        True,
    )
    assert (marker["isControl"], marker["recordType"]) == (True, "COMMIT")
    assert marker["key"] == {"version": 0, "data": {"type": 1}}
    assert marker["value"] == {"version": 0, "data": {"coordinatorEpoch": 9}}
    assert tombstone["value"] is None


def test_raw_leaves_bytes_as_kafka_prints_them(data_directory: Path) -> None:
    (group,) = printed(data_directory, "--type", "2", "--partition", "2", "--raw")

    assert group["value"]["data"]["members"][0]["subscription"] == "AAEAAAABAAJ0Mf////8AAAABAAJ0MQAAAAEAAAAD"


@as_one_test
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--group", "g1"], [(2, 0), (2, 1)]),
        (["--group", "g1", "--group", "g2"], [(2, 0), (2, 1), (10, 0), (10, 2), (10, 3)]),
        (["--type", "offset-commit"], [(2, 0), (10, 0), (10, 2)]),
        (["--type", "GROUP_METADATA"], [(2, 1), (10, 3)]),
        (["--type", "1", "--type", "2"], [(2, 0), (2, 1), (10, 0), (10, 2), (10, 3)]),
        (["--type", "control"], [(10, 1)]),
        (["--type", "unknown"], []),
        (["--partition", "10"], [(10, 0), (10, 1), (10, 2), (10, 3)]),
        (["--since", "2000"], [(2, 1), (10, 2), (10, 3)]),
        (["--since", "1970-01-01T00:00:02Z", "--until", "1970-01-01T00:00:03"], [(2, 1)]),
        (["--since", "1970-01-01T01:00:03+01:00"], [(10, 2), (10, 3)]),
        (["--until", "1970-01-01"], []),
        (["--group", "g2", "--type", "1", "--until", "2000"], [(10, 0)]),
    ],
)
def test_filters(data_directory: Path, words: list[str], expected: list[tuple[int, int]]) -> None:
    """Each filter narrows down, several of one kind widen it, and the end of the time is not in it."""
    assert places(printed(data_directory, *words)) == expected


def test_a_group_of_which_there_is_nothing(data_directory: Path) -> None:
    """One sentence names it, with exit status 1 in every format; other filters may be the reason."""
    for more, told in (
        ((), "no record of group other"),
        (("--history",), "no record of group other"),
        (("--since", "3000", "--group", "g1"), "no record of group g1 or other with these filters"),
    ):
        done = dump(data_directory, "--group", "other", *more)
        assert (done.status, done.output, done.error) == (1, "", f"groupcoord dump: {told}\n")
    of_table = dump(data_directory, "--group", "other", "--format", "table")
    assert (of_table.status, of_table.error) == (1, "groupcoord dump: no record of group other\n")


def test_files_and_folders(data_directory: Path) -> None:
    folder = data_directory / "__consumer_offsets-10"
    alone = data_directory / "copy.log"
    alone.write_bytes((folder / "00000000000000000002.log").read_bytes())

    assert places(printed(folder)) == [(10, 0), (10, 1), (10, 2), (10, 3)]
    assert places(printed(folder / "00000000000000000002.log")) == [(10, 2), (10, 3)]
    assert [line["partition"] for line in printed(alone)] == [None, None]


def test_damage_is_skipped_and_reported(data_directory: Path) -> None:
    """File, position and what was skipped go to stderr, everything else is printed, and the exit status is 1."""
    path = data_directory / "__consumer_offsets-2" / "00000000000000000000.log"
    data = path.read_bytes()
    size = len(batch(0, COMMIT))
    path.write_bytes(data[: size - 3] + b"?" + data[size - 2 :] + b"torn")
    done = dump(data_directory)

    assert done.status == 1
    assert places([json.loads(line) for line in done.output.splitlines()]) == [
        (2, 1),
        (10, 0),
        (10, 1),
        (10, 2),
        (10, 3),
    ]
    first, second = done.error.splitlines()
    assert first.startswith(f"groupcoord dump: {path}: its CRC is 0x")
    assert first.endswith(f"; skipped {size} bytes, positions 0 to {size - 1}, offsets before 1")
    assert second.endswith(
        f"; skipped 4 bytes, positions {len(data)} to {len(data) + 3}, to the end, offsets from 2 on"
    )


def test_offsets_that_go_back_are_reported(tmp_path: Path) -> None:
    """The CRC doesn't cover a batch's offset: one that goes back is printed and reported."""
    path = tmp_path / "0.log"
    path.write_bytes(batch(5, COMMIT) + batch(4, COMMIT))
    done = dump(path)

    assert done.status == 1
    assert [json.loads(line)["offset"] for line in done.output.splitlines()] == [5, 4]
    assert "offsets go back" in done.error
    assert "4 after 5" in done.error


def test_an_interrupted_compaction_is_named(data_directory: Path) -> None:
    """Files that may hold records and are not read get a line; given by name they are read."""
    swap = data_directory / "__consumer_offsets-2" / "00000000000000000000.log.swap"
    swap.write_bytes(batch(0, COMMIT))
    done = dump(data_directory)

    assert done.status == 0
    assert done.error.splitlines() == [
        f"groupcoord dump: {swap}: not read; compaction was interrupted when it wrote this"
    ]
    assert places(printed(swap)) == [(2, 0)]


def test_an_empty_segment_is_fine(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()

    assert printed(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing"], "No such file or directory"),
        (["empty"], "neither segment files (*.log) nor folders __consumer_offsets-N"),
        (["__consumer_offsets-9"], "no segment files"),
        (["__consumer_offsets-9/00000000000000000000.index"], "is no segment file"),
        (["__consumer_offsets-2", "--type", "offsets"], "'offsets' is no record type; there are legacy-offset-commit,"),
        (["__consumer_offsets-2", "--type", "9"], "no record type"),
        (["__consumer_offsets-2", "--since", "yesterday"], "--since 'yesterday' is no time"),
        (["__consumer_offsets-2", "--partition", "5"], "none of the paths"),
    ],
)
def test_what_can_not_be_done(data_directory: Path, words: list[str], message: str) -> None:
    """One line on stderr, nothing printed, exit status 2."""
    (data_directory / "empty").mkdir()
    (data_directory / "__consumer_offsets-9").mkdir()
    (data_directory / "__consumer_offsets-9" / "00000000000000000000.index").touch()
    done = dump(data_directory / words[0], *words[1:])

    assert (done.status, done.output) == (2, "")
    assert done.error.startswith("groupcoord dump: ")
    assert message in done.error
    assert done.error.count("\n") == 1


def test_of_several_directories_some_may_have_nothing_of_the_topic(data_directory: Path) -> None:
    """For instance those of workers with one coordinator; at least one must have the topic."""
    empty, also = data_directory / "empty", data_directory / "also"
    for folder in (empty, also):
        folder.mkdir()
    assert printed(empty, data_directory, also) == printed(data_directory)
    done = dump(empty, also)
    assert (done.status, done.output) == (2, "")
    assert f"{empty} holds neither segment files" in done.error


def test_a_file_that_can_not_be_read(data_directory: Path) -> None:
    """A missing file is reported, the rest printed, with exit status 1."""
    (data_directory / "__consumer_offsets-2" / "00000000000000000009.log").mkdir()
    done = dump(data_directory)

    assert done.status == 1
    assert "00000000000000000009.log: Is a directory" in done.error
    assert len(done.output.splitlines()) == 6


@pytest.mark.parametrize("words", [(), ("--group", "g1")])
def test_a_broken_pipe_is_quiet(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A reader that closes the pipe early causes no error, also if records of one group are selected."""
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(batch(offset, *[COMMIT] * 50) for offset in range(0, 5_000, 50)))
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = subprocess.Popen(
        [sys.executable, "-c", "from groupcoord.cli import main; main()", "dump", str(path), *words],
        stdout=write_end,
        stderr=subprocess.PIPE,
    )
    os.close(write_end)

    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_the_table(data_directory: Path) -> None:
    """The table has the same content in short form, and escapes terminal commands."""
    path = data_directory / "__consumer_offsets-2" / "00000000000000000009.log"
    path.write_bytes(batch(9, OffsetCommitRecord("evil\x1b[2J", "t", 0, 1, metadata="\x9bx")))
    done = dump(data_directory, "--format", "table")

    assert (done.status, done.error) == (0, "")
    assert "\x1b" not in done.output
    assert "\x9b" not in done.output
    text = " ".join(done.output.split())
    for expected in (
        "P Offset Time (UTC) Type Group Content",
        "2 0 1970-01-01 00:00:01.000 offset-commit g1 t1-3 at 100, leader epoch 7, metadata 'm'",
        "group-metadata g1 consumer, generation 5, range, 1 member m1: leads, subscription t1 owns t1[3]; "
        "assignment t1[0-1] userData=abcd",
        "t1-0 at 1 [producer 77, epoch 3]",
        "commit coordinatorEpoch=9",
        "t1-0 deleted",
        "evil\\x1b[2J",
    ):
        assert expected in text


def test_a_segment_with_consumer_groups(tmp_path: Path) -> None:
    """Every record of a segment that real brokers wrote is printed by name, nothing of it in hexadecimal."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment_bytes())
    lines = printed(path, "--raw")

    assert [line["key"] | {"value": line["value"]} for line in lines] == [
        described["key"] | {"value": described["value"]}
        for described in (describe_record(key, value, raw=True) for _, key, value in segment_records())
    ]
    assert Counter(line["recordType"] for line in lines) == {
        "OFFSET_COMMIT": 6,
        "GROUP_METADATA": 6,
        "CONSUMER_GROUP_METADATA": 20,
        "CONSUMER_GROUP_PARTITION_METADATA": 5,
        "CONSUMER_GROUP_MEMBER_METADATA": 19,
        "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA": 16,
        "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER": 28,
        "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT": 33,
        "CONSUMER_GROUP_REGULAR_EXPRESSION": 5,
    }
    assert '"hex"' not in json.dumps(lines)


def test_consumer_groups_in_the_table(tmp_path: Path) -> None:
    """Each record type of consumer groups, in a real broker's segment, has a short text."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment_bytes())
    done = dump(path, "--format", "table", environment={"COLUMNS": "400"})

    assert (done.status, done.error) == (0, "")
    text = " ".join(done.output.split())
    for expected in (
        "modern epoch 3, metadata hash -8391039943408806287 ",
        "modern orders with 3 partitions, payments with 2 partitions ",
        "modern /22BEwYMTimAOQI/VuOIkw (static-2) client two at /127.0.0.1, subscription orders, "
        "rebalance timeout 300000 ms ",
        "regex JNCzF9ZzSS6+iS4GDmStcw client three at /127.0.0.1, subscription matching (^pay.*), assignor range, ",
        "subscription orders, rebalance timeout 300000 ms; classic protocol, session timeout 20000 ms, range orders ",
        "modern epoch 3, made 2026-11-22 10:07:51.189 ",
        "modern 0292oK1+TuuCcN/YI9fzSQ target 8QGGtA00QRK95Xzkk4ABDg[0-1] 9ls27WpwTWWOettTMfD_kQ[0-2] ",
        "modern /22BEwYMTimAOQI/VuOIkw epoch 2 after 0, UNRELEASED_PARTITIONS, has nothing ",
        "epoch 1 after 1, UNREVOKED_PARTITIONS, has 9ls27WpwTWWOettTMfD_kQ[0] 8QGGtA00QRK95Xzkk4ABDg[0-1], "
        "gives up 9ls27WpwTWWOettTMfD_kQ[1-2] ",
        "regex (^pay.*) matches payments in metadata version 67, asked 2026-11-22 10:07:02.707 ",
        "regex (^pay.*) deleted ",
        "modern +n1I36z0Tsi2EHSPb3L9pA deleted ",
    ):
        assert expected in text


def test_many_rows_make_one_table(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch(0, *[COMMIT] * 450))
    lines = dump(path, "--format", "table").output.splitlines()

    assert len([line for line in lines if "Offset" in line]) == 1
    assert len([line for line in lines if "t1-3 at 100" in line]) == 450
    assert len({line.index("offset-commit") for line in lines if "offset-commit" in line}) == 1
