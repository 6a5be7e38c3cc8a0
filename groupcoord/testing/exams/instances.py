"""The program that is examined, as processes: started, ended in order, killed and stopped, and looked after."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Formatter
from threading import Lock
from typing import IO
from weakref import WeakSet

from groupcoord.conformance.launched import last_words
from groupcoord.errors import GroupcoordError

PLACEHOLDERS = ("bootstrap", "group", "topic", "output", "instance", "protocol")
LOGIN_PLACEHOLDERS = ("security_protocol", "ca", "mechanism", "user", "password")
"""What a client needs to know besides where it connects with TLS or logs in; empty where it doesn't."""
ENVIRONMENT_PREFIX = "EXAM_"
RESTARTS_MAX = 10
RESTART_AFTER_S = 0.5
END_WITHIN_S = 20.0


STARTED_WITHIN_S = 5.0
_STARTING = Lock()
_LIVES: WeakSet[Instance] = WeakSet()
"""Those that were started in this process, which :data:`_STARTING` guards; the main thread starts none in a command."""


def kill_all() -> None:
    """Kill all instances of all exams of this process, which ends in the middle of one; no other is started then."""
    _STARTING.acquire(timeout=STARTED_WITHIN_S)
    for instance in list(_LIVES):
        instance.send_kill()


class CommandError(GroupcoordError, ValueError):
    """The command can't be started, or has a placeholder that there isn't."""


def check_command(command: Sequence[str]) -> None:
    """Make sure that a command names nothing that it isn't given.

    Raises:
        CommandError: there is no command, or it has another placeholder.
    """
    if not command:
        raise CommandError("say how the program is started: -- COMMAND…")
    for word in command:
        try:
            names = {name for _, name, _, _ in Formatter().parse(word) if name is not None}
        except ValueError as error:
            raise CommandError(f"{word!r} can't be read: {error}") from None
        if unknown := names.difference(PLACEHOLDERS + LOGIN_PLACEHOLDERS):
            known = " ".join(f"{{{name}}}" for name in PLACEHOLDERS + LOGIN_PLACEHOLDERS)
            raise CommandError(f"unknown placeholder {{{min(unknown)}}} in {word!r}; there are {known}")


class Instance:
    """One of the processes of the program; one that ends by itself is started again, as a supervisor would.

    Args:
        name: of the instance, and of the listener that it comes by.
        command: the words of the command, with placeholders.
        values: of the placeholders; the program finds them in its environment as well, as ``EXAM_BOOTSTRAP`` and so on.
        log_path: where what it prints is kept.
        note: is told in words what has become of it.

    Attributes:
        name: as given.
        is_wanted: it is to run.
        ends: how often it has ended without being told to.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        values: Mapping[str, str],
        log_path: Path,
        note: Callable[[str, str], object],
    ) -> None:
        self.name = name
        self.is_wanted = False
        self.ends = 0
        self._words = [word.format(**values) for word in command]
        self._environment = {ENVIRONMENT_PREFIX + key.upper(): value for key, value in values.items()}
        self._log_path = log_path
        self._note = note
        self._process: subprocess.Popen[bytes] | None = None
        self._again_s = 0.0

    @property
    def has_given_up(self) -> bool:
        """Whether it has ended by itself too often to be started again."""
        return self.is_wanted and self.ends > RESTARTS_MAX

    @property
    def is_running(self) -> bool:
        """Whether its process lives, be it stopped by a signal."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process.

        Raises:
            CommandError: it can't be started.
        """
        self.is_wanted = True
        with self._log_path.open("ab") as log, _STARTING:
            self._process = self._launched(log)
            _LIVES.add(self)
        self._note(self.name, "starts")

    def _launched(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"can't start {shlex.join(self._words)}: {error}") from None

    def tend(self) -> None:
        """Start the process again, a moment after it has ended by itself, a few times."""
        if not self.is_wanted or self.is_running:
            return
        now_s = time.monotonic()
        if not self._again_s:
            assert self._process is not None
            self.ends += 1
            self._note(self.name, f"ends by itself with status {self._process.returncode}")
            self._again_s = now_s + RESTART_AFTER_S
        elif now_s >= self._again_s and self.ends <= RESTARTS_MAX:
            self._again_s = 0.0
            self.start()

    def ask_to_end(self) -> bool:
        """Send SIGTERM, and wait for the end; return False if it had to be killed."""
        self.is_wanted = False
        if not self.is_running:
            return True
        assert self._process is not None
        self._note(self.name, "gets SIGTERM")
        self._signal(signal.SIGTERM)
        try:
            status = self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._note(self.name, f"has not ended after {END_WITHIN_S:g} s, and is killed")
            self.kill()
            return False
        self._note(self.name, f"ends with status {status}")
        return True

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.is_wanted = False
        if self._process is not None and self.is_running:
            self._note(self.name, "gets SIGKILL")
            self._signal(signal.SIGKILL)
            self._process.wait()

    def send_kill(self) -> None:
        """Send SIGKILL, whatever it is to do, and wait for nothing."""
        if self.is_running:
            self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Send SIGSTOP: the process lives and does nothing."""
        self._note(self.name, "gets SIGSTOP")
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: the process goes on as if nothing had happened."""
        self._note(self.name, "gets SIGCONT")
        self._signal(signal.SIGCONT)

    def last_words(self) -> str:
        """Return the end of what it has printed."""
        return last_words(self._log_path)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)
