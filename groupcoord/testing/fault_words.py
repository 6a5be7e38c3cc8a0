"""What a test tells a server of its own to do wrong: the part of ``ServerThread`` that is about faults."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from groupcoord.errors import ErrorCode
from groupcoord.testing.faults import Control, Rule
from groupcoord.testing.share_words import AcquiredRange, SharedRecords

P = ParamSpec("P")
T = TypeVar("T")

WAIT_TIMEOUT_S = 30.0


class Fault:
    """Something that goes wrong on purpose, until it is removed: ``with server.hold("SyncGroup"): ...``.

    Attributes:
        api: Kafka's name of the API that it is about.
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

    @property
    def count(self) -> int:
        """How many requests it has met."""
        return self._rule.count

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until it has met so many requests.

        Raises:
            TimeoutError: it has not, in this time.
            FaultFunctionError: a function of the test has raised.
        """
        with self._met:
            is_met = self._met.wait_for(lambda: self._rule.count >= count or self._rule.has_failed, timeout_s)
        self._server.raise_errors()
        if not is_met:
            raise TimeoutError(f"{self.count} of {count} requests of {self.api} came within {timeout_s:g} s")

    def remove(self) -> None:
        """Let nothing more go wrong; what was held goes on. Nothing happens if that was done."""
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

    @property
    def count(self) -> int:
        """How many wait."""
        return self._server.control(Control.held_appends)

    def refuse(self, error: ErrorCode | str = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """Refuse those that wait; what comes goes on waiting."""
        self._server.control(lambda control: control.refuse_appends(error))

    def release(self) -> None:
        """Write those that wait, and let none wait any longer."""
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
