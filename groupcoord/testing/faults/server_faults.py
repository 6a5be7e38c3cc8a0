"""Fault methods of ``ServerThread``, with handles to count, await and remove them."""

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

    ``asyncio.run`` waits for cancelled tasks: a stopping client would wait forever for a held response.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._task: asyncio.Task[None] | None = None
        with suppress(RuntimeError):
            self._task = asyncio.get_running_loop().create_task(self._wait(), name="groupcoord-held")
            _HELD.add(self._task)
            self._task.add_done_callback(_HELD.discard)

    def forget(self) -> None:
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
"""Event loops keep only weak references to tasks."""


class AsyncFault:
    """Awaitable wait of a fault: ``await fault.asyncio.wait()``."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    async def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the fault has applied to ``count`` requests; see :meth:`Fault.wait`.

        Raises:
            TimeoutError: it did not within ``timeout_s``.
            FaultFunctionError: a function of the test raised.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not self._fault.is_met(count) and loop.time() < deadline_s:
            await asyncio.sleep(LOOK_AGAIN_S)
        self._fault.check(count, timeout_s)


class Fault:
    """Handle of a fault that lasts until it is removed: ``with server.hold("SyncGroup"): ...``.

    Attributes:
        api: Kafka's name of the API.
        asyncio: the awaitable wait.
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
        """Number of requests that the fault applied to."""
        return self._rule.count

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the fault has applied to ``count`` requests.

        Raises:
            TimeoutError: it did not within ``timeout_s``.
            FaultFunctionError: a function of the test raised.
            RuntimeError: an event loop runs in this thread, which the wait would block.
        """
        refuse_to_block("Fault.wait", "fault.asyncio.wait")
        with self._met:
            self._met.wait_for(lambda: self.is_met(count), timeout_s)
        self.check(count, timeout_s)

    def is_met(self, count: int) -> bool:
        """Return whether it applied to ``count`` requests, or a function of the test raised."""
        return self._rule.count >= count or self._rule.has_failed

    def check(self, count: int, timeout_s: float) -> None:
        """Raise an exception of the test's function, or TimeoutError if it applied to fewer requests."""
        self._server.raise_errors()
        if not self.is_met(count):
            raise TimeoutError(f"{self.count} of {count} requests of {self.api} came within {timeout_s:g} s")

    def remove(self) -> None:
        """Remove the fault and continue held requests; no effect if it was removed."""
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
    """Handle of appends to ``__consumer_offsets`` that wait until released: ``with server.hold_appends(): ...``."""

    def __init__(self, server: FaultWords) -> None:
        self._server = server
        server.control(Control.hold_appends)
        self._ends = EndOfLoop(self.release)

    @property
    def count(self) -> int:
        """Number of waiting appends."""
        return self._server.control(Control.held_appends)

    def refuse(self, error: ErrorCode | str | int = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """Fail the waiting appends; later ones still wait."""
        self._server.control(lambda control: control.refuse_appends(error))

    def release(self) -> None:
        """Write the waiting appends and stop holding."""
        self._ends.forget()
        self._server.control(Control.release_appends)

    def __enter__(self) -> HeldAppends:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _command(method: Callable[Concatenate[Control, P], T]) -> Callable[Concatenate[FaultWords, P], T]:
    @wraps(method)
    def say(server: FaultWords, /, *arguments: P.args, **named: P.kwargs) -> T:
        return server.control(lambda control: method(control, *arguments, **named))

    return say


def _fault(method: Callable[Concatenate[Control, P], Rule]) -> Callable[Concatenate[FaultWords, P], Fault]:
    @wraps(method)
    def make(server: FaultWords, /, *arguments: P.args, **named: P.kwargs) -> Fault:
        return Fault(server, lambda control: method(control, *arguments, **named))

    make.__annotations__ = {**method.__annotations__, "return": Fault}
    return make


class ShareGroup:
    """Queries and faults of a share group (KIP-932): ``server.share("jobs").acquired()``.

    Attributes:
        group_id: the group.
    """

    def __init__(self, server: FaultWords, group_id: str) -> None:
        self._server = server
        self.group_id = group_id

    def acquired(self) -> tuple[AcquiredRange, ...]:
        """Return the acquired records of its members, by topic and offset."""
        return self._server.control(lambda control: control.acquired_records(self.group_id))

    def progress(self) -> tuple[SharedRecords, ...]:
        """Return the progress in each partition that its members read."""
        return self._server.control(lambda control: control.shared_records(self.group_id))

    def release(self, member_id: str | None = None) -> int:
        """Release the acquired records of a member, or of all; return their number."""
        return self._server.control(lambda control: control.release_records(self.group_id, member_id))

    def expire_locks(self) -> int:
        """Expire the acquisition locks of all members; return the number of records."""
        return self._server.control(lambda control: control.expire_locks(self.group_id))


class FaultWords:
    """Fault methods of a server in a thread.

    APIs have Kafka's names (``OffsetCommit``); errors are :class:`~groupcoord.ErrorCode`, their names or numbers.
    ``where`` selects requests: a function of the :class:`~groupcoord.testing.faults.Call`, or a mapping of names to
    required values such as ``{"client_id": "worker-1", "group_id": "billing"}``. ``times`` limits their number. With
    ``after=True`` a request is handled first and its response is affected. ``node`` selects the requests that reach one
    of several nodes. Faults of requests apply in the order of their creation and survive a restart; those of appends
    end when all nodes stop.
    """

    @abstractmethod
    def control(self, function: Callable[[Control], T]) -> T:
        """Call a function with the :class:`Control` in the server's thread, then flush responses."""

    @abstractmethod
    def remove_rule(self, rule: Rule) -> None:
        """Remove a rule, even while the server is crashed."""

    # requests
    on = _fault(Control.on)
    fail_next = _fault(Control.fail_next)
    delay = _fault(Control.delay)
    hold = _fault(Control.hold)
    drop_next = _fault(Control.drop_next)
    disconnect_next = _fault(Control.disconnect_next)
    drop_connections = _command(Control.drop_connections)
    clear_faults = _command(Control.clear)

    # groups
    expire_member = _command(Control.expire_member)
    begin_rebalance = _command(Control.begin_rebalance)
    coordinator = _command(Control.coordinator)
    move_coordinator = _command(Control.move_coordinator)

    def share(self, group_id: str) -> ShareGroup:
        """Return the queries and faults of a share group."""
        return ShareGroup(self, group_id)

    # nodes
    leader = _command(Control.leader)
    move_leader = _command(Control.move_leader)
    transaction_coordinator = _command(Control.transaction_coordinator)
    move_transaction_coordinator = _command(Control.move_transaction_coordinator)

    # the log
    fail_next_append = _command(Control.fail_next_append)

    def hold_appends(self) -> HeldAppends:
        """Hold appends to ``__consumer_offsets`` until they are released, as a slow log does.

        Requests that wait longer than ``offsets.commit.timeout.ms`` fail.
        """
        return HeldAppends(self)

    # what functions of the test raised
    raise_errors = _command(Control.raise_errors)
