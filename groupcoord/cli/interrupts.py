"""Signals that ask a command to end: it does so at once, without a traceback, and leaves nothing behind.

The handler ends the process itself. One that raises, as Python's own does, is at the mercy of what it interrupts:
extension modules that are being imported turn the exception into another one, destructors and the callbacks of other
languages print and drop it. What has to be done before the end is registered with :class:`BeforeTheEnd`.

It is installed before anything else is imported, so this module imports next to nothing.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

FAILED, USAGE_ERROR, SIGNALLED = 1, 2, 128
"""Exit statuses: the work failed, the command cannot be carried out as given, a signal (its number is added)."""

ASKED = (signal.SIGINT, signal.SIGTERM)
SIGNALS = (*ASKED, signal.SIGHUP) if hasattr(signal, "SIGHUP") else ASKED

_request: Callable[[], object] | None = None
_deeds: list[Callable[[], object]] = []
_status: int | None = None
_terminal: int | None = None
"""A descriptor of the terminal, if there is one, from when nothing more is printed."""


def take_signals(status: int | None = None) -> None:
    """Let signals end this process from now on.

    Those that the process was told to ignore, as by ``nohup``, stay ignored.
    """
    global _status
    _status = status
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


def ignore_signals() -> None:
    """Let no signal change how this process ends, which has nothing left to do.

    While the interpreter ends, it gives signals back what they do by default: then a second one would tell whoever
    waits for the process that it was killed.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class BeforeTheEnd:
    """As long as the context lasts, something is done before a signal ends the process; what came
    last is done first.
    """

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed = deed

    def __enter__(self) -> None:
        _deeds.append(self._deed)

    def __exit__(self, *_: object) -> None:
        if self._deed in _deeds:
            _deeds.remove(self._deed)


class AtTheFirstSignal:
    """As long as the context lasts, the first signal does not end the process but asks it to end itself.

    SIGINT and SIGTERM do so even where they were ignored, as a shell's background jobs ignore SIGINT: who sends one to
    a server means it.
    """

    def __init__(self, request: Callable[[], object]) -> None:
        self._ask = request

    def __enter__(self) -> None:
        global _request
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        _request = self._ask
        for number, before in self._before.items():
            if number in ASKED or before is not signal.SIG_IGN:
                signal.signal(number, _handle)

    def __exit__(self, *_: object) -> None:
        global _request
        _request = None
        for number, before in self._before.items():
            signal.signal(number, before)


class StopRequest:
    """Whether somebody has asked a command to stop. Signals may ask wherever the main thread happens to be."""

    def __init__(self) -> None:
        from queue import SimpleQueue

        self._requests: SimpleQueue[None] = SimpleQueue()  # unlike an Event, it may be used where it interrupts itself

    def ask(self) -> None:
        """Ask it to stop."""
        self._requests.put(None)

    def is_there(self, wait_s: float) -> bool:
        """Wait so many seconds, or until somebody asks, and say if somebody has."""
        from queue import Empty

        try:
            self._requests.get(timeout=wait_s)
        except Empty:
            return False
        return True


def show_cursor() -> None:
    """Show the cursor of the terminal again and clear its line, where a bar was. For :class:`BeforeTheEnd` only."""
    if _terminal is not None:
        os.write(_terminal, b"\r\x1b[2K\x1b[?25h")


def _handle(number: int, frame: FrameType | None) -> None:
    """Do what comes next: ask, or clean up and end. Another signal meanwhile gives up the deed that takes so long."""
    global _request
    if _request is not None:
        request, _request = _request, None
        request()
        return
    _silence()
    while _deeds:
        try:
            _deeds.pop()()
        except Exception:  # there is nobody left to tell, and the others have to be done as well
            continue
    os._exit(SIGNALLED + number if _status is None else _status)


def _silence() -> None:
    """Let nothing more be printed: other threads go on for a moment, and would tell what they miss."""
    global _terminal
    if _terminal is None:
        terminal = next((descriptor for descriptor in (1, 2) if os.isatty(descriptor)), None)
        _terminal = None if terminal is None else os.dup(terminal)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
