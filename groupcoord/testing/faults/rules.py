"""Rules of faults: requests as rules see them, conditions, and the interceptor that applies the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any
from uuid import UUID

from attrs import define, evolve, field

from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.router.authorization import Principal
from groupcoord.core.share_partition.in_flight import Acknowledgement, AcknowledgeType
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import ErrorCode, GroupcoordError, UnknownNameError, did_you_mean
from groupcoord.testing.faults.error_answers import (
    NAMING_PARTITIONS,
    Place,
    merge,
    named_partitions,
    refuse,
    refuse_topics,
    refused,
    request_types,
    response_name,
    without,
)
from groupcoord.wire import Answered, RequestHeader, WireResponse
from groupcoord.wire.api import Api
from groupcoord.wire.broker_messages import Fetch, Metadata, MetadataResponse, Produce
from groupcoord.wire.registry import APIS
from groupcoord.wire.share_messages import ShareFetch, ShareFetchResponse


class Outcome(Enum):
    """Decision of a rule on a request."""

    ANSWERED = "answered"
    REFUSED = "refused"  # the response is derived from the broker's
    DROPPED = "dropped"
    DISCONNECTED = "disconnected"


def named_groups(request: Any) -> tuple[str | None, ...]:
    if hasattr(request, "group_id"):
        return (request.group_id,)
    if hasattr(request, "group_ids"):
        return tuple(request.group_ids)
    return tuple(group.group_id for group in getattr(request, "groups", ()))


class Call:
    """Request, and its response once there is one.

    Functions of tests receive it. They decide with :meth:`answer`, :meth:`fail`, :meth:`drop` or :meth:`disconnect`,
    wait with :meth:`delay`, or replace :attr:`request` or :attr:`response`. Without a decision the request continues.

    Attributes:
        api: Kafka's name of the API, such as ``OffsetCommit``.
        client_host: host in Kafka's form: ``/127.0.0.1``.
        node_id: the node that received it.
    """

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Any,
        topics: TopicRegistry,
        node_id: int,
        session: Iterable[Place] = (),
    ) -> None:
        self.api = type(request).__name__
        self.version = header.api_version
        self.client_id = header.client_id
        self.client_host = connection.client_host
        self.principal: Principal = connection.principal
        self.node_id = node_id
        self.connection = connection
        self.steps_left: deque[Callable[[], None]] = deque()
        self.outcome: Outcome | None = None
        self.error_code = ErrorCode.NONE
        self.delay_ms = 0
        self.is_held = False
        self.failed: list[WireResponse] = []
        self._session = session
        self._request = copy(request)  # decoders share one object among equal requests
        self._response: WireResponse | None = None
        self._topics = topics

    @property
    def request(self) -> Any:
        """The decoded request of :mod:`groupcoord.messages` or :mod:`groupcoord.wire`; replaceable before it is
        handled.
        """
        return self._request

    @request.setter
    def request(self, request: Any) -> None:
        if self._response is not None:
            raise ValueError(f"this {self.api} was handled; only its response can be replaced")
        if type(request) is not type(self._request):
            raise TypeError(f"a {self.api} can't become a {type(request).__name__}")
        self._request = request

    @property
    def response(self) -> WireResponse | None:
        """The response before it is sent, which can be replaced; None before the request is handled."""
        return self._response

    @response.setter
    def response(self, response: Any) -> None:
        expected = response_name(self._request)
        if type(response).__name__ != expected:
            raise TypeError(f"a {self.api} is answered with a {expected}, not with {response!r}")
        self._response = response

    @property
    def group_ids(self) -> tuple[str | None, ...]:
        """The groups that the request names."""
        return named_groups(self._request)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the request names by name or id, or that its fetch session holds."""
        return tuple(dict.fromkeys([*self._topic_names(), *(self._name_of(topic) for topic, _ in self._session)]))

    def _topic_names(self) -> Iterator[str]:
        for holder in (self._request, *getattr(self._request, "groups", ())):
            for topic in getattr(holder, "topics", None) or ():
                name = getattr(topic, "name", None) or getattr(topic, "topic", None)
                known = self._topics.get_by_id(getattr(topic, "topic_id", ZERO_UUID))
                if name is not None or known is not None:
                    yield str(name) if known is None else known.name

    @property
    def partitions(self) -> tuple[tuple[str, int], ...]:
        """Topic names and numbers of the partitions in the request or its fetch session."""
        return tuple((self._name_of(topic), index) for topic, index in self._places)

    @property
    def _places(self) -> list[Place]:
        return list(dict.fromkeys([*named_partitions(self._request), *self._session]))

    def _name_of(self, topic: str | UUID) -> str:
        known = self._topics.get_by_id(topic) if isinstance(topic, UUID) else None
        return str(topic) if known is None else known.name

    # ------------------------------------------------------------ decisions

    def answer(self, response: WireResponse) -> None:
        """Send this response; an unhandled request is not handled.

        Raises:
            TypeError: it is not a response of this API.
        """
        self.response = response
        self.outcome = Outcome.ANSWERED

    def fail(self, error_code: ErrorCode) -> None:
        """Respond with an error at the top of the response, or in every entry; an unhandled request is not handled."""
        response = refuse(self._request, error_code)
        if response is not None:
            self.answer(response)
        else:
            self.error_code = error_code
            self.outcome = Outcome.REFUSED

    def fail_partitions(self, error_code: ErrorCode, chosen: Callable[[str, int], bool]) -> None:
        """Respond with an error at some partitions; the others are handled.

        Args:
            error_code: the error.
            chosen: returns whether a partition fails, by topic name and number.
        """
        places = [place for place in self._places if chosen(self._name_of(place[0]), place[1])]
        failed = refused(self._request, places, error_code)
        if self._response is not None:
            self.response = merge(self._response, failed)
        elif len(places) == len(self._places) and not isinstance(self._request, Fetch | ShareFetch):
            self.answer(failed)
        else:
            self.request = without(self._request, lambda topic, index: (topic, index) in places)
            self.failed.append(failed)

    def drop(self) -> None:
        """Never respond, nor to later requests of this connection: a broker answers in order."""
        self.outcome = Outcome.DROPPED

    def disconnect(self) -> None:
        """Close the connection instead of responding."""
        self.outcome = Outcome.DISCONNECTED

    def delay(self, duration_ms: int) -> None:
        """Wait before the next action, by the server's clock.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ms < 0:
            raise ValueError(f"the duration must not be negative: delay({duration_ms})")
        self.delay_ms += duration_ms

    def __repr__(self) -> str:
        answer = "" if self._response is None else f" → {self._response!r}"
        return f"<{self.api} {self.version} of {self.client_id!r}: {self._request!r}{answer}>"


__tracebackhide__ = True

Where = Callable[[Call], object] | Mapping[str, object]
"""Condition on requests: a function, or required values of attributes of :class:`Call` and fields of the request.

``group_id`` and ``topic`` match any group or topic that the request names.
"""

APIS_BY_NAME: Mapping[str, Api] = {api.name: api for api in APIS.values()}

OF_THE_CALL = ("version", "client_id", "client_host", "principal", "node_id")
NAMED_BY_REQUESTS = {"group_id": "group_ids", "topic": "topics"}
PARTITION = "partition"


def _unknown(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    return UnknownNameError(f"there is no {kind} {name!r}{did_you_mean(str(name), known)}")


def api_named(name: str) -> Api:
    api = APIS_BY_NAME.get(name)
    if api is None:
        raise _unknown("API", name, APIS_BY_NAME)
    return api


def error_named(error: ErrorCode | str | int) -> ErrorCode:
    try:
        if isinstance(error, int) and not isinstance(error, bool):
            code = ErrorCode(error)
        else:
            code = ErrorCode[str(getattr(error, "name", error))]
    except (ValueError, KeyError):
        raise _unknown("error", error, ErrorCode.__members__) from None
    if code is ErrorCode.NONE:
        raise UnknownNameError("NONE is no error")
    return code


def describe_where(where: Where | None) -> str:
    if where is None:
        return ""
    if callable(where):
        return f"where {getattr(where, '__name__', 'a function')}() returns true"
    return "where " + ", ".join(f"{name}={value!r}" for name, value in where.items())


def matcher(api: str, where: Where | None) -> Callable[[Call], object]:
    """Return the function that tests requests of an API against a condition.

    Raises:
        UnknownNameError: the requests have no such field.
    """
    if where is None:
        return lambda call: True
    if callable(where):
        return where
    kind = request_types()[api]
    fields = [attribute.name for attribute in kind.__attrs_attrs__] + [PARTITION] * issubclass(kind, NAMING_PARTITIONS)
    for name in where:
        if name not in fields and name not in OF_THE_CALL and name not in NAMED_BY_REQUESTS:
            known = dict.fromkeys((*OF_THE_CALL, *NAMED_BY_REQUESTS, *fields))
            raise UnknownNameError(f"requests of {api} have no {name!r}; they have {', '.join(known)}")
    wanted = dict(where)
    chosen = partition_chooser(where)
    if chosen is not None:
        wanted.pop(PARTITION)
        return lambda call: (
            any(chosen(*place) for place in call.partitions)
            and all(_has(call, name, value) for name, value in wanted.items())
        )
    return lambda call: all(_has(call, name, value) for name, value in wanted.items())


def partition_chooser(where: Where | None) -> Callable[[str, int], bool] | None:
    """Return the function that selects failing partitions; None if ``where`` names none."""
    if where is None or callable(where) or PARTITION not in where:
        return None
    index, topic = where[PARTITION], where.get("topic")
    if not isinstance(index, int) or isinstance(index, bool):
        raise TypeError(f"partition must be a number, not {index!r}")
    return lambda name, number: number == index and topic in (None, name)


def _has(call: Call, name: str, value: object) -> bool:
    if name in NAMED_BY_REQUESTS:
        return value in getattr(call, NAMED_BY_REQUESTS[name])
    return bool(getattr(call if name in OF_THE_CALL else call.request, name) == value)


Action = Callable[[Call], None]

ON_PURPOSE = "injected by a test"


class FaultFunctionError(GroupcoordError):
    """A function of a test raised; the request continued as if there were no function."""


@define(eq=False)
class Rule:
    """Fault of requests of one API, from its creation until its removal.

    Args:
        api: Kafka's name of the API.
        action: applies the fault to a matching request; None holds it until the rule is removed.
        effect: description of the action after the name of the API: ``fails with NOT_COORDINATOR``.
        times: number of requests that it applies to; None for no limit.
        where: condition on requests; None for all.
        after: apply it after the request was handled, before the response is sent.
        node: only requests to this node; None for all.
    """

    api: str
    _action: Action | None
    _effect: str = "is seen"
    _times: int | None = None
    _where: Where | None = None
    after: bool = False
    node: int | None = None
    api_key: int = field(init=False)
    count: int = field(default=0, init=False)
    is_over: bool = field(default=False, init=False)
    has_failed: bool = field(default=False, init=False)
    held: list[Call] = field(factory=list, init=False)
    on_met: Callable[[], None] | None = field(default=None, init=False)
    _matches: Callable[[Call], object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        if self._times is not None and self._times < 1:
            raise ValueError(f"times must be at least 1, not {self._times}")
        self.api_key = api_named(self.api).key
        self._matches = matcher(self.api, self._where)

    @property
    def holds(self) -> bool:
        return self._action is None

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
        """Apply the rule to a call if it matches; return whether it did. FaultFunctionError: a function raised."""
        try:
            if self.is_over or self.node not in (None, call.node_id) or not self._matches(call):
                return False
            self.count += 1
            self.is_over = self.count == self._times
            if self._action is not None:
                self._action(call)
            else:
                call.is_held = True
                self.held.append(call)
        except Exception as error:
            self.has_failed = True
            raise FaultFunctionError(f"a function for {self.api} raised {type(error).__name__}: {error}") from error
        finally:
            if self.on_met is not None:
                self.on_met()
        return True


class Rules:
    """Rules of a server, applied in the order of their creation. ``errors`` of test functions were not raised yet."""

    def __init__(self) -> None:
        self.errors: list[FaultFunctionError] = []
        self._rules: dict[int, list[Rule]] = {}
        self._followers: dict[int, RuleFollower] = {}

    def follow(self, broker: Broker) -> None:
        """Apply the rules at a node, in place of an earlier node with its id."""
        self.forget_node(broker.node.node_id)
        self._followers[broker.node.node_id] = RuleFollower(broker, self)

    def forget_node(self, node_id: int) -> None:
        for rule in self.all():
            rule.held = [call for call in rule.held if call.node_id != node_id]
        self._followers.pop(node_id, None)

    def forget_nodes(self) -> None:
        for node_id in list(self._followers):
            self.forget_node(node_id)

    def add(self, rule: Rule) -> None:
        self._rules.setdefault(rule.api_key, []).append(rule)
        self.update()

    def remove(self, rule: Rule) -> None:
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
        rules = self._rules.get(rule.api_key, [])
        if rule in rules:
            rules.remove(rule)

    def clear(self) -> None:
        for rule in self.all():
            self.remove(rule)

    def all(self) -> list[Rule]:
        return [rule for rules in self._rules.values() for rule in rules]

    def of(self, api_key: int) -> list[Rule]:
        return self._rules.get(api_key, [])

    @property
    def is_empty(self) -> bool:
        return not any(self._rules.values())

    def update(self) -> None:
        for follower in self._followers.values():
            follower.update()

    def take_error(self) -> FaultFunctionError | None:
        return self.errors.pop(0) if self.errors else None


class RuleFollower:
    """Interceptor of a broker; it is installed only while there are rules, so that other traffic is not slowed."""

    def __init__(self, broker: Broker, rules: Rules) -> None:
        self._broker = broker
        self._rules = rules
        self._delayed: list[tuple[int, int, Call]] = []
        self._numbers = count()
        self.update()

    def update(self) -> None:
        self._broker.interceptor = None if self._rules.is_empty and not self._delayed else self

    # ------------------------------------------------------------ for the broker

    def takes(self, connection: Connection, header: RequestHeader, request: Any) -> bool:
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
        self._delayed = [entry for entry in self._delayed if entry[2].connection is not connection]
        self._delayed.sort()
        for rule in self._rules.all():
            rule.held = [call for call in rule.held if call.connection is not connection]

    def next_deadline_ms(self) -> int | None:
        return self._delayed[0][0] if self._delayed else None

    def tick(self, now_ms: int) -> None:
        while self._delayed and self._delayed[0][0] <= now_ms:
            self.go_on(heappop(self._delayed)[2])
        self.update()

    # ------------------------------------------------------------ handling of a call

    def go_on(self, call: Call) -> None:
        if self._is_taken(call):
            return
        if call.response is None:
            if call.failed:
                call.connection.on_answer = partial(self._merge, call, call.connection.on_answer)
            call.connection.go_on(call.request)
        else:
            call.connection.answer(call.response)

    def _merge(self, call: Call, then: Callable[[WireResponse], bool] | None, response: WireResponse) -> bool:
        for failed in call.failed:
            if isinstance(response, ShareFetchResponse) and isinstance(failed, ShareFetchResponse):
                self._release(call.request, response, failed)
            response = merge(response, failed)
        if then is None or not then(response):
            call.connection.answer(response)
        return True

    def _release(self, request: ShareFetch, response: ShareFetchResponse, failed: ShareFetchResponse) -> None:
        """Release the records that a member acquired from failing partitions: the response does not have them."""
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
        """Apply the rules for responses, and return whether the response is sent later, changed or never."""
        call.response = response
        call.steps_left.extend(partial(self._apply, rule, call) for rule in rules)
        if self._is_taken(call):
            return True
        if call.response is response:
            return False
        call.connection.answer(call.response)
        return True

    def _is_taken(self, call: Call) -> bool:
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
        """Respond to Metadata with an error at each topic, without creating topics."""
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
