"""The words in which a test says what shall go wrong, for all that runs in the server's thread."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.clock import LeapingClock, ManualClock
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.faults.calls import Call
from groupcoord.faults.log_faults import LogFaults, append_error
from groupcoord.faults.rules import Rule, Rules
from groupcoord.faults.words import Where, error_named
from groupcoord.host.broker import Broker
from groupcoord.host.server import Server

LONGEST_ADVANCE_MS = 3_653 * 24 * 3_600_000
"""What is due every ten minutes would otherwise keep the server for as long as somebody likes."""


class NoSuchMemberError(GroupcoordError, LookupError):
    """There is no such group or member, or it is in no state for that. The message says why."""


class Control:
    """Faults on purpose for a running server. Call everything from the server's thread, and flush afterwards.

    Args:
        server: the server.
        rules: rules that were made before, which outlast a restart.

    Attributes:
        broker: the server's.
        rules: those that hold.
    """

    def __init__(self, server: Server, rules: Rules | None = None) -> None:
        self.rules = Rules() if rules is None else rules
        self.broker: Broker = server.broker
        self._server = server
        self._log_faults = LogFaults(self.broker)
        self.rules.follow(self.broker)

    def flush(self) -> None:
        """Send what there is to say."""
        self._server.flush()

    # ------------------------------------------------------------ requests

    def on(
        self,
        api: str,
        function: Callable[[Call], object],
        *,
        where: Where | None = None,
        times: int | None = None,
        after: bool = False,
    ) -> Rule:
        """Call a function for requests of an API; see :meth:`groupcoord.testing.ServerThread.on`."""

        def act(call: Call) -> None:
            answer = function(call)
            if isinstance(answer, ErrorCode):
                call.fail(answer)
            elif answer is not None:
                call.answer(answer)  # type: ignore[arg-type]  # which checks it

        return self._add(Rule(api, act, where=where, times=times, after=after))

    def fail_next(
        self,
        api: str,
        error: ErrorCode | str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
    ) -> Rule:
        """Answer the next requests of an API with an error."""
        rule = Rule(api, lambda call: call.fail(code), where=where, times=times, after=after)
        code = error_named(error)
        return self._add(rule)

    def delay(
        self,
        api: str,
        duration_ms: int,
        *,
        times: int | None = None,
        where: Where | None = None,
        after: bool = False,
    ) -> Rule:
        """Let requests of an API wait before they are handled, or their answers before they leave."""
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: delay({duration_ms})")
        return self._add(Rule(api, lambda call: call.delay(duration_ms), where=where, times=times, after=after))

    def drop_next(self, api: str, *, times: int | None = 1, where: Where | None = None, after: bool = False) -> Rule:
        """Never answer the next requests of an API."""
        return self._add(Rule(api, Call.drop, where=where, times=times, after=after))

    def disconnect_next(
        self, api: str, *, times: int | None = 1, where: Where | None = None, after: bool = False
    ) -> Rule:
        """Close the connections of the next requests of an API instead of an answer."""
        return self._add(Rule(api, Call.disconnect, where=where, times=times, after=after))

    def hold(self, api: str, *, times: int | None = None, where: Where | None = None, after: bool = False) -> Rule:
        """Let requests of an API wait until the rule is removed."""
        rule = Rule(api, lambda call: rule.hold(call), where=where, times=times, after=after)
        return self._add(rule)

    def _add(self, rule: Rule) -> Rule:
        self.rules.add(rule)
        return rule

    def drop_connections(self, client_id: str | None = None) -> int:
        """Break connections off without a word; return how many there were."""
        return self._server.drop_connections(client_id)

    # ------------------------------------------------------------ groups

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Let a member's session end now, as if it had been silent for too long.

        Raises:
            NoSuchMemberError: the group has no such member.
        """
        if not self.broker.coordinator.end_session(group_id, member_id):
            raise NoSuchMemberError(f"group {group_id!r} has no member {member_id!r}")
        self.broker.deliver_replies()

    def begin_rebalance(self, group_id: str) -> None:
        """Let a group rebalance though nothing has happened to it.

        Raises:
            NoSuchMemberError: nobody is in the group, it rebalances already, or a write of it is in flight.
        """
        if not self.broker.coordinator.begin_rebalance(group_id):
            raise NoSuchMemberError(
                f"group {group_id!r} can't begin a rebalance: nobody is in it, it rebalances already, "
                "or the log is awaited"
            )
        self.broker.deliver_replies()

    def move_coordinator(self, group_id: str) -> None:
        """Let the log partition of a group be given up, and loaded again from the log.

        Raises:
            NoSuchMemberError: the log partition isn't served.
            LoadError: its log can't be read.
        """
        coordinator = self.broker.coordinator
        index = coordinator.partition_of(group_id)
        if coordinator.partition(index) is None:
            raise NoSuchMemberError(f"the log partition of group {group_id!r} isn't served")
        self._log_faults.fence(index)
        coordinator.unload(index)
        self.broker.deliver_replies()
        coordinator.load(index)
        self.broker.deliver_replies()

    # ------------------------------------------------------------ time

    def advance(self, duration_ms: int) -> None:
        """Let time pass on the server's clock; whatever falls due on the way happens at its moment.

        Raises:
            ValueError: the duration is negative, or longer than ten years.
            TypeError: the clock can't be turned.
        """
        clock = self.broker.clock
        if not isinstance(clock, ManualClock | LeapingClock):
            raise TypeError(f"a {type(clock).__name__} can't be turned")
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: advance({duration_ms})")
        if duration_ms > LONGEST_ADVANCE_MS:
            raise ValueError(f"that is longer than ten years: advance({duration_ms})")
        end_ms = clock.now_ms() + duration_ms
        while (due_ms := self.broker.next_deadline_ms()) is not None and due_ms <= end_ms:
            clock.advance_to(max(due_ms, clock.now_ms()))
            self.broker.tick()
            self.broker.handle_waiting()
            self.flush()
        clock.advance_to(max(end_ms, clock.now_ms()))
        self._server.clock_has_leapt()

    # ------------------------------------------------------------ the log

    def fail_next_append(self, error: ErrorCode | str = ErrorCode.NOT_ENOUGH_REPLICAS, *, times: int = 1) -> None:
        """Let the next appends of records of groups and offsets fail."""
        self._log_faults.fail_next(*(append_error(error) for _ in range(times)))

    def hold_appends(self) -> None:
        """Let appends of records of groups and offsets wait from now on."""
        self._log_faults.hold()

    def held_appends(self) -> int:
        """Return how many appends wait."""
        return self._log_faults.waiting()

    def release_appends(self) -> None:
        """Write what waits, and let appends wait no longer."""
        self._log_faults.release()

    def refuse_appends(self, error: ErrorCode | str = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """Refuse the appends that wait."""
        self._log_faults.refuse(append_error(error))

    def clear(self) -> None:
        """Remove every rule, and let go on whatever waits."""
        self.rules.clear()
        self.release_appends()

    def raise_errors(self) -> None:
        """Raise what a function of the test raised, if anything, once.

        Raises:
            FaultFunctionError: what it raised is its cause.
        """
        error = self.rules.take_error()
        if error is not None:
            raise error
