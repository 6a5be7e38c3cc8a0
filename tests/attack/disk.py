"""A disk that is full, a file that may not grow, and a data directory that is taken away from a running server.

While it lasts commits may be refused, but not acknowledged and lost; the log says so in a few lines; and when it is
over the same server goes on.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.attack.report import Result, one_line
from tests.attack.siege import Siege
from tests.attack.target import Target
from tests.crash.harness import ask
from tests.crash.processes import ServerFailedError
from tests.crash.requests import commit_errors, fetched_offsets, offset_commit, offset_fetch

TOPIC, GROUPS = "orders", [f"disk-{number}" for number in range(12)]
FAULT_S, NOTICE_S, RECOVERY_S = 2.0, 3.0, 15.0
ROOM_BYTES = 20_000
DISK_MIB = 4
LINES_MAX = 20
NOT_COORDINATOR = 16


class Committer:
    """Commits to groups in all log partitions, and remembers what was acknowledged."""

    def __init__(self, target: Target, result: Result) -> None:
        self.sock: socket.socket = target.connect()
        self.acknowledged: dict[str, int] = {}
        self.refused = 0
        self._offset = 0
        self._result = result

    def __enter__(self) -> Committer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def commit(self, group_id: str) -> bool:
        """Commit; tell whether that was acknowledged."""
        self._offset += 1
        request = offset_commit(1, group_id, -1, "", TOPIC, {0: self._offset})
        (error,) = commit_errors(ask(self.sock, request))
        self._result.count("commits")
        if error:
            self.refused += 1
            if error != NOT_COORDINATOR:
                self._result.fault(f"a commit that could not be written was refused with {error}")
        else:
            self.acknowledged[group_id] = self._offset
        return not error

    def commit_for(self, duration_s: float) -> None:
        """Commit to one group after the other for so long."""
        deadline_s = time.monotonic() + duration_s
        while time.monotonic() < deadline_s:
            for group_id in GROUPS:
                self.commit(group_id)

    def recover(self) -> None:
        """Commits must be taken again, for all groups, and all that was acknowledged must be there."""
        deadline_s = time.monotonic() + RECOVERY_S
        while sum(self.commit(group_id) for group_id in GROUPS) < len(GROUPS):
            if time.monotonic() > deadline_s:
                self._result.fault(f"commits are still refused {RECOVERY_S:g} s after the fault was over")
                return
            time.sleep(0.05)
        self.check(self.sock)

    def check(self, sock: socket.socket) -> None:
        """Compare with what the server has."""
        for group_id, offset in self.acknowledged.items():
            found = fetched_offsets(ask(sock, offset_fetch(1, group_id))).get((TOPIC, 0))
            if found != offset:
                self._result.fault(f"{group_id}: {offset} was acknowledged, and the server has {found}")


def small_files(siege: Siege, replay: str) -> Result:
    """No file may grow any further."""

    def attack(target: Target, result: Result) -> None:
        with Committer(target, result) as committer:
            committer.commit_for(0.2)
            largest = max(path.stat().st_size for path in target.data_dir.rglob("*.log"))
            target.limit(resource.RLIMIT_FSIZE, largest + ROOM_BYTES)
            committer.commit_for(FAULT_S)
            _expect(committer.refused > 0, result, "no commit was refused, though no file could grow")
            target.limit(resource.RLIMIT_FSIZE, -1)
            committer.recover()
            _expect_lines(target, result)

    return _hardened(siege).run(Result("disk", "files may not grow (RLIMIT_FSIZE)", replay), attack)


def full_disk(siege: Siege, replay: str) -> Result:
    """The disk of the data directory is full; then there is room again."""
    result = Result("disk", f"a full disk of {DISK_MIB} MiB", replay)

    def attack(target: Target, result: Result) -> None:
        with Committer(target, result) as committer:
            committer.commit_for(0.2)
            filler = target.data_dir.parent / "filler"
            fill(filler)
            committer.commit_for(FAULT_S)
            _expect(committer.refused > 0, result, "no commit was refused, though the disk was full")
            filler.unlink()
            committer.recover()
            _expect_lines(target, result)

    return _on_small_disk(result, lambda disk: _hardened(siege).run(result, attack, disk / "data"))


def start_on_full_disk(siege: Siege, replay: str) -> Result:
    """A server that was killed starts again, though its disk is full, or may only be read."""
    result = Result("disk", "starting on a full disk", replay)

    def run(disk: Path) -> Result:
        folder = Path(tempfile.mkdtemp(prefix="groupcoord-attack-"))
        target = Target(folder, siege.settings, disk / "data")
        try:
            target.start()
            with Committer(target, result) as committer:
                committer.commit_for(0.2)
                target.kill()
                fill(disk / "filler")
                target.start()
                with target.connect() as sock:
                    committer.check(sock)
                target.kill()
                _start_read_only(disk, target, result)
        except ServerFailedError as error:
            result.fault(f"it does not start on a full disk: {one_line(str(error))}")
        finally:
            target.kill()
            shutil.rmtree(folder)
        return result

    return _on_small_disk(result, run)


def _start_read_only(disk: Path, target: Target, result: Result) -> None:
    """Where nothing can be written the server says so in one line, and ends."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        target.start()
    except ServerFailedError:
        lines = target.log().splitlines()
        result.notes.append(f"on a read-only disk: {one_line(target.log())}")
        _expect(len(lines) == 1, result, f"{len(lines)} lines say that the disk is read-only")
    else:
        result.notes.append("it starts on a read-only disk")


def removed(siege: Siege, replay: str, *, directory: bool) -> Result:
    """The segment files, or the whole data directory, are removed under the running server."""
    case = "the data directory is removed" if directory else "segments are unlinked"
    # What was written before is gone whatever the server does; what it acknowledges later must be in a file.
    siege = dataclasses.replace(_hardened(siege), survives=False)

    def attack(target: Target, result: Result) -> None:
        with Committer(target, result) as committer:
            committer.commit_for(0.2)
            if directory:
                shutil.rmtree(target.data_dir)
            else:
                for path in target.data_dir.rglob("*.log"):
                    path.unlink()
            committer.commit_for(NOTICE_S)
            committer.acknowledged.clear()
            committer.refused = 0
            committer.commit_for(FAULT_S / 2)
            if committer.acknowledged and not list(target.data_dir.rglob("__consumer_offsets-*/*.log")):
                result.fault(f"{len(committer.acknowledged)} groups' commits are acknowledged, and no file holds them")
            _expect_lines(target, result)
            target.data_dir.mkdir(exist_ok=True)

    return siege.run(Result("disk", case, replay), attack)


def _hardened(siege: Siege) -> Siege:
    return dataclasses.replace(siege, may_be_refused=True)


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with open(path, "wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def _on_small_disk(result: Result, run: Callable[[Path], Result]) -> Result:
    with _small_disk() as disk:
        if disk is None:
            result.notes.append("not tried: no tmpfs can be mounted here")
            return result
        return run(disk)


@contextmanager
def _small_disk() -> Iterator[Path | None]:
    folder = Path(tempfile.mkdtemp(prefix="groupcoord-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield folder if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)
        folder.rmdir()


def _expect(condition: bool, result: Result, text: str) -> None:
    if not condition:
        result.fault(text)


def _expect_lines(target: Target, result: Result) -> None:
    """The log says that writing failed, and not once for each commit."""
    lines = [line for line in target.log().splitlines() if " ERROR " in line]
    _expect(bool(lines), result, "no ERROR line in the log says that writing failed")
    _expect(len(lines) <= LINES_MAX, result, f"{len(lines)} ERROR lines in the log")
    if lines:
        result.notes.append(f"the log says: {lines[0]}")
