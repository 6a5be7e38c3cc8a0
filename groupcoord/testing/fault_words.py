"""What a test tells a server of its own to do wrong: the part of ``ServerThread`` that is about faults."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

from groupcoord.errors import ErrorCode
from groupcoord.testing.faults import Call, Control, Rule
from groupcoord.testing.faults.words import Where

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

    def raise_errors(self) -> None:
        """Raise what a function of the test raised in the server's thread. Stopping the server does it as well.

        Raises:
            FaultFunctionError: what it raised is its cause.
        """
        self.control(Control.raise_errors)

    # ------------------------------------------------------------ requests

    def on(
        self,
        api: str,
        function: Callable[[Call], object],
        *,
        where: Where | None = None,
        times: int | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Fault:
        """Call a function for requests of an API: it sees them, changes them, delays, drops or answers them.

        It is called in the server's thread, which serves nobody meanwhile: it must not wait for anything.

        Args:
            api: Kafka's name of the API.
            function: gets the :class:`~groupcoord.testing.faults.Call`. What it returns is the answer: a response, or
                an
                ``ErrorCode`` for one that carries nothing else; None lets the request go on.
            where: which requests are meant; all by default.
            times: how many; all by default.
            after: call it when the request was handled, and its answer is to leave.

        Returns:
            A handle, to count them and to remove the rule.

        Raises:
            UnknownNameError: there is no such API, or its requests have no such field.
        """
        return Fault(self, lambda control: control.on(api, function, where=where, times=times, after=after, node=node))

    def fail_next(
        self,
        api: str,
        error: ErrorCode | str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Fault:
        """Answer the next requests of an API with an error, at every entry where the answer has entries.

        They have no effect, unless ``after`` says that only the answer shall tell so.

        Raises:
            UnknownNameError: there is no such API, error or field.
        """
        return Fault(
            self, lambda control: control.fail_next(api, error, times=times, where=where, after=after, node=node)
        )

    def delay(
        self,
        api: str,
        duration_ms: int,
        *,
        times: int | None = None,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Fault:
        """Let requests of an API wait before they are handled, or (``after``) their answers before they leave.

        As with Kafka, what comes behind them on their connections waits as well. Time is that of the server's clock.
        """
        return Fault(
            self, lambda control: control.delay(api, duration_ms, times=times, where=where, after=after, node=node)
        )

    def hold(
        self,
        api: str,
        *,
        times: int | None = None,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Fault:
        """Let requests of an API, or their answers, wait until the fault is removed."""
        return Fault(self, lambda control: control.hold(api, times=times, where=where, after=after, node=node))

    def drop_next(
        self,
        api: str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Fault:
        """Never answer the next requests of an API, nor anything that comes behind them on their connections."""
        return Fault(self, lambda control: control.drop_next(api, times=times, where=where, after=after, node=node))

    def disconnect_next(
        self,
        api: str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Fault:
        """Close the connections of the next requests of an API instead of an answer."""
        return Fault(
            self, lambda control: control.disconnect_next(api, times=times, where=where, after=after, node=node)
        )

    def drop_connections(self, client_id: str | None = None, *, node: int | None = None) -> int:
        """Break connections off without a word; return how many there were.

        Args:
            client_id: of the clients that called themselves so when they asked for ApiVersions; None: of all.
            node: those to this node; None: to any.
        """
        return self.control(lambda control: control.drop_connections(client_id, node=node))

    def clear_faults(self) -> None:
        """Remove every fault; whatever waits goes on."""
        self.control(Control.clear)

    # ------------------------------------------------------------ groups

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Let a member's session end now, as if it had been silent for too long.

        A classic member whose join or sync waits for others is alive for Kafka, and stays.

        Raises:
            NoSuchMemberError: the group has no such member.
        """
        self.control(lambda control: control.expire_member(group_id, member_id))

    def begin_rebalance(self, group_id: str) -> None:
        """Let a group rebalance though nothing has happened to it.

        Members of a classic group are told to join again, as when their leader has. A consumer group (KIP-848) begins a
        new epoch, whose target its assignor makes; partitions move only if it wants them to.

        Raises:
            NoSuchMemberError: nobody is in the group, it rebalances already, or a write of it is in flight.
        """
        self.control(lambda control: control.begin_rebalance(group_id))

    def coordinator(self, group_id: str) -> int:
        """Return the id of the node that coordinates a group."""
        return self.control(lambda control: control.coordinator(group_id))

    def move_coordinator(self, group_id: str, to: int | None = None) -> int:
        """Let another node coordinate a group; with one node it moves away and back again.

        Whoever waits for it is told NOT_COORDINATOR and looks for it anew. Then the log partition, in which other
        groups may live as well, is loaded from the log: members are in it, and their sessions begin again; what wasn't
        written is lost, such as joins that waited and appends that are held.

        Args:
            group_id: the group.
            to: the node; None: the next one that runs.

        Returns:
            The id of the node.

        Raises:
            NoSuchNodeError: there is no such node, or it does not run, or coordinates the group already.
        """
        return self.control(lambda control: control.move_coordinator(group_id, to))

    # ------------------------------------------------------------ nodes

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the node that leads a partition; -1 while nobody does."""
        return self.control(lambda control: control.leader(topic, partition))

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Let another node lead a partition, with the next leader epoch.

        Args:
            topic: the topic.
            partition: which of its partitions.
            to: the node; None: the next one that runs.

        Returns:
            The id of the node.

        Raises:
            NoSuchPartitionError: there is no such topic, or partition.
            NoSuchNodeError: there is no such node, or it does not run, or leads the partition already.
        """
        return self.control(lambda control: control.move_leader(topic, partition, to))

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the id of the node that coordinates the transactions of a transactional id."""
        return self.control(lambda control: control.transaction_coordinator(transactional_id))

    def move_transaction_coordinator(self, transactional_id: str, to: int | None = None) -> int:
        """Let another node coordinate the transactions of a transactional id, and return its id.

        Raises:
            NoSuchNodeError: there is no such node, or it does not run, or coordinates them already.
        """
        return self.control(lambda control: control.move_transaction_coordinator(transactional_id, to))

    # ------------------------------------------------------------ the log

    def fail_next_append(self, error: ErrorCode | str = ErrorCode.NOT_ENOUGH_REPLICAS, *, times: int = 1) -> None:
        """Let the next appends to ``__consumer_offsets`` fail: nothing is written, and clients are told as by Kafka.

        After KAFKA_STORAGE_ERROR and NOT_LEADER_OR_FOLLOWER clients look for their coordinator anew. After
        REQUEST_TIMED_OUT nobody knows whether it was written, and the log partition is loaded again.

        Raises:
            UnknownNameError: there is no such error, or no append fails with it.
        """
        self.control(lambda control: control.fail_next_append(error, times=times))

    def hold_appends(self) -> HeldAppends:
        """Let appends to ``__consumer_offsets`` wait until they are released, as a slow log does.

        Who waits longer than ``offsets.commit.timeout.ms`` is told so.
        """
        return HeldAppends(self)
