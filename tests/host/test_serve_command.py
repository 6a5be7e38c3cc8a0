"""``groupcoord serve`` as a process: exit status and output."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from groupcoord import Config, ErrorCode
from groupcoord.conformance.sockets import FreePorts
from groupcoord.host.opening import open_log_store
from groupcoord.storage.stores import segments
from tests.broker.kafka_bytes import array, correlation_ids, frame, heartbeat, metadata, string
from tests.command import run_command
from tests.host.serving import COMMAND, DEADLINE_S, serve
from tests.tables import as_one_test


def refused(*arguments: str) -> tuple[int, str]:
    """Run a command line that must not start; return its exit status and stderr."""
    done = run_command("serve", *arguments)
    assert done.output == ""
    return done.status, done.error


def test_a_signal_stops_it() -> None:
    """Ctrl-C ends it with status 0 and no traceback, although a connection is open."""
    with serve() as server:
        assert re.fullmatch(r"groupcoord \S+ listening on 127\.0\.0\.1:\d+ \(in memory.*\)\n", server.line)
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as sock:
            sock.sendall(heartbeat(1))
            assert correlation_ids(sock.recv(1000)) == [1]
            assert server.stop(signal.SIGINT) == (0, "")
            assert sock.recv(1) == b""


def commit(offset: int, group_id: str = "group") -> bytes:
    partition = b"\0\0\0\0" + offset.to_bytes(8, "big") + string("")
    head = string(group_id) + b"\xff\xff\xff\xff" + string("") + b"\xff" * 8
    return frame(8, 2, 1, head + array([string("orders") + array([partition])]))


FETCH_OFFSETS = frame(9, 1, 2, string("group") + array([string("orders") + array([b"\0\0\0\0"])]))


def test_offsets_and_topics_survive(tmp_path: Path) -> None:
    """Acknowledged changes survive a kill."""
    with serve("--data-dir", str(tmp_path), "--topic", "orders:3") as server:
        assert f"(data in {tmp_path})" in server.line
        assert server.ask(commit(42)).endswith(b"\0\0")
        described = server.ask(metadata(5, "orders"))
        server.stop(signal.SIGKILL)
    with serve("--data-dir", str(tmp_path)) as server:
        fetched = server.ask(FETCH_OFFSETS)
        assert fetched.endswith((42).to_bytes(8, "big") + string("") + b"\0\0")
        again = server.ask(metadata(5, "orders"))
        assert len(again) == len(described)


def test_the_number_of_offsets_partitions_is_kept(tmp_path: Path) -> None:
    """Another number would lose the groups: it is remembered, and asking for a different one is refused."""
    with serve("--data-dir", str(tmp_path), "--topic", "orders:1", "--set", "offsets.topic.num.partitions=3") as server:
        server.ask(commit(7))
    with serve("--data-dir", str(tmp_path)) as server:
        assert server.ask(FETCH_OFFSETS).endswith((7).to_bytes(8, "big") + string("") + b"\0\0")
    status, errors = refused("--port", "0", "--data-dir", str(tmp_path), "--set", "offsets.topic.num.partitions=5")
    assert status == 1
    assert "offsets.topic.num.partitions is 3" in errors


@as_one_test
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--set", "group.max.sise=3"], "group.max.sise"),
        (["--set", "group.max.size=three"], "group.max.size"),
        (["--set", "group.max.size=0"], "group.max.size"),
        (["--set", "group.max.size"], "group.max.size"),
        (["--set", "=3"], "=3"),
        (["--set", "group.consumer.assignors=uniform,mine"], "'mine'"),
        (["--set", "group.consumer.assignors=no_module:Mine"], "No module named 'no_module'"),
        (["--topic", "orders"], "orders"),
        (["--topic", "orders:none"], "orders:none"),
        (["--topic", "orders:0"], "orders:0"),
        (["--topic", "bad name:3"], "bad name:3"),
        (["--topic", ":3"], ":3"),
        (["--host", "0.0.0.0"], "--advertised-host"),
        (
            ["--host", "0.0.0.0", "--advertised-host", "0.0.0.0"],
            "--advertised-host cannot use the nonroutable meta-address",
        ),
        (["--set", "advertised.listeners=PLAINTEXT://0.0.0.0:9092"], "advertised.listeners cannot use the nonroutable"),
        (["--set", "advertised.listeners=A://a:1,B://b:2"], "A is not among 'listeners'"),
        (["--log-level", "loud"], "loud"),
    ],
)
def test_usage_errors(arguments: list[str], named: str) -> None:
    """A wrong argument is one line on stderr that names it, and exit status 2."""
    done = run_command("serve", "--port", "0", *arguments)
    assert (done.status, done.output, done.error.count("\n")) == (2, "", 1)
    assert named in done.error


def test_a_port_of_its_own_for_faults() -> None:
    """A --control port that is also a listener's is refused: one line, exit status 2."""
    ports = FreePorts()
    status, errors = refused("--port", str(ports.first), "--nodes", "2", "--control", str(ports.first + 1))
    ports.give_back()
    assert (status, errors.count("\n")) == (2, 1)
    assert f"--control {ports.first + 1} is a port of node 2" in errors


def test_a_taken_port() -> None:
    """Another program on the port: one line, exit status 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, errors = refused("--port", str(port))
    assert status == 1
    assert errors.count("\n") == 1
    assert f"127.0.0.1:{port}" in errors
    assert "in use" in errors


@pytest.mark.ci
def test_an_address_that_is_not_ours() -> None:
    """An address of another machine, or no address at all: one line, exit status 1."""
    for host in ("192.0.2.1", "no.such.host.invalid"):
        status, errors = refused("--port", "0", "--host", host)
        assert (status, errors.count("\n")) == (1, 1)
        assert host in errors


def test_metrics_of_several_nodes() -> None:
    """They are refused, also by the deprecated name of the option."""
    for option in ("--metrics", "--metrics-port"):
        status, errors = refused("--port", "0", "--nodes", "2", option, "0")
        *deprecated, refusal = errors.splitlines()
        assert (status, len(deprecated)) == (2, option == "--metrics-port")
        assert refusal == "groupcoord serve: --metrics shows one node: leave it out, or --nodes"


def test_a_directory_in_use(tmp_path: Path) -> None:
    """A running server locks its directory: a second one fails with one line and status 1."""
    with serve("--data-dir", str(tmp_path)):
        status, errors = refused("--port", "0", "--data-dir", str(tmp_path))
    assert status == 1
    assert errors.count("\n") == 1
    assert str(tmp_path) in errors
    assert "using it" in errors


@pytest.mark.ci
def test_a_directory_that_can_not_be_used(tmp_path: Path) -> None:
    """A file, or a directory below one: one line that names it, exit status 1."""
    path = tmp_path / "file"
    path.write_text("")
    for directory in (path, path / "below"):
        status, errors = refused("--port", "0", "--data-dir", str(directory))
        assert (status, errors.count("\n")) == (1, 1)
        assert str(path) in errors


def test_a_directory_of_workers(tmp_path: Path) -> None:
    """One that ``--workers`` of an earlier version has written is refused with what to do, and nothing is changed."""
    (tmp_path / "workers" / "2" / "orders-1").mkdir(parents=True)
    status, errors = refused("--port", "0", "--data-dir", str(tmp_path))
    assert (status, errors.count("\n")) == (1, 1)
    assert f"{tmp_path}: it was written by --workers" in errors
    assert "start the version that wrote it once without --workers" in errors
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2", "orders-1", "workers"]


def test_a_broken_list_of_topics(tmp_path: Path) -> None:
    """One line that names the file, exit status 1."""
    (tmp_path / "topics.json").write_text("{")
    status, errors = refused("--port", "0", "--data-dir", str(tmp_path))
    assert (status, errors.count("\n")) == (1, 1)
    assert "topics.json" in errors


def break_log(data_dir: Path) -> tuple[Path, bytes]:
    """Flip a byte in the first batch of the only log that has records; return the file and what it held."""
    (segment,) = (path for path in data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size)
    before = segment.read_bytes()
    content = bytearray(before)
    content[len(content) // 6] ^= 0xFF
    segment.write_bytes(content)
    return segment, before


def write_commits(data_dir: Path, *arguments: str) -> None:
    with serve("--data-dir", str(data_dir), "--topic", "orders:1", *arguments) as server:
        for offset in range(3):
            assert server.ask(commit(offset)).endswith(b"\0\0")
        assert server.stop() == (0, "")


def test_a_broken_log(tmp_path: Path) -> None:
    """A log partition that is broken before its end is not served with groups missing: one line names the file, the
    position and the reason, all other groups are served, and once the file is repaired so are its own."""
    write_commits(tmp_path)
    segment, before = break_log(tmp_path)
    with serve("--data-dir", str(tmp_path)) as server:
        assert server.ask(commit(3)).endswith(ErrorCode.NOT_COORDINATOR.to_bytes(2, "big"))
        assert server.ask(commit(4, "other")).endswith(b"\0\0")
        segment.write_bytes(before)
        deadline_s = time.monotonic() + DEADLINE_S
        while not server.ask(commit(5)).endswith(b"\0\0"):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        status, errors = server.stop()
    failed, loaded = errors.splitlines()
    assert status == 0
    assert (
        f"ERROR groupcoord.host: log partition 47 can't be loaded, its groups are not served: {segment} is " in failed
    )
    assert "corrupt at position 0: its CRC" in failed
    assert "log partition 47 had failed and is loaded again" in loaded


@pytest.mark.ci
def test_nothing_but_broken_logs(tmp_path: Path) -> None:
    """If no log partition can be read the server exits with status 1 and the reason."""
    setting = ("--set", "offsets.topic.num.partitions=1")
    write_commits(tmp_path, *setting)
    segment, _ = break_log(tmp_path)
    words = [*COMMAND, "--port", "0", "--data-dir", str(tmp_path), *setting]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (1, "")
    reason, refusal = done.stderr.splitlines()
    assert f"{segment} is corrupt at position 0" in reason
    assert refusal == "groupcoord serve: none of 1 log partitions can be loaded"


@pytest.mark.ci
def test_message_max_bytes(tmp_path: Path) -> None:
    """A batch larger than message.max.bytes is not written, and its commit fails."""
    for limit, error_code in ((0, -1), (100, -1), (200, 0)):
        directory = tmp_path / str(limit)
        with serve(
            "--data-dir", str(directory), "--topic", "orders:1", "--set", f"message.max.bytes={limit}"
        ) as server:
            assert server.ask(commit(1)).endswith(error_code.to_bytes(2, "big", signed=True))


def test_settings_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(segments, "SegmentLogStore", lambda directory, **settings: given.update(settings))
    settings = {
        "offsets.topic.segment.bytes": 1001,
        "message.max.bytes": 1002,
        "log.flush.interval.messages": 1003,
        "log.flush.interval.ms": 1004,
        "log.cleaner.min.cleanable.ratio": 0.25,
        "log.cleaner.delete.retention.ms": 1005,
        "log.cleaner.min.compaction.lag.ms": 1006,
        "log.cleaner.dedupe.buffer.size": 1007,
    }
    open_log_store(tmp_path, Config.from_properties(settings))
    assert given == {
        "segment_bytes": 1001,
        "batch_bytes_max": 1002,
        "flush_interval_messages": 1003,
        "flush_interval_ms": 1004,
        "compaction": segments.CompactionSettings(0.25, 1005, 1006, 1007),
    }
