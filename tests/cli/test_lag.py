"""``groupcoord lag`` shows how far groups of a running cluster are behind, and writes nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from attrs import evolve

from groupcoord import cli
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.testing import ProducerRecord, ServerThread
from tests.analysis.pipeline.metrics_shown import shown

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="groupcoord")
def _groupcoord(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        output = capsys.readouterr()
        return int(caught.value.code or 0), output.out, output.err

    return run


def commit_for(server: ServerThread, group_id: str, offsets: dict[int, int]) -> None:
    committed = tuple(OffsetToCommit(partition, offset) for partition, offset in offsets.items())
    commit = OffsetCommit(group_id, (TopicToCommit("orders", committed),))
    server.run(lambda broker: broker.coordinator.call(commit))


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[ServerThread]:
    """A server with groups that have no members: in the middle of a topic, at its end, beyond it, and nowhere."""
    old = [ProducerRecord(name.encode(), timestamp_ms=1_700_000_000_000) for name in ("coffee", "tea", "water")]
    with ServerThread(topics={"orders": 2}) as server:
        server.produce("orders", [evolve(record, partition=0) for record in old])
        commit_for(server, "billing", {0: 1, 1: 0})
        commit_for(server, "audit", {0: 3})
        commit_for(server, "ahead", {0: 1_000})
        commit_for(server, "none", {0: -1})
        yield server


def cells(out: str) -> list[list[str]]:
    rows = [line.strip("│").split("│") for line in out.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]


def test_a_row_for_each_group(groupcoord: Run, server: ServerThread) -> None:
    """The worst first, each with what is wrong, with its lag in all partitions and the greatest age."""
    status, out, err = groupcoord("lag", "--bootstrap-server", server.bootstrap)
    rows = cells(out)

    assert (status, err) == (0, "")
    assert [[*row[:6], row[7]] for row in rows] == [
        [
            *("AHEAD", "ahead", "Empty", "0", "1", "0"),
            "Its offset of orders-0 is beyond the end of the log, so its consumer starts over by auto.offset.reset",
        ],
        ["NO OWNER", "billing", "Empty", "0", "2", "2", "Records of orders-0 wait, and no member has the partition"],
        ["NO COMMIT", "none", "Empty", "0", "1", "-", "Nothing of orders-0 is committed, though records are there"],
        ["OK", "audit", "Empty", "0", "1", "0", ""],
    ]
    assert rows[1][6].endswith(" h")
    some = groupcoord("lag", "--bootstrap-server", server.bootstrap, "--min-lag", "1")[1]
    assert [row[1] for row in cells(some)] == ["billing"]
    assert groupcoord("lag", "--bootstrap-server", server.bootstrap, "--min-lag", "9")[1] == (
        "no group is 9 records behind\n"
    )


def test_a_row_for_each_partition(groupcoord: Run, server: ServerThread) -> None:
    """Of the groups that are named, or of all: with offsets, and dashes for what is not known."""
    of_one = cells(groupcoord("lag", "--bootstrap-server", server.bootstrap, "--group", "billing")[1])
    of_all = cells(groupcoord("lag", "--bootstrap-server", server.bootstrap, "--partitions")[1])

    assert [[*row[:5], *row[6:]] for row in of_one] == [
        ["NO OWNER", "billing", "Empty", "orders-0", "2", "1", "3", ""],
        ["OK", "billing", "Empty", "orders-1", "0", "0", "0", ""],
    ]
    assert [row[:2] for row in of_all] == [
        *(["AHEAD", "ahead"], ["NO OWNER", "billing"], ["NO COMMIT", "none"], ["OK", "audit"], ["OK", "billing"]),
    ]
    assert of_all[2][4:8] == ["-", "-", "-", "3"]


def test_lines_for_programs(groupcoord: Run, server: ServerThread) -> None:
    _, out, _ = groupcoord("lag", "--bootstrap-server", server.bootstrap, "--json", "--min-lag", "1")
    (found,) = map(json.loads, out.splitlines())

    assert (found["lag"], found["status"], found["member_id"], found["members"]) == (2, "NO OWNER", None, 0)
    assert found["lag_ms"] >= 0


def test_groups_are_left_out(groupcoord: Run, server: ServerThread) -> None:
    """A group whose whole name matches an expression is not shown; an invalid expression is an error."""
    words = ("lag", "--bootstrap-server", server.bootstrap)
    out = groupcoord(*words, "--exclude-group", "a.*", "--exclude-group", "bill")[1]

    assert [row[1] for row in cells(out)] == ["billing", "none"]
    assert groupcoord(*words, "--exclude-group", "(")[::2] == (
        2,
        "groupcoord lag: ( is not a regular expression: missing ), unterminated subpattern at position 0\n",
    )


def test_a_group_that_there_is_not(groupcoord: Run, server: ServerThread) -> None:
    """One sentence and exit status 1; the groups that there are are shown all the same."""
    words = ("lag", "--bootstrap-server", server.bootstrap, "--group", "nope")

    assert groupcoord(*words) == (1, "", "groupcoord lag: there is no group nope\n")
    status, out, err = groupcoord(*words, "--group", "audit")
    assert (status, [row[1] for row in cells(out)]) == (1, ["audit"])
    assert err == "groupcoord lag: there is no group nope\n"


def test_metrics_are_those_of_analyze(server: ServerThread) -> None:
    """With --metrics the command looks until a signal comes, and shows lag and statuses to Prometheus."""
    words = ["lag", "--bootstrap-server", server.bootstrap, "--metrics", "0", "--interval", "0.2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "groupcoord", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    url = process.stderr.readline().removeprefix("metrics are at ").strip()
    status = ("groupcoord_consumer_partition_status", "ahead")
    seen: dict[tuple[str, str], float] = {}
    while status not in seen:
        assert process.poll() is None
        seen = shown(url)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)

    assert (process.returncode, output, errors) == (0, "", "")
    assert [seen[status[0], name] for name in ("ahead", "none", "audit")] == [8, 10, 1]
    assert seen["burrow_kafka_consumer_status", "billing"] == 3
    assert seen["kafka_consumergroup_group_sum_lag", "billing"] == 2
    assert seen["groupcoord_group_members", "billing"] == 0


def test_what_is_wrong_is_told_in_a_line(groupcoord: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing cluster is a usage error; an unreachable one is a failure."""
    monkeypatch.setattr("groupcoord.analysis.live.cluster.FIRST_ANSWER_MS", 1)
    assert groupcoord("lag") == (
        2,
        "",
        "groupcoord lag: name a cluster, by --bootstrap-server or --command-config\n",
    )
    status, out, err = groupcoord("lag", "--bootstrap-server", "127.0.0.1:1")
    assert (status, out, len(err.splitlines())) == (1, "", 1)
