"""Tables and the page of a cluster that is polled, while real clients join, commit and leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from groupcoord.analysis.decode.parquet import schema_with_times
from groupcoord.analysis.decode.schema import Columns, arrow_schema
from groupcoord.analysis.fold.history.causes import EXPIRY_OR_LEAVE, JOIN
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.poll.polling import APPENDED, POLLS, PROBLEMS, REPLACED, Polled, Polling
from groupcoord.cli.interrupts import USAGE_ERROR
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.testing import ServerThread

from ...command import analyze
from ...docs.markdown import DOCS

GROUP = "billing"
ENDS_WITHIN_S = 20.0
SQL_TYPES = {"int64": "bigint", "bool": "boolean"}


@pytest.fixture
def server() -> Iterator[ServerThread]:
    """A server with a topic of 40 records."""
    with ServerThread(topics={"orders": 4}) as server:
        for partition in range(4):
            server.produce("orders", [b"order"] * 10, partition=partition)
        yield server


class Clients:
    """Consumers of one group."""

    def __init__(self, server: ServerThread, protocol: str) -> None:
        self._settings = {
            "bootstrap.servers": server.bootstrap,
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._settings |= {"heartbeat.interval.ms": 200} if protocol == "classic" else {}
        self._clients: list[Consumer] = []

    def join(self) -> None:
        """One more joins; the partitions are shared."""
        client = Consumer({**self._settings, "client.id": f"worker-{len(self._clients)}"})
        client.subscribe(["orders"])
        self._clients.append(client)
        self._settle()

    def commit(self) -> None:
        """The first one reads what it has been assigned, some of it, and commits."""
        client = self._clients[0]
        message = client.poll(ENDS_WITHIN_S)
        assert message is not None
        client.commit(message=message, asynchronous=False)

    def leave(self) -> None:
        self._clients.pop().close()
        self._settle()

    def close(self) -> None:
        """All leave."""
        while self._clients:
            self._clients.pop().close()

    def _settle(self) -> None:
        deadline_s = time.monotonic() + ENDS_WITHIN_S
        while {len(client.assignment()) for client in self._clients} != {4 // len(self._clients)}:
            assert time.monotonic() < deadline_s
            for client in self._clients:
                message = client.poll(0.05)
                if message is not None and not message.error():
                    client.seek(TopicPartition(message.topic(), message.partition(), message.offset()))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_polls_show_what_clients_did(server: ServerThread, tmp_path: Path, protocol: str) -> None:
    """A member joins, another one, which leaves again: each poll shows it, with states, members, offsets and lag."""
    clients = Clients(server, protocol)

    def both_commit() -> None:
        clients.join()
        clients.commit()

    deeds = [clients.join, both_commit, clients.leave]
    told: list[Polled] = []

    def is_stopped() -> bool:
        if not deeds:
            return True
        deeds.pop(0)()
        server.wait_until_stable(GROUP)
        return False

    polling = Polling(ClusterAddress(server.bootstrap), tmp_path / "out")
    polling.run(is_stopped, told.append)
    clients.close()
    tables = {name: pq.read_table(tmp_path / "out" / "tables" / name).to_pylist() for name in (*REPLACED, *APPENDED)}
    rebalances = sorted(tables["rebalances"], key=lambda row: row["polled_ms"])
    (group,), (member,) = tables["groups"], tables["members"]
    lag, *others = sorted(tables["lag"], key=lambda row: row["committed_offset"] is None)

    assert [(row["cause"], len(row["joined"]), len(row["left"]), row["member_count"]) for row in rebalances] == [
        *((JOIN, 1, 0, 1), (JOIN, 1, 0, 2), (EXPIRY_OR_LEAVE, 0, 1, 1)),
    ]
    assert all(row["started_after_ms"] < row["ended_ms"] == row["polled_ms"] for row in rebalances)
    assert (group["type"], group["state"], group["member_count"]) == (protocol.capitalize(), "Stable", 1)
    assert [(one["topic"], one["partitions"]) for one in member["assignment"]] == [("orders", [0, 1, 2, 3])]
    assert (member["client_id"], member["subscription"]["topics"]) == ("worker-0", ["orders"])
    assert (lag["end_offset"], lag["lag"], lag["is_lost"]) == (10, 10 - lag["committed_offset"], False)
    assert [(row["lag"], row["status"], row["client_id"]) for row in others] == [(None, "NO COMMIT", "worker-0")] * 3
    assert bool(tables["epochs"]) == (protocol == "consumer")
    if protocol == "consumer":
        assert rebalances[0]["from_generation"] == 0
        assert rebalances[-1]["to_generation"] == group["generation_or_epoch"]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert summary["polls"]["count"] == len(told) == 4
    assert summary["overview"]["rebalances"] == 3
    assert summary["tables"] == {name: len(table) for name, table in tables.items()}
    assert "4 polls of the groups" in (tmp_path / "out" / "report.html").read_text("utf-8")


@pytest.mark.parametrize("schema", [POLLS, PROBLEMS], ids=["polls", "problems"])
def test_the_page_tells_what_polls_add(schema: Columns) -> None:
    lines = [f"| {one.name} | {SQL_TYPES.get(str(one.type), one.type)} | {one.comment} |" for one in schema]
    assert "\n".join(["| column | type | |", "|---|---|---|", *lines, ""]) in (DOCS / "live.md").read_text("utf-8")


def test_excluded_groups_are_not_polled(server: ServerThread, tmp_path: Path) -> None:
    """Nothing is requested about groups whose whole name matches, and no table has them; the page
    has the expression.
    """
    offsets = (TopicToCommit("orders", (OffsetToCommit(0, 3),)),)
    server.run(lambda broker: broker.coordinator.call(OffsetCommit(GROUP, offsets)))
    server.run(lambda broker: broker.coordinator.call(OffsetCommit("console-consumer-1", offsets)))
    words = ("--bootstrap-server", server.bootstrap, "--poll", "--exclude-group", "console-consumer-.*")
    done = analyze(*words, "--out", tmp_path / "out")

    assert (done.status, done.error) == (0, "")
    assert "poll 1: 1 groups, 0 members, 1 offsets" in done.output
    for name in ("groups", "current_offsets", "lag"):
        rows = pq.read_table(tmp_path / "out" / "tables" / name).to_pylist()
        assert {row["group_id"] for row in rows} == {GROUP}
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Groups whose names match <code>console-consumer-.*</code> are excluded." in page


def test_the_command_asks_once(server: ServerThread, tmp_path: Path) -> None:
    """Without --follow there is one poll; what belongs to logs is refused, and so is a directory that isn't empty."""
    words = ("--bootstrap-server", server.bootstrap, "--poll", "--out", tmp_path / "out")
    done = analyze(*words)

    assert (done.status, done.error) == (0, "")
    assert "poll 1: 0 groups, 0 members, 0 offsets" in done.output
    assert f"report: {tmp_path}/out/report.html" in done.output.replace("\n", "")
    for name, columns in (REPLACED | APPENDED).items():
        written = pq.read_schema(next((tmp_path / "out" / "tables" / name).glob("*.parquet")))
        assert written.names == schema_with_times(arrow_schema(columns)).names
    assert analyze(*words).error == f"groupcoord analyze: {tmp_path}/out is not empty\n"
    refused = analyze(*words, "--verify")
    assert (refused.status, refused.error) == (
        USAGE_ERROR,
        "groupcoord analyze: --poll reads no log, and does not support --topic, --partition, --end-offsets or "
        "--verify\n",
    )
    assert analyze(tmp_path, "--poll", "--out", tmp_path / "other").error == (
        "groupcoord analyze: --poll needs a cluster: give --bootstrap-server or --command-config, and no paths\n"
    )


def test_polling_ends_in_good_order(server: ServerThread, tmp_path: Path) -> None:
    """With --follow it runs until a signal, with exit status 0; Java is not started."""
    out = tmp_path / "out"
    words = ["--bootstrap-server", server.bootstrap, "--poll", "--follow", "--interval", "0.1", "--out", str(out)]
    environment = {**os.environ, "JAVA_HOME": "/nowhere"}
    process = subprocess.Popen(
        [sys.executable, "-m", "groupcoord", "analyze", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    while "poll 2:" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=ENDS_WITHIN_S)

    assert (process.returncode, errors) == (0, "")
    assert json.loads((out / "summary.json").read_text("utf-8"))["polls"]["count"] >= 2
