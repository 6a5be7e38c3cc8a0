"""Long work in steps, the turns in which connections do it, and bounds on requests that are handled in one step.

A handler that loops over entries of a request is a generator: it yields where other connections may have their turn,
and reads again afterwards what they may have changed. A pure function is a :class:`Job`, which the host may run in
another thread. Every other request fails if its arrays hold more entries than can be handled while all other
connections wait. Kafka has no such bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import define, field

from groupcoord.core.columns import OffsetColumns
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    OffsetCommit,
    StreamsGroupHeartbeat,
    SyncGroup,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode, InvariantError
from groupcoord.wire import RequestHeader, WireRequest, decode_request
from groupcoord.wire.api import Answered
from groupcoord.wire.broker_messages import TopicEntry

if TYPE_CHECKING:
    from groupcoord.broker.connection import Connection
    from groupcoord.coordinator import GroupCoordinator
    from groupcoord.coordinator.share_coordinator import ShareCoordinator

E = TypeVar("E")
T = TypeVar("T")

PORTION = 64
"""Number of short steps between two yields."""


class Awaited:
    """Result that work waits for; ``on_done`` is called when it becomes available."""

    __slots__ = ("is_done", "on_done")

    def __init__(self) -> None:
        self.is_done = False
        self.on_done: Callable[[], None] | None = None

    def done(self) -> None:
        # A timer, a change of the log and another partition may end one wait.
        if not self.is_done:
            self.is_done = True
            if self.on_done is not None:
                self.on_done()


class Token(Protocol):
    """Handle of a waiting request."""

    def answer(self, response: Any) -> None:
        """Take the response."""


def deliver_replies(coordinator: GroupCoordinator | ShareCoordinator) -> None:
    """Pass each response that a coordinator has collected to the token of its request."""
    for token, response in coordinator.take_replies():
        token.answer(response)


class Timed(Protocol):
    """Part of a broker with timers."""

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next :meth:`tick` in milliseconds of the broker's clock, or None."""

    def tick(self, now_ms: int) -> None:
        """Run what is due."""


STALE_TIMERS_LIMIT = 64


class Timers:
    """Callbacks by deadline; equal deadlines in the order of :meth:`add`."""

    def __init__(self) -> None:
        self.on_earlier: list[Callable[[], None]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._heap: list[tuple[int, int]] = []  # deadline and number; entries of cancelled timers remain for a while
        self._number = 0

    def wake_earlier(self) -> None:
        for call in self.on_earlier:
            call()

    def add(self, deadline_ms: int, call: Callable[[], None]) -> int:
        self._number += 1
        self._calls[self._number] = call
        heappush(self._heap, (deadline_ms, self._number))
        self.wake_earlier()
        return self._number

    def wait_until(self, deadline_ms: int) -> Work[None]:
        awaited = Awaited()
        self.add(deadline_ms, awaited.done)
        yield awaited

    def cancel(self, number: int) -> None:
        self._calls.pop(number, None)
        # Peers can set timers far in the future and leave.
        if len(self._heap) > 2 * len(self._calls) + STALE_TIMERS_LIMIT:
            self._heap = [entry for entry in self._heap if entry[1] in self._calls]
            heapify(self._heap)

    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][1] not in self._calls:
            heappop(heap)
        return heap[0][0] if heap else None

    def tick(self, now_ms: int) -> None:
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            # Removed first, as the call may cancel its own timer.
            self._calls.pop(heappop(self._heap)[1])()


class Answer(Awaited):
    """Token of a request that is part of larger work."""

    __slots__ = ("response",)

    def __init__(self) -> None:
        super().__init__()
        self.response: Any = None

    def answer(self, response: Any) -> None:
        self.response = response
        self.done()


class Job(Awaited):
    """Call of a pure function. Its arguments must not change."""

    __slots__ = ("_call", "_error", "_result")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        self._call: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, arguments)
        self._result: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        # The event loop may drop it meanwhile.
        call = self._call
        # Its connection was closed.
        if call is None:
            return
        function, arguments = call
        try:
            self._result = function(*arguments)
        except Exception as error:
            self._error = error

    def drop(self) -> None:
        self._call = None

    def result(self) -> Any:
        """Return the function's result, or raise its exception, once."""
        # The traceback would keep the memory of the job's frames.
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result


Work = Generator[Awaited | None, None, T]
"""Yields None where other connections may have their turn, or what it waits for."""


def do_in_place(job: Job) -> None:
    job.run()
    job.done()


def run_in_executor(function: Callable[..., T], *arguments: Any) -> Work[T]:
    """Call a pure function, perhaps in another thread."""
    job = Job(function, *arguments)
    try:
        yield job
    finally:
        # Also when its peer has left.
        job.drop()
    result: T = job.result()
    return result


def run_on_entries(function: Callable[..., T], entries: Collection[Any], *arguments: Any) -> Work[T]:
    """Call a pure function of entries; with many entries perhaps in another thread."""
    if len(entries) <= PORTION:
        return function(entries, *arguments)
    return (yield from run_in_executor(function, entries, *arguments))


def do_whole(work: Work[T]) -> T:
    """Run work to its end without yielding to others, and return its result; InvariantError if it
    waits for a response.
    """
    while True:
        try:
            awaited = next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if isinstance(awaited, Job):
            do_in_place(awaited)
        # The response would never come.
        elif awaited is not None and not awaited.is_done:
            raise InvariantError("work that should be done in one go has to wait for an answer")


def do_in_background(work: Work[None], start_job: Callable[[Job], None]) -> None:
    """Run work that no connection waits for, and that raises nothing; it resumes when the awaited
    result is available.
    """
    # A resumed generator continues after its last yield.
    for awaited in work:
        if isinstance(awaited, Job):
            start_job(awaited)
        if awaited is not None and not awaited.is_done:
            awaited.on_done = partial(do_in_background, work, start_job)
            return


def portions(entries: Sequence[E], size: int = PORTION) -> Sequence[Sequence[E]]:
    """Divide entries into portions of a size; few entries are returned as one portion, unchanged."""
    if len(entries) <= size:
        # Callers test identity, and then do not yield.
        return (entries,)
    return [entries[start : start + size] for start in range(0, len(entries), size)]


def each(entries: Iterable[E], do: Callable[[E], T]) -> Work[tuple[T, ...]]:
    """Call a function on each entry, yielding in between, and return the results."""
    done: list[T] = []
    for entry in entries:
        if done:
            yield None
        done.append(do(entry))
    return tuple(done)


def each_long(entries: Iterable[E], do: Callable[[E], Work[T]]) -> Work[tuple[T, ...]]:
    """Run work on each entry, yielding in between, and return the results."""
    done: list[T] = []
    for entry in entries:
        if done:
            yield None
        done.append((yield from do(entry)))
    return tuple(done)


def each_partition(topics: Iterable[TopicEntry[E]], do: Callable[[str, E], T]) -> Work[tuple[TopicEntry[T], ...]]:
    """Call a function on the name and each partition of topics, yielding in between."""

    def each_of(topic: TopicEntry[E]) -> Work[Any]:
        return topic._replace(partitions=(yield from each(topic.partitions, partial(do, topic.name))))  # type: ignore[arg-type]

    return (yield from each_long(topics, each_of))


def merged(topics: Iterable[TopicEntry[E]]) -> Work[list[TopicEntry[E]]]:
    """Return each topic and each of its partitions once."""
    found: dict[str, dict[E, None]] = {}
    for topic in topics:
        if found:
            yield None
        found.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return [TopicEntry(name, tuple(partitions)) for name, partitions in found.items()]


TURN_S = 0.004
"""Time for requests before responses are sent and sockets are read again."""

PORTION_S = 0.001
"""Time for the requests of one connection before the turn of another one."""

HALF_LIFE_S = 1.0
"""Time after which the cost of past requests counts half."""

LEVELS_S = (0.005, 0.05, 0.3)
"""Bounds between the levels of recent cost."""

PATIENCE_S = 0.02
"""Wait after which the eldest connection gets the second place in a turn."""

_LEVEL_COUNT = len(LEVELS_S) + 1


@define(eq=False, repr=False, weakref_slot=False)
class Turns:
    """Fair scheduler of connections with waiting requests: new requests before unfinished ones, then cheap clients
    before expensive ones, then the longest wait.

    Attributes:
        is_over: True if a new request had to wait because the turn had lasted long enough.
        has_newcomer: set when a connection is accepted.
    """

    now_s: Callable[[], float]
    _until_s: float = field(init=False, default=0.0)
    # New requests, then unfinished ones, each by recent cost.
    _levels: tuple[deque[Connection | Background], ...] = field(
        init=False, factory=lambda: tuple(deque() for _ in range(2 * _LEVEL_COUNT))
    )
    _end_s: float = field(init=False, default=0.0)
    _first: Connection | Background | None = field(init=False, default=None)
    _first_s: float = field(init=False, default=0.0)
    is_over: bool = field(init=False, default=False)
    has_newcomer: bool = field(init=False, default=False)
    waiting: int = field(init=False, default=0)

    def go_first(self, who: Connection | Background, now_s: float) -> bool:
        """Return whether a request that has just arrived is handled without queueing; its cost counts from now on."""
        first = self._first
        if first is not None:
            # Saves a clock reading per request.
            first.cost_s += now_s - self._first_s
        if now_s >= self._end_s:
            # Once per turn, responses are sent before others are handled.
            if self._end_s:
                self.is_over = True
                self._first = None
                return False
            self._end_s = now_s + TURN_S
        # Expensive clients queue behind cheap ones.
        if self.waiting and self._level(who, now_s):
            self._first = None
            return False
        self._first = who
        self._first_s = now_s
        return True

    def begin_portion(self) -> None:
        self._until_s = self.now_s() + PORTION_S

    def is_time_up(self) -> bool:
        return self.now_s() >= self._until_s

    def add(self, who: Connection | Background) -> None:
        if not who.is_queued:
            self._add(who, self.now_s(), 0)

    def _add(self, who: Connection | Background, now_s: float, first_level: int) -> None:
        who.is_queued = True
        who.queued_at_s = now_s
        self.waiting += 1
        self._levels[first_level + self._level(who, now_s)].append(who)

    def run(self) -> bool:
        """Handle waiting requests for one turn; return whether more wait."""
        start_s = now_s = self.now_s()
        if self._first is not None:
            self._first.cost_s += now_s - self._first_s
            self._first = None
        if self.waiting:
            self._promote(now_s)
            end_s = start_s + TURN_S
            # A short turn lets further connections in.
            levels = self._levels[:1] if self.has_newcomer else self._levels
            while now_s < end_s and (level := next(filter(None, levels), None)):
                now_s = self._run_next(level, now_s)
        # The next request to arrive begins a turn.
        self._end_s = 0.0
        self.is_over = False
        self.has_newcomer = False
        return self.waiting > 0

    def _run_next(self, level: deque[Connection | Background], start_s: float) -> float:
        who = level.popleft()
        self._until_s = start_s + PORTION_S
        has_more = who.take_turn()
        now_s = self.now_s()
        # The new cost counts in full.
        self._forget_cost(who, now_s)
        who.cost_s += now_s - start_s
        # During its turn it must not queue itself.
        who.is_queued = False
        self.waiting -= 1
        if has_more:
            self._add(who, now_s, _LEVEL_COUNT)
        return now_s

    def _level(self, who: Connection | Background, now_s: float) -> int:
        # Nearly always.
        if who.cost_s <= LEVELS_S[0]:
            return 0
        self._forget_cost(who, now_s)
        return sum(who.cost_s > bound_s for bound_s in LEVELS_S)

    def _forget_cost(self, who: Connection | Background, now_s: float) -> None:
        who.cost_s *= 0.5 ** ((now_s - who.cost_at_s) / HALF_LIFE_S)
        who.cost_at_s = now_s

    def _promote(self, now_s: float) -> None:
        levels = self._levels
        eldest, eldest_s = levels[0], now_s - PATIENCE_S
        for number, level in enumerate(levels):
            if not level:
                continue
            who = level[0]
            better = levels[number - number % _LEVEL_COUNT + self._level(who, now_s)]
            # Costs fall while connections wait.
            if better is not level:
                better.append(level.popleft())
            elif number and who.queued_at_s <= eldest_s:
                eldest, eldest_s = level, who.queued_at_s
        if eldest is not levels[0]:
            # Cheap requests must not wait behind a portion of long work in every turn.
            levels[0].insert(1, eldest.popleft())


class Background:
    """Work without a connection, done in turns as requests are."""

    def __init__(self, turns: Turns, work: Work[None]) -> None:
        self.cost_s = self.cost_at_s = self.queued_at_s = 0.0
        self.is_queued = False
        self._turns = turns
        self._work = work

    def begin(self) -> None:
        self._turns.add(self)

    def take_turn(self) -> bool:
        for awaited in self._work:
            if awaited is not None and not awaited.is_done:
                # Waiting costs no turns.
                awaited.on_done = self.begin
                return False
            if self._turns.is_time_up():
                return True
        return False


ENTRIES_AT_ONCE = 10_000
"""Most entries of a request that is handled in one step, unless :data:`ENTRIES_MAX` has another number."""

ENTRIES_MAX: Mapping[type, int] = {
    # Kafka refuses as many offsets, too: their records exceed message.max.bytes.
    OffsetCommit: 25_000,
    TxnOffsetCommit: 25_000,
    ConsumerGroupHeartbeat: 20_000,
    StreamsGroupHeartbeat: 25_000,
    SyncGroup: 100_000,
}

_ERRORS = dict.fromkeys((OffsetCommit, TxnOffsetCommit), ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors other than INVALID_REQUEST: that of an append that is too large."""


def entry_limit(request: type, in_portions: Set[type]) -> int | None:
    return None if request in in_portions else ENTRIES_MAX.get(request, ENTRIES_AT_ONCE)


def decode_bounded(
    in_portions: Set[type], frame: bytes, client_host: str
) -> tuple[RequestHeader, WireRequest, Answered | None]:
    """Decode a request, with its refusal if it has too many entries."""
    header, request = decode_request(frame, client_host)
    limit = entry_limit(type(request), in_portions)
    # Answered: the decoder refused it.
    if limit is None or isinstance(request, Answered) or not holds_more(request, limit):
        return header, request, None
    error_code = _ERRORS.get(type(request), ErrorCode.INVALID_REQUEST)
    bounded: Any = request  # Metadata, which has no refusal, is handled in steps
    return header, request, Answered(bounded.refused(error_code))


def holds_more(request: Any, limit: int) -> bool:
    # Counting ends at the limit.
    counts = accumulate(len(array) for array in arrays_of(request))
    return any(count > limit for count in counts)


def arrays_of(value: Any) -> Iterator[Any]:
    """Yield the arrays of a request, at any depth; of offset columns only one."""
    # Not recursive: the peer decides on the depth.
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, OffsetColumns):
            # All columns have the same length.
            yield value[0]
        # A named tuple is an entry with fields.
        elif type(value) in (tuple, list):
            yield value
            # Entries have one type.
            if value and not isinstance(value[0], (str, int, bytes)):
                waiting += value
        elif isinstance(value, tuple):
            waiting += (each for each in value if not isinstance(each, (str, int, bytes)))
        elif hasattr(value, "__attrs_attrs__"):
            fields = (getattr(value, each.name) for each in value.__attrs_attrs__)
            waiting += (each for each in fields if not isinstance(each, (str, int, bytes)))
