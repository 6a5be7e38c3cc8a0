"""The three targets: sockets, launched processes, and virtual time in process."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupcoord.clock import ManualClock
from groupcoord.conformance import AddressTarget, InProcessTarget, LaunchTarget, TargetError
from groupcoord.conformance.in_process import InProcessServer
from groupcoord.conformance.sockets import FreePorts
from groupcoord.conformance.targets import ConnectionClosedError
from tests.tables import as_one_test

# A server that answers every connection with how often it was started on its folder, its settings and its process id.
COUNTER = """
import os, pathlib, socket, sys
port, folder, *sets = sys.argv[1:]
file = pathlib.Path(folder)
file.mkdir(exist_ok=True)
file = file / "starts"
starts = int(file.read_text()) + 1 if file.exists() else 1
file.write_text(str(starts))
listener = socket.create_server(("127.0.0.1", int(port)))
while True:
    connection, _ = listener.accept()
    try:
        connection.sendall(f"{starts} {' '.join(sets)} {os.getpid()}".encode())
    except OSError:
        pass
    connection.close()
"""


@pytest.fixture(name="listener")
def _listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_bytes_pass_over_a_socket(listener: socket.socket) -> None:
    """A stream sends and receives, respects its timeout, and reports a closed connection."""
    port = listener.getsockname()[1]
    server = AddressTarget("127.0.0.1", port).start({})
    listener.accept()[0].close()  # the connection that looked whether somebody listens
    stream = server.connect()
    peer, _ = listener.accept()
    stream.send(b"question")
    assert peer.recv(100) == b"question"
    assert stream.receive(1) == b""
    peer.sendall(b"answer")
    assert stream.receive(5000) == b"answer"
    peer.close()
    with pytest.raises(ConnectionClosedError, match="closed the connection"):
        stream.receive(5000)
    stream.close()


def test_nobody_at_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionClosedError, match=f"can't connect to 127.0.0.1:{port}"):
            AddressTarget("127.0.0.1", port).start({})


def test_addresses_from_text() -> None:
    """HOST:PORT and [IPv6]:PORT are addresses."""
    for text, host in (("localhost:9092", "localhost"), ("[::1]:9092", "::1")):
        target = AddressTarget.from_text(text)
        assert (target._server._host, target._server._port) == (host, 9092)


def test_a_server_at_an_address_is_not_restarted(listener: socket.socket) -> None:
    with pytest.raises(TargetError, match="cannot be restarted"):
        AddressTarget("127.0.0.1", listener.getsockname()[1]).start({}).restart()


def test_a_launched_server_restarts_on_its_data_and_goes(tmp_path: Path) -> None:
    """The command gets port, folder and settings; a restart kills it and keeps its folder; stop removes both."""
    program = tmp_path / "counter.py"
    program.write_text(COUNTER)
    target = LaunchTarget(f"{sys.executable} {program} {{port}} {{dir}} {{sets}}")
    server = target.start({"a.b": 1, "c": "two words"})

    def hello() -> tuple[str, str, int]:
        stream = server.connect()
        starts, rest = stream.receive(5000).decode().split(" ", 1)
        stream.close()
        sets, process_id = rest.rsplit(" ", 1)
        return starts, sets, int(process_id)

    starts, sets, first_process = hello()
    assert (starts, sets) == ("1", "--set a.b=1 --set c=two words")
    server.restart()
    starts, _, second_process = hello()
    assert (starts, first_process != second_process) == ("2", True)
    folder = server._folder
    server.stop()
    assert not folder.exists()
    for process in (first_process, second_process):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_table_spells_settings_as_the_server_does(tmp_path: Path) -> None:
    """Words come from the table, at the end where there is no {sets}; what it has no words for isn't set."""
    table = tmp_path / "settings.toml"
    table.write_text('"group.max.size" = "--group-max {value}"\n"auto.create.topics.enable" = ""\n')
    target = LaunchTarget.load("my-broker --port {port}", table)
    settings = {"group.max.size": 3, "auto.create.topics.enable": "false", "group.min.session.timeout.ms": 100}

    assert target._setting_arguments(settings) == ["--group-max", "3"]
    assert [target.sets(key) for key in settings] == [True, True, False]
    with_others = LaunchTarget("my-broker {port}", words_for={"*": "-o {key}={value}", "a.b": "-a '{value} s'"})
    assert with_others._setting_arguments({"a.b": 1, "c": "x y"}) == ["-a", "1 s", "-o", "c=x y"]
    assert with_others.sets("anything")


@as_one_test
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"group.max.size" = 3', "'group.max.size' has to be a text"),
        ("group.max.size = '3'", "'group' has to be a text"),
        ('"group.max.size" = "{valu}"', "unknown placeholder {valu}"),
        ("group.max.size", "settings.toml can't be read"),
    ],
)
def test_a_wrong_table_is_told(tmp_path: Path, text: str, message: str) -> None:
    """An invalid value for a setting is refused, with the reason."""
    table = tmp_path / "settings.toml"
    table.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        LaunchTarget.load("my-broker --port {port}", table)


def test_a_command_that_ends_is_reported_with_its_last_words() -> None:
    """When the server ends instead of listening, the error has its status and what it printed."""
    target = LaunchTarget(f"{sys.executable} -c \"raise SystemExit('no disk')\" {{port}} {{sets}}")
    with pytest.raises(TargetError, match=r"ended with status 1; its last output:\nno disk"):
        target.start({})


def test_a_command_that_is_not_there_is_reported() -> None:
    with pytest.raises(TargetError, match="can't start /nowhere/broker"):
        LaunchTarget("/nowhere/broker {port} {sets}").start({})


class FakeBroker:
    """Broker whose timers are a list of times; each tick is recorded and answered."""

    turns = SimpleNamespace(waiting=0)

    def __init__(self, clock: ManualClock, deadlines: list[int]) -> None:
        self.clock, self.deadlines = clock, deadlines
        self.output = b""
        self.closing: str | None = None
        self.received = b""

    def connect(self, client_host: str) -> FakeBroker:
        return self

    def next_deadline_ms(self) -> int | None:
        return self.deadlines[0] if self.deadlines else None

    def tick(self) -> None:
        while self.deadlines and self.deadlines[0] <= self.clock.now_ms():
            self.deadlines.pop(0)
            self.output += b"%d " % self.clock.now_ms()

    def receive_data(self, data: bytes) -> None:
        if data == b"crash":
            raise ZeroDivisionError("oops")
        self.received += data

    def take_output(self) -> bytes:
        output, self.output = self.output, b""
        return output

    def close(self) -> None:
        self.closing = "the client went away"


def server_with(*deadlines: int, kind: type[FakeBroker] = FakeBroker) -> tuple[InProcessServer, Any, list[Any]]:
    clock = ManualClock(1000)
    made: list[Any] = []

    def make() -> dict[int, Any]:
        made.append(kind(clock, list(deadlines)))
        return {1: made[-1]}

    return InProcessServer(make, clock), clock, made


def test_timers_fire_at_their_exact_time_while_sleeping() -> None:
    """Sleeping ticks at each deadline on the way, and ends at its end."""
    server, clock, _ = server_with(1100, 1100, 1250, 1301)
    stream = server.connect()
    server.sleep(300)
    assert clock.now_ms() == 1300
    assert stream.receive(0) == b"1100 1100 1250 "


def test_waiting_for_an_answer_ends_when_it_comes() -> None:
    server, clock, _ = server_with(1100, 1250)
    stream = server.connect()
    assert (stream.receive(500), clock.now_ms()) == (b"1100 ", 1100)
    assert (stream.receive(100), clock.now_ms()) == (b"", 1200)
    assert (stream.receive(100), clock.now_ms()) == (b"1250 ", 1250)


def test_a_deadline_that_never_passes_is_an_error() -> None:
    """A broker whose tick() keeps its deadline can't stop the clock."""

    class Stuck(FakeBroker):
        def tick(self) -> None:
            pass

    server, _, _ = server_with(1100, kind=Stuck)
    with pytest.raises(TargetError, match="stays at 1100"):
        server.sleep(200)


def test_a_broker_that_raises_is_reported() -> None:
    """An exception of the broker becomes a TargetError with the step and the cause."""
    server, _, _ = server_with()
    with pytest.raises(TargetError, match=r"raised ZeroDivisionError: oops\n(?s:.*)in receive_data"):
        server.connect().send(b"crash")


def test_a_restart_makes_a_new_broker_and_drops_connections() -> None:
    """After a restart old streams are dead, and the old broker hears nothing of it."""
    server, _, made = server_with()
    stream = server.connect()
    server.restart()
    with pytest.raises(ConnectionClosedError):
        stream.receive(0)
    stream.close()
    assert (len(made), made[0].closing) == (2, None)


def test_the_broker_hears_of_a_closed_connection() -> None:
    """Closing a stream notifies the broker, once; a connection that the broker closes is reported."""
    server, _, made = server_with()
    stream = server.connect()
    stream.close()
    stream.close()
    assert made[0].closing == "the client went away"
    other = server.connect()
    with pytest.raises(ConnectionClosedError, match="the client went away"):
        other.receive(0)


def test_bad_settings_do_not_start() -> None:
    with pytest.raises(TargetError, match="must be at least 1"):
        InProcessTarget().start({"group.max.size": 0})


def test_a_server_that_dies_at_its_start_is_tried_again_elsewhere(tmp_path: Path) -> None:
    """Its port may have been taken: it gets others, three times in all."""
    program, ports = tmp_path / "dies.py", tmp_path / "ports"
    program.write_text(
        "import pathlib, socket, sys, time\n"
        f"ports = pathlib.Path({str(ports)!r})\n"
        "ports.write_text((ports.read_text() if ports.exists() else '') + sys.argv[1] + ' ')\n"
        "if len(ports.read_text().split()) < 3: raise SystemExit(1)\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "time.sleep(60)\n"
    )

    server = LaunchTarget(f"{sys.executable} {program} {{port}} {{sets}}").start({})

    assert len(set(ports.read_text().split())) == 3
    server.stop()


def test_ports_are_nobody_elses() -> None:
    """Ports are side by side, aren't given twice, and come from where the operating system gives none."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    pairs = [FreePorts() for _ in range(50)]

    firsts = {ports.first for ports in pairs}
    assert len(firsts) == 50
    assert not firsts & {first + 1 for first in firsts}
    assert not any(low <= first <= high for first in firsts)
    for ports in pairs:
        ports.give_back()
