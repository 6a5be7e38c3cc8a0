"""Rules: for requests of one API, what shall happen to them on purpose; and the interceptor that follows the rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from attrs import evolve

from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection
from groupcoord.core.share_partition.in_flight import Acknowledgement, AcknowledgeType
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import GroupcoordError
from groupcoord.testing.faults.calls import Call, Outcome
from groupcoord.testing.faults.error_answers import refuse_topics
from groupcoord.testing.faults.partition_errors import merge
from groupcoord.testing.faults.words import Where, api_named, describe_where, matcher
from groupcoord.wire import Answered, RequestHeader, WireResponse
from groupcoord.wire.broker_messages import Fetch, Metadata, MetadataResponse, Produce
from groupcoord.wire.share_messages import ShareFetch, ShareFetchResponse

Action = Callable[[Call], None]

ON_PURPOSE = "a test has asked for that"


class FaultFunctionError(GroupcoordError):
    """A function of a test raised. The request that it was called for went on as if it weren't there."""


class Rule:
    """What happens to some requests of one API, from the moment at which it is added until it is removed.

    Args:
        api: Kafka's name of the API.
        action: says what is to be done with a request that is met.
        where: which requests are meant; all by default.
        times: how many are met before the rule is over; None: there is no end.
        after: requests are met when they were handled, and before their answers leave; otherwise before they are
            handled.
        node: only requests that come to this node; None: to any.
        effect: what the action does, in words behind the API's name: ``fails with NOT_COORDINATOR``.

    Raises:
        UnknownNameError: there is no such API, or its requests have no such field.
        ValueError: ``times`` is less than one.

    Attributes:
        api: as given.
        after: as given.
        node: as given.
        count: how many requests it has met.
        is_over: it meets no more.
        has_failed: a function of the test has raised.
        holds: calls wait until it is removed.
        held: the calls that wait.
        on_met: is called when a request has been met; None: nobody is.
    """

    def __init__(
        self,
        api: str,
        action: Action,
        *,
        where: Where | None = None,
        times: int | None = None,
        after: bool = False,
        node: int | None = None,
        effect: str = "is seen",
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        self.api = api
        self.api_key = api_named(api).key
        self.after = after
        self.node = node
        self.count = 0
        self.is_over = False
        self.has_failed = False
        self.holds = False
        self.held: list[Call] = []
        self.on_met: Callable[[], None] | None = None
        self._action = action
        self._matches = matcher(api, where)
        self._where = where
        self._times = times
        self._effect = effect

    def __str__(self) -> str:
        parts = [f"{self.api} {self._effect}"]
        if self.after:
            parts.append("after it was handled")
        if self.node is not None:
            parts.append(f"at node {self.node}")
        if self._where is not None:
            parts.append(describe_where(self._where))
        met = f"{self.count}" if self._times is None else f"{self.count} of {self._times}"
        held = f", holds {len(self.held)}" if self.held else ""
        return f"{' '.join(parts)} (met {met}{held})"

    def meets(self, call: Call) -> bool:
        """Apply the rule to a call if it is meant; tell whether it was.

        Raises:
            FaultFunctionError: a function of the test raised.
        """
        try:
            if self.is_over or self.node not in (None, call.node_id) or not self._matches(call):
                return False
            self.count += 1
            self.is_over = self.count == self._times
            self._action(call)
        except Exception as error:
            self.has_failed = True
            raise FaultFunctionError(f"a function for {self.api} raised {type(error).__name__}: {error}") from error
        finally:
            if self.on_met is not None:
                self.on_met()
        return True

    def hold(self, call: Call) -> None:
        """Let a call wait until the rule is removed: an action for rules that hold."""
        call.is_held = True
        self.held.append(call)


class Rules:
    """The rules of a server; those that came first are asked first.

    Attributes:
        errors: what functions of the test raised and nobody was told of yet, see :meth:`take_error`.
    """

    def __init__(self) -> None:
        self.errors: list[FaultFunctionError] = []
        self._rules: dict[int, list[Rule]] = {}
        self._followers: dict[int, RuleFollower] = {}

    def follow(self, broker: Broker) -> None:
        """Let a node follow the rules from now on, instead of the one that had its id before."""
        self.forget_node(broker.node.node_id)
        self._followers[broker.node.node_id] = RuleFollower(broker, self)

    def forget_node(self, node_id: int) -> None:
        """A node is gone; rules stay."""
        for rule in self.all():
            rule.held = [call for call in rule.held if call.node_id != node_id]
        self._followers.pop(node_id, None)

    def forget_nodes(self) -> None:
        """All nodes are gone; rules stay."""
        for node_id in list(self._followers):
            self.forget_node(node_id)

    def add(self, rule: Rule) -> None:
        """Let a rule hold for requests that come from now on."""
        self._rules.setdefault(rule.api_key, []).append(rule)
        self.update()

    def remove(self, rule: Rule) -> None:
        """Let a rule hold no longer; calls that it holds go on."""
        rule.is_over = True
        self.forget(rule)
        held, rule.held = rule.held, []
        for call in held:
            call.is_held = False
            follower = self._followers.get(call.node_id)
            if follower is not None:
                follower.go_on(call)
        self.update()

    def forget(self, rule: Rule) -> None:
        """Let a rule that is over be asked no longer."""
        rules = self._rules.get(rule.api_key, [])
        if rule in rules:
            rules.remove(rule)

    def clear(self) -> None:
        """Remove all rules."""
        for rule in self.all():
            self.remove(rule)

    def all(self) -> list[Rule]:
        """Return the rules that hold."""
        return [rule for rules in self._rules.values() for rule in rules]

    def of(self, api_key: int) -> list[Rule]:
        """Return the rules for an API."""
        return self._rules.get(api_key, [])

    @property
    def is_empty(self) -> bool:
        """True while there is no rule."""
        return not any(self._rules.values())

    def update(self) -> None:
        """See to it that nodes ask while there is a rule or a call that waits, and not otherwise."""
        for follower in self._followers.values():
            follower.update()

    def take_error(self) -> FaultFunctionError | None:
        """Return the oldest error that nobody was told of, and forget it."""
        return self.errors.pop(0) if self.errors else None


class RuleFollower:
    """The interceptor of a broker. It is asked only while there are rules, so that without any nothing is lost."""

    def __init__(self, broker: Broker, rules: Rules) -> None:
        self._broker = broker
        self._rules = rules
        self._delayed: list[tuple[int, int, Call]] = []
        self._numbers = count()
        self.update()

    def update(self) -> None:
        """Be asked, or not."""
        self._broker.interceptor = None if self._rules.is_empty and not self._delayed else self

    # ------------------------------------------------------------ for the broker

    def takes(self, connection: Connection, header: RequestHeader, request: Any) -> bool:
        """Apply the rules. See :class:`~groupcoord.broker.connection.Interceptor`."""
        rules = self._rules.of(header.api_key)
        if not rules or type(request) is Answered:
            return False
        session = getattr(connection, "fetch_session", ()) if isinstance(request, Fetch | ShareFetch) else ()
        call = Call(connection, header, request, self._broker.topics, self._broker.node.node_id, session)
        call.steps_left.extend(partial(self._apply, rule, call) for rule in rules if not rule.after)
        later = [rule for rule in rules if rule.after]
        if later:
            connection.on_answer = partial(self._answered, call, later)
        self.go_on(call)
        return True

    def disconnected(self, connection: Connection) -> None:
        """Forget the calls of a connection that was closed."""
        self._delayed = [entry for entry in self._delayed if entry[2].connection is not connection]
        self._delayed.sort()
        for rule in self._rules.all():
            rule.held = [call for call in rule.held if call.connection is not connection]

    def next_deadline_ms(self) -> int | None:
        """Return when the first delay is over."""
        return self._delayed[0][0] if self._delayed else None

    def tick(self, now_ms: int) -> None:
        """Let calls go on whose delay is over."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            self.go_on(heappop(self._delayed)[2])
        self.update()

    # ------------------------------------------------------------ what becomes of a call

    def go_on(self, call: Call) -> None:
        """Let a call go on, until a rule takes it or it has to wait."""
        if self._is_taken(call):
            return
        if call.response is None:
            if call.failed:
                call.connection.on_answer = partial(self._merge, call, call.connection.on_answer)
            call.connection.go_on(call.request)
        else:
            call.connection.answer(call.response)

    def _merge(self, call: Call, then: Callable[[WireResponse], bool] | None, response: WireResponse) -> bool:
        """Put the errors of single partitions into an answer before it leaves."""
        for failed in call.failed:
            if isinstance(response, ShareFetchResponse) and isinstance(failed, ShareFetchResponse):
                self._release(call.request, response, failed)
            response = merge(response, failed)
        if then is None or not then(response):
            call.connection.answer(response)
        return True

    def _release(self, request: ShareFetch, response: ShareFetchResponse, failed: ShareFetchResponse) -> None:
        """Give back what a member has acquired of partitions that fail: it is not told of these records."""
        places = {(topic.topic_id, p.partition_index) for topic in failed.responses for p in topic.partitions}
        partitions = self._broker.share_requests.partitions
        for topic in response.responses:
            for partition in topic.partitions:
                key = SharePartitionKey(request.group_id or "", topic.topic_id, partition.partition_index)
                led = partitions.known(key) if (topic.topic_id, partition.partition_index) in places else None
                if led is not None and partition.acquired_records:
                    given_back = [
                        Acknowledgement(run.first_offset, run.last_offset, (AcknowledgeType.RELEASE,))
                        for run in partition.acquired_records
                    ]
                    partitions.acknowledge(led, request.member_id or "", given_back, lambda error_code: None)

    def _answered(self, call: Call, rules: list[Rule], response: WireResponse) -> bool:
        """Apply the rules for answers; tell whether the answer comes later, changed or never."""
        call.response = response
        call.steps_left.extend(partial(self._apply, rule, call) for rule in rules)
        if self._is_taken(call):
            return True
        if call.response is response:
            return False
        call.connection.answer(call.response)
        return True

    def _is_taken(self, call: Call) -> bool:
        """Apply the rules that are left, until one decides; tell whether one has, or the call has to wait."""
        while True:
            if call.delay_ms:
                due_ms, call.delay_ms = self._broker.clock.now_ms() + call.delay_ms, 0
                heappush(self._delayed, (due_ms, next(self._numbers), call))
                self._broker.wake_earlier()
                self.update()
                return True
            if call.is_held:
                return True
            if call.outcome is not None:
                self._decide(call)
                return True
            if not call.steps_left:
                return False
            call.steps_left.popleft()()

    def _apply(self, rule: Rule, call: Call) -> None:
        try:
            rule.meets(call)
        except FaultFunctionError as error:
            self._rules.errors.append(error)
        if rule.is_over and not rule.held:
            self._rules.forget(rule)
            self.update()

    def _decide(self, call: Call) -> None:
        outcome, call.outcome = call.outcome, None
        connection, request = call.connection, call.request
        wants_answer = not (type(request) is Produce and request.acks == 0)
        if outcome is Outcome.DISCONNECTED or (outcome is Outcome.ANSWERED and not wants_answer):
            connection.refuse(ON_PURPOSE)
        elif outcome is Outcome.DROPPED:
            connection.on_answer = None
            if not wants_answer:
                connection.skip_answer()
        elif outcome is Outcome.ANSWERED:
            connection.on_answer = None
            connection.answer(call.response)
        else:
            self._refuse_metadata(call)

    def _refuse_metadata(self, call: Call) -> None:
        """Answer Metadata with an error at each topic; none is created for that."""
        if isinstance(call.response, MetadataResponse):
            call.connection.answer(refuse_topics(call.response, call.error_code))
            return
        assert isinstance(call.request, Metadata)

        def spoil(response: WireResponse) -> bool:
            assert isinstance(response, MetadataResponse)
            call.connection.answer(refuse_topics(response, call.error_code))
            return True

        call.connection.on_answer = spoil
        call.connection.go_on(evolve(call.request, allow_auto_topic_creation=False))
