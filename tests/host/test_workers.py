"""``groupcoord serve --workers N`` as a user runs it: processes that are kept running, and what of them is refused."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import threading
from pathlib import Path

import pytest

from groupcoord.core.java.hashing import partition_for
from groupcoord.storage.directory_lock import DirectoryLock
from tests.broker.kafka_bytes import array, frame, string
from tests.host.serving import DEADLINE_S
from tests.host.test_serve_command import refused
from tests.host.workers import Workers, serve_by_workers, wait_until
from tests.ports import free_port
from tests.tables import as_one_test

pytestmark = pytest.mark.ci

GROUPS = 8
KILLS = 4


@as_one_test
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--data-dir"),
        (["--nodes", "2"], "--nodes is for one process"),
        (["--control", "0"], "--control is for one process"),
    ],
)
def test_what_workers_can_not_do(tmp_path: Path, arguments: list[str], named: str) -> None:
    """It is refused with a line that says why."""
    data_dir = ["--data-dir", str(tmp_path)] if arguments else []
    status, errors = refused("--port", "0", "--workers", "2", *arguments, *data_dir)
    assert (status, errors.count("\n")) == (2, 1)
    assert named in errors


def test_a_signal_stops_all(tmp_path: Path) -> None:
    """SIGTERM to the supervisor ends its workers in order, and then itself with status 0."""
    with serve_by_workers(tmp_path) as workers:
        pids = workers.pids()
        assert len(pids) == 2
        assert workers.serving.stop() == (0, "")
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert all((tmp_path / "workers" / number / ".groupcoord_cleanshutdown").exists() for number in "12")


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    """Nobody else gets their directory; and a supervisor that is killed leaves nobody behind."""
    with serve_by_workers(tmp_path) as workers:
        pids = workers.pids()
        for others in (["--workers", "3"], []):
            status, errors = refused("--port", "0", "--data-dir", str(tmp_path), *others)
            assert (status, "another process is using it" in errors) == (1, True)
        workers.serving.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_one_that_can_not_start_is_told_once(tmp_path: Path) -> None:
    """A worker whose directory somebody has keeps all from running; the line says which."""
    (tmp_path / "workers" / "2").mkdir(parents=True)
    lock = DirectoryLock(tmp_path / "workers" / "2")
    status, errors = refused("--port", "0", "--data-dir", str(tmp_path), "--workers", "2")
    lock.close()
    assert status == 1
    assert "workers/2: another process is using it" in errors


class Committer(threading.Thread):
    """Commits ever higher offsets of a group, at the worker that coordinates it, and knows which were acknowledged."""

    def __init__(self, workers: Workers, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id
        self.acknowledged = -1
        self.ends = threading.Event()
        self._address = ("127.0.0.1", workers.serving.port + partition_for(group_id, 50) % workers.count)

    def run(self) -> None:
        offsets = itertools.count()
        while not self.ends.is_set():
            try:
                with socket.create_connection(self._address, timeout=DEADLINE_S) as sock, sock.makefile("rb") as file:
                    while not self.ends.is_set():
                        offset = next(offsets)
                        sock.sendall(self._commit(offset))
                        size = file.read(4)
                        if len(size) < 4:
                            break
                        if file.read(int.from_bytes(size, "big")).endswith(b"\0\0"):
                            self.acknowledged = offset
            except OSError:
                continue

    def _commit(self, offset: int) -> bytes:
        partition = b"\0\0\0\0" + offset.to_bytes(8, "big") + string("")
        head = string(self.group_id) + b"\xff\xff\xff\xff" + string("") + b"\xff" * 8
        return frame(8, 2, 1, head + array([string("orders") + array([partition])]))

    def committed(self) -> int:
        """Return the offset that is committed now."""
        request = frame(9, 1, 2, string(self.group_id) + array([string("orders") + array([b"\0\0\0\0"])]))
        with socket.create_connection(self._address, timeout=DEADLINE_S) as sock, sock.makefile("rb") as file:
            sock.sendall(request)
            answer = file.read(int.from_bytes(file.read(4), "big"))
        assert answer.endswith(string("") + b"\0\0"), answer
        return int.from_bytes(answer[-12:-4], "big")


def test_no_kill_loses_what_was_acknowledged(tmp_path: Path) -> None:
    """Workers are killed under commits to all of them, again and again; then there are two more workers, then one."""
    chance = random.Random(7)
    port = free_port(4)
    arguments = ("--port", str(port), "--topic", "orders:1")
    with serve_by_workers(tmp_path, *arguments) as workers:
        committers = [Committer(workers, f"group{number}") for number in range(GROUPS)]
        for committer in committers:
            committer.start()
        for _ in range(KILLS):
            seen = [committer.acknowledged for committer in committers]
            wait_until(lambda: all(c.acknowledged > s for c, s in zip(committers, seen, strict=True)))  # noqa: B023
            if chance.random() < 0.5:
                os.kill(workers.pids()[-1], signal.SIGKILL)
            workers.kill_one()
        for committer in committers:
            committer.ends.set()
        for committer in committers:
            committer.join()
        assert all(committer.acknowledged <= committer.committed() for committer in committers)
    for count in (4, 1):
        with serve_by_workers(tmp_path, *arguments, count=count) as workers:
            for committer in committers:
                again = Committer(workers, committer.group_id)
                assert committer.acknowledged <= again.committed()
