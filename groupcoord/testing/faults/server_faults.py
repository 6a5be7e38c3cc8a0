"""What a test tells a server of its own to do wrong: the part of ``ServerThread`` that is about faults."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.testing.asserting.expectations import LOOK_AGAIN_S, refuse_to_block
from groupcoord.testing.faults import Control, Rule
from groupcoord.testing.faults.control import AcquiredRange, SharedRecords

__tracebackhide__ = True  # pytest's reports end at the user's line

P = ParamSpec("P")
T = TypeVar("T")

WAIT_TIMEOUT_S = 30.0


class EndOfLoop:
    """Calls a function when the event loop of this thread ends, if one runs.

    ``asyncio.run`` cancels the tasks that are left when the test's coroutine has ended, and waits for them: clients
    that stop would wait for ever for an answer that the test still holds.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._task: asyncio.Task[None] | None = None
        with suppress(RuntimeError):
            self._task = asyncio.get_running_loop().create_task(self._wait(), name="groupcoord-held")
            _HELD.add(self._task)
            self._task.add_done_callback(_HELD.discard)

    def forget(self) -> None:
        """Do not call the function any more."""
        task, self._task = self._task, None
        if task is not None and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def _wait(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self._task is not None:
                with suppress(RuntimeError, GroupcoordError):  # the server may have stopped
                    self._function()


_HELD: set[asyncio.Task[None]] = set()
"""A loop keeps no reference to its tasks."""


class AsyncFault:
    """What of a fault takes time, for tests on an event loop: ``await fault.asyncio.wait()``."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    async def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the fault has met so many requests; see :meth:`Fault.wait`.

        Raises:
            TimeoutError: it has not, in this time.
            FaultFunctionError: a function of the test has raised.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not self._fault.is_met(count) and loop.time() < deadline_s:
            await asyncio.sleep(LOOK_AGAIN_S)
        self._fault.check(count, timeout_s)


class Fault:
    """Something that goes wrong on purpose, until it is removed: ``with server.hold("SyncGroup"): ...``.

    Attributes:
        api: Kafka's name of the API that it is about.
        asyncio: the same wait, to be awaited.
    """

    def __init__(self, server: FaultWords, make: Callable[[Control], Rule]) -> None:
        self._server = server
        self._met = threading.Condition()

        def add(control: Control) -> Rule:
            rule = make(control)
            rule.on_met = self._on_met
            return rule

        self._rule = server.control(add)
        self.api = self._rule.api
        self.asyncio = AsyncFault(self)
        self._ends = EndOfLoop(self.remove) if self._rule.holds else None

    @property
    def count(self) -> int:
        """How many requests it has met."""
        return self._rule.count

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until it has met so many requests.

        Raises:
            TimeoutError: it has not, in this time.
            FaultFunctionError: a function of the test has raised.
            RuntimeError: an event loop runs in this thread, which the wait would stop.
        """
        refuse_to_block("Fault.wait", "fault.asyncio.wait")
        with self._met:
            self._met.wait_for(lambda: self.is_met(count), timeout_s)
        self.check(count, timeout_s)

    def is_met(self, count: int) -> bool:
        """Return True if it has met so many requests, or a function of the test has raised."""
        return self._rule.count >= count or self._rule.has_failed

    def check(self, count: int, timeout_s: float) -> None:
        """Raise what a function of the test has raised, or that too few requests came."""
        self._server.raise_errors()
        if not self.is_met(count):
            raise TimeoutError(f"{self.count} of {count} requests of {self.api} came within {timeout_s:g} s")

    def remove(self) -> None:
        """Let nothing more go wrong; what was held goes on. Nothing happens if that was done."""
        if self._ends is not None:
            self._ends.forget()
        self._server.remove_rule(self._rule)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _on_met(self) -> None:
        with self._met:
            self._met.notify_all()


class HeldAppends:
    """Appends of groups and offsets that wait, until they are released: ``with server.hold_appends(): ...``."""

    def __init__(self, server: FaultWords) -> None:
        self._server = server
        server.control(Control.hold_appends)
        self._ends = EndOfLoop(self.release)

    @property
    def count(self) -> int:
        """How many wait."""
        return self._server.control(Control.held_appends)

    def refuse(self, error: ErrorCode | str | int = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """Refuse those that wait; what comes goes on waiting."""
        self._server.control(lambda control: control.refuse_appends(error))

    def release(self) -> None:
        """Write those that wait, and let none wait any longer."""
        self._ends.forget()
        self._server.control(Control.release_appends)

    def __enter__(self) -> HeldAppends:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _word(method: Callable[Concatenate[Control, P], T]) -> Callable[Concatenate[FaultWords, P], T]:
    """Return a method that has a word of :class:`~groupcoord.testing.faults.Control` said in the server's thread."""

    @wraps(method)
    def say(server: FaultWords, /, *arguments: P.args, **named: P.kwargs) -> T:
        return server.control(lambda control: method(control, *arguments, **named))

    return say


def _fault(method: Callable[Concatenate[Control, P], Rule]) -> Callable[Concatenate[FaultWords, P], Fault]:
    """Return a method that has a rule made in the server's thread, and gives a handle of it."""

    @wraps(method)
    def make(server: FaultWords, /, *arguments: P.args, **named: P.kwargs) -> Fault:
        return Fault(server, lambda control: method(control, *arguments, **named))

    make.__annotations__ = {**method.__annotations__, "return": Fault}
    return make


class ShareGroup:
    """A share group (KIP-932), as a test asks about it: ``server.share("jobs").acquired()``.

    Attributes:
        group_id: which one.
    """

    def __init__(self, server: FaultWords, group_id: str) -> None:
        self._server = server
        self.group_id = group_id

    def acquired(self) -> tuple[AcquiredRange, ...]:
        """Return what its members have to themselves, by topic and offset."""
        return self._server.control(lambda control: control.acquired_records(self.group_id))

    def progress(self) -> tuple[SharedRecords, ...]:
        """Return how far it is with the partitions that its members read."""
        return self._server.control(lambda control: control.shared_records(self.group_id))

    def release(self, member_id: str | None = None) -> int:
        """Take from a member, or from all, what it has, as if it had given it back; return how many records."""
        return self._server.control(lambda control: control.release_records(self.group_id, member_id))

    def expire_locks(self) -> int:
        """Let the locks of all that its members have be over now; return how many records."""
        return self._server.control(lambda control: control.expire_locks(self.group_id))


class FaultWords:
    """The methods of a server in a thread with which a test lets things go wrong.

    APIs have Kafka's names (``OffsetCommit``), errors are :class:`~groupcoord.ErrorCode` or their names. ``where`` says
    which requests are meant: a function of the :class:`~groupcoord.testing.faults.Call`, or a mapping of names to the
    values that they must have, such as ``{"client_id": "worker-1", "group_id": "billing"}``. ``times`` says how many
    are; with ``after=True`` a request is handled first, and it is its answer that goes wrong. Rules hold for requests
    that come after they were made, those that were made first come first, and they outlast a restart. With ``node``
    they hold for requests that come to this one of several nodes alone.
    """

    @abstractmethod
    def control(self, function: Callable[[Control], T]) -> T:
        """Call a function in the server's thread with what goes wrong there, and send what there is to say."""

    @abstractmethod
    def remove_rule(self, rule: Rule) -> None:
        """Remove a rule, also while the server has crashed."""

    # requests
    on = _fault(Control.on)
    fail_next = _fault(Control.fail_next)
    delay = _fault(Control.delay)
    hold = _fault(Control.hold)
    drop_next = _fault(Control.drop_next)
    disconnect_next = _fault(Control.disconnect_next)
    drop_connections = _word(Control.drop_connections)
    clear_faults = _word(Control.clear)

    # groups
    expire_member = _word(Control.expire_member)
    begin_rebalance = _word(Control.begin_rebalance)
    coordinator = _word(Control.coordinator)
    move_coordinator = _word(Control.move_coordinator)

    def share(self, group_id: str) -> ShareGroup:
        """Return what can be asked of a share group, and done to the records that its members have."""
        return ShareGroup(self, group_id)

    # nodes
    leader = _word(Control.leader)
    move_leader = _word(Control.move_leader)
    transaction_coordinator = _word(Control.transaction_coordinator)
    move_transaction_coordinator = _word(Control.move_transaction_coordinator)

    # the log
    fail_next_append = _word(Control.fail_next_append)

    def hold_appends(self) -> HeldAppends:
        """Let appends to ``__consumer_offsets`` wait until they are released, as a slow log does.

        Who waits longer than ``offsets.commit.timeout.ms`` is told so.
        """
        return HeldAppends(self)

    # what functions of the test raised
    raise_errors = _word(Control.raise_errors)
