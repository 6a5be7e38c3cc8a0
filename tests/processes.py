"""Processes for tests: ``groupcoord serve`` and members that are real clients; queries for what the server holds."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Self

from attrs import frozen

from tests.client import Client, Request
from tests.clients import member_process

HOST = "127.0.0.1"
POLL_S = 0.02
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 5.0
DESCRIBE_GROUPS, OFFSET_FETCH = (15, 5), (9, 5)
LAST_WORDS = 12

SERVE_WHILE_WATCHED = """\
import os, sys, threading
from groupcoord.cli import main
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
main()
"""
"""The groupcoord command, that ends when its standard input does: it must not outlive a parent that was killed."""


class ProcessError(Exception):
    """A process ended or did not answer in time."""


def wait_until(condition: Callable[[], bool], timeout_s: float, expected: str) -> float:
    """Wait until a condition holds.

    Args:
        condition: is asked again and again.
        timeout_s: how long to wait at most.
        expected: what is waited for, for the error.

    Returns:
        How many seconds it took.

    Raises:
        ProcessError: it did not come to hold in time.
    """
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout_s:
            raise ProcessError(f"{expected}: not within {timeout_s:g} s")
        time.sleep(POLL_S)
    return time.monotonic() - begin


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


class Child:
    """A child process whose output is read line by line.

    It stands in a session of its own: a Ctrl-C in the terminal reaches the parent only, which then ends its children.

    Attributes:
        kept_lines: how many lines of output ``last_words`` holds at most; None for all.
    """

    kept_lines: int | None = LAST_WORDS

    def __init__(self, name: str, words: list[str]) -> None:
        self.name = name
        self.last_words: deque[str] = deque(maxlen=self.kept_lines)
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        outputs = ((self._process.stdout, self.hear), (self._process.stderr, self.last_words.append))
        self._readers = [threading.Thread(target=self._read, args=output, daemon=True) for output in outputs]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def hear(self, line: str) -> None:
        """Take a line of its standard output."""
        self.last_words.append(line)

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """End it with SIGKILL, and wait until all it has written is read."""
        self._process.kill()
        self._reap()

    def stop(self) -> int:
        """Ask it to end: its standard input ends and it gets what :meth:`ask_to_stop` sends. Return its exit status."""
        self.ask_to_stop()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"{self.name} did not end within {STOP_TIMEOUT_S:g} s") from None
        self._reap()
        return self._process.returncode

    def ask_to_stop(self) -> None:
        """End its standard input, without waiting for what it does then."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def check_alive(self) -> None:
        """Raise ProcessError with its last words if it has ended."""
        if not self.is_alive:
            self._reap()
            words = "\n".join(self.last_words) or "it said nothing"
            raise ProcessError(f"{self.name} ended with status {self._process.returncode}:\n{words}")

    def _reap(self) -> None:
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _read(self, pipe: IO[str], take: Callable[[str], None]) -> None:
        for line in pipe:
            take(line.rstrip("\n"))


class ServerProcess(Child):
    """``groupcoord serve`` as a process of its own; ready when the constructor returns.

    Args:
        data_dir: where it keeps its data.
        port: where it listens; 0 for a free port.
        topics: partition counts by topic name.
        settings: values by Kafka's key.
        words: further words of the command line.

    Raises:
        ProcessError: it does not come up.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str | int] | None = None,
        words: Iterable[str] = (),
    ) -> None:
        self.port = 0
        command = [sys.executable, "-c", SERVE_WHILE_WATCHED, "serve"]
        command += ["--host", HOST, "--port", str(port), "--data-dir", str(data_dir), *words]
        for name, partition_count in (topics or {}).items():
            command += ["--topic", f"{name}:{partition_count}"]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        super().__init__("the server", command)
        try:
            wait_until(self._is_ready, START_TIMEOUT_S, "the server listens")
        except BaseException:
            self.kill()
            raise

    @property
    def bootstrap(self) -> str:
        """``HOST:PORT``, for clients."""
        return f"{HOST}:{self.port}"

    def hear(self, line: str) -> None:
        super().hear(line)
        found = re.search(r"listening on \S+:(\d+)", line)
        if found:
            self.port = int(found[1])

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def _is_ready(self) -> bool:
        self.check_alive()
        return self.port != 0


class MemberProcess(Child):
    """A member of a group: :mod:`tests.clients.member_process` as a process of its own.

    Attributes:
        options: what it was told to do.
        started_at: for each partition it owns, the offset where it started; empty while it owns none.
        acknowledged: for each partition it ever committed, the last offset that was acknowledged.
        commit_count: how many of its commits were acknowledged.
        failures: the reasons of those that failed.
        is_paused: whether it has stopped to commit, as asked.
        has_left: whether it has left the group.
    """

    def __init__(self, options: member_process.Options) -> None:
        self.options = options
        self.started_at: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.commit_count = 0
        self.failures: list[str] = []
        self.is_paused = False
        self.has_left = False
        super().__init__(
            options.client_id, [sys.executable, "-m", member_process.__name__, json.dumps(asdict(options))]
        )

    @property
    def owned(self) -> set[int]:
        """Its owned partitions by its output; none if the process is gone."""
        return set(self.started_at) if self.is_alive else set()

    def offset(self, partition: int) -> int:
        """Return how far it is in a partition that it owns."""
        return max(self.started_at.get(partition, 0), self.acknowledged.get(partition, 0))

    def hear(self, line: str) -> None:
        try:
            said = json.loads(line)
            event = said["event"]
        except (ValueError, TypeError, KeyError):
            self.last_words.append(line)
            return
        if event == "owned":
            self.started_at = _by_partition(said)
        elif event == "committed":
            self.acknowledged = {**self.acknowledged, **_by_partition(said)}
            self.commit_count += 1
        elif event == "failed":
            self.failures.append(said["reason"])
            self.last_words.append(said["reason"])
        elif event == "paused":
            self.is_paused = True
        elif event == "left":
            self.has_left = True

    def pause(self) -> None:
        """Request no further commits; :attr:`is_paused` is then set by its output."""
        self.say("pause")

    def resume(self) -> None:
        self.is_paused = False
        self.say("resume")


def _by_partition(said: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in said["offsets"].items()}


def own_each_once(members: Iterable[MemberProcess], partition_count: int) -> bool:
    """Return whether the members own all partitions, each exactly one, and every member has some. Raises: ProcessError:
    one of them has ended.
    """
    owned: list[int] = []
    for member in members:
        member.check_alive()
        if not member.owned:
            return False
        owned += member.owned
    return sorted(owned) == list(range(partition_count))


def acknowledged(members: Iterable[MemberProcess]) -> dict[int, int]:
    """Return the last acknowledged offset of each partition, by any member."""
    last: dict[int, int] = {}
    for member in members:
        for partition, offset in member.acknowledged.items():
            last[partition] = max(offset, last.get(partition, 0))
    return dict(sorted(last.items()))


@frozen
class GroupDescription:
    """Description of a group: its state, and the names and ids of its members, each sorted."""

    state: str
    client_ids: tuple[str, ...]
    member_ids: tuple[str, ...]


def describe_group(port: int, group_id: str) -> GroupDescription:
    """Return what DescribeGroups returns of a group.

    Raises:
        ProcessError: the server does not answer.
    """
    (group,) = _ask(port, DESCRIBE_GROUPS, {"groups": [group_id], "include_authorized_operations": False})["groups"]
    client_ids = tuple(sorted(member["client_id"] for member in group["members"]))
    member_ids = tuple(sorted(member["member_id"] for member in group["members"]))
    return GroupDescription(group["group_state"], client_ids, member_ids)


def committed_offsets(port: int, group_id: str, topic: str) -> dict[int, int]:
    """Return the offsets by partition that OffsetFetch returns of a group.

    Raises:
        ProcessError: the server does not answer.
    """
    for named in _ask(port, OFFSET_FETCH, {"group_id": group_id, "topics": None})["topics"]:
        if named["name"] == topic:
            return {found["partition_index"]: found["committed_offset"] for found in named["partitions"]}
    return {}


def _ask(port: int, api: tuple[int, int], fields: dict[str, Any]) -> Any:
    try:
        with Client(port, ANSWER_TIMEOUT_S) as client:
            return client.ask(Request(*api, fields))
    except OSError as error:
        raise ProcessError(f"the server does not answer API {api}: {error}") from error
