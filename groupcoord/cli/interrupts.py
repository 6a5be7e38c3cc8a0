"""Signal handling of commands: they end at once, without a traceback, and clean up.

The handler ends the process itself: an exception may be lost in what it interrupts, such as imports of extension
modules, destructors and callbacks. It is installed before other imports, so this module imports next to nothing.
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


def take_signals(status: int | None = None) -> None:
    """End this process on signals, with ``status`` or 128 and the signal's number.

    Ignored signals, as under ``nohup``, stay ignored.
    """
    global _status
    _status = status
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


def ignore_signals() -> None:
    """Ignore signals: the interpreter restores default handlers while it ends, so a second one
    would look like a kill.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class BeforeTheEnd:
    """Runs a function before a signal ends the process within the context, the last one first.

    It runs anywhere in the main thread: it must be quick, and not wait for locks that the main thread may hold.
    """

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed = deed

    def __enter__(self) -> None:
        _deeds.append(self._deed)

    def __exit__(self, *_: object) -> None:
        if self._deed in _deeds:
            _deeds.remove(self._deed)


class AtTheFirstSignal:
    """Calls a function on the first signal within the context, instead of ending the process.

    SIGINT and SIGTERM count even if they were ignored, as a shell's background jobs ignore SIGINT.
    """

    def __init__(self, request: Callable[[], object]) -> None:
        self._request = request

    def __enter__(self) -> None:
        global _request
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        _request = self._request
        for number, before in self._before.items():
            if number in ASKED or before is not signal.SIG_IGN:
                signal.signal(number, _handle)

    def __exit__(self, *_: object) -> None:
        global _request
        _request = None
        for number, before in self._before.items():
            signal.signal(number, before)


class StopRequest:
    """A request to stop, which signal handlers may make at any point of the main thread."""

    def __init__(self) -> None:
        from queue import SimpleQueue

        # Unlike an Event, it may be used in a handler that interrupts it.
        self._requests: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        self._requests.put(None)

    def is_there(self, wait_s: float) -> bool:
        from queue import Empty

        try:
            self._requests.get(timeout=wait_s)
        except Empty:
            return False
        return True


def show_cursor() -> None:
    """Show the cursor of the terminal again and clear its line. For :class:`BeforeTheEnd` only."""
    if _terminal is not None:
        os.write(_terminal, b"\r\x1b[2K\x1b[?25h")


def _handle(number: int, frame: FrameType | None) -> None:
    """Call the request function, or clean up and end. Another signal meanwhile skips a slow clean-up function."""
    global _request
    if _request is not None:
        request, _request = _request, None
        request()
        return
    _silence()
    while _deeds:
        try:
            _deeds.pop()()
        except Exception:  # the others must run too
            continue
    os._exit(SIGNALLED + number if _status is None else _status)


def _silence() -> None:
    global _terminal
    if _terminal is None:
        terminal = next((descriptor for descriptor in (1, 2) if os.isatty(descriptor)), None)
        _terminal = None if terminal is None else os.dup(terminal)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
