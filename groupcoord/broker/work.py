"""Long work in steps, so that no peer holds up the others.

A handler that passes over what a peer names is a generator: it yields where others may have their turn, and what it
has seen before a yield may be otherwise behind it. What depends on nothing but its arguments (reading a large frame,
writing a large answer, looking into a batch) is a :class:`Job`: the host may have it done in another thread, and a
driver without threads does it in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from groupcoord.errors import InvariantError

E = TypeVar("E")
T = TypeVar("T")

PORTION = 64
"""So many entries of which none takes long are passed over between two yields."""


class Awaited:
    """Something without which work can't go on.

    Attributes:
        is_done: it is there.
        on_done: called when it comes.
    """

    __slots__ = ("is_done", "on_done")

    def __init__(self) -> None:
        self.is_done = False
        self.on_done: Callable[[], None] | None = None

    def done(self) -> None:
        """Say that it is there."""
        self.is_done = True
        if self.on_done is not None:
            self.on_done()


class Token(Protocol):
    """Stands for a request that waits: takes its answer, now or later."""

    def answer(self, response: Any) -> None:
        """Take the answer."""


class Timed(Protocol):
    """A part of a broker that waits for moments."""

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted, in milliseconds of the broker's clock; None if nothing waits."""

    def tick(self, now_ms: int) -> None:
        """Do what is due."""


class Wakes(Timed, Protocol):
    """A part of a broker whose next deadline may come nearer between two calls of :meth:`tick`.

    Attributes:
        on_earlier: called each time that happens; a part that several nodes share has one for each.
    """

    on_earlier: list[Callable[[], None]]


class Waker:
    """Base of parts that call what is in ``on_earlier``; see :class:`Wakes`."""

    def __init__(self) -> None:
        self.on_earlier: list[Callable[[], None]] = []

    def wake_earlier(self) -> None:
        """Announce that the next deadline may have come nearer."""
        for call in self.on_earlier:
            call()


class Answer(Awaited):
    """A token for one of the requests that work consists of.

    Attributes:
        response: the answer, once it is there.
    """

    __slots__ = ("response",)

    def __init__(self) -> None:
        super().__init__()
        self.response: Any = None

    def answer(self, response: Any) -> None:
        """Take the answer."""
        self.response = response
        self.done()


class Job(Awaited):
    """One call of a pure function: it depends on its arguments alone, which nobody changes.

    Args:
        function: what to call; what it raises is raised by :meth:`result`.
        arguments: of the call.
    """

    __slots__ = ("_call", "_error", "_result")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        self._call: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, arguments)
        self._result: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Make the call, in any thread; :meth:`done` is said where the work goes on."""
        call = self._call
        if call is None:
            return
        function, arguments = call
        try:
            self._result = function(*arguments)
        except Exception as error:
            self._error = error

    def drop(self) -> None:
        """Don't make the call if it has not begun: nobody wants its result any more."""
        self._call = None

    def result(self) -> Any:
        """Return what the function returned, once; or raise what it raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result


Work = Generator[Awaited | None, None, T]
"""Yields None where others may have their turn, or what has to be there before it goes on."""


def do_in_place(job: Job) -> None:
    """Do a job at once."""
    job.run()
    job.done()


def run_in_executor(function: Callable[..., T], *arguments: Any) -> Work[T]:
    """Call a pure function, perhaps in another thread."""
    job = Job(function, *arguments)
    try:
        yield job
    finally:
        job.drop()
    result: T = job.result()
    return result


def run_on_entries(function: Callable[..., T], entries: Collection[Any], *arguments: Any) -> Work[T]:
    """Call a pure function of entries and other arguments; of many entries perhaps in another thread."""
    if len(entries) <= PORTION:
        return function(entries, *arguments)
    return (yield from run_in_executor(function, entries, *arguments))


def do_whole(work: Work[T]) -> T:
    """Do work in one go, with its jobs in place, and return what it comes to: where nobody waits for a turn.

    Raises:
        InvariantError: it has to wait for an answer.
    """
    while True:
        try:
            awaited = next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if isinstance(awaited, Job):
            do_in_place(awaited)
        elif awaited is not None and not awaited.is_done:
            raise InvariantError("work that should be done in one go has to wait for an answer")


def do_in_background(work: Work[None], start_job: Callable[[Job], None]) -> None:
    """Do work until it has to wait, and go on when that comes, as often as need be: no connection waits for it.

    Args:
        work: what is to be done; it raises nothing.
        start_job: does a job, or has it done by somebody else, and then says that it is done.
    """
    for awaited in work:
        if isinstance(awaited, Job):
            start_job(awaited)
        if awaited is not None and not awaited.is_done:
            awaited.on_done = partial(do_in_background, work, start_job)
            return


def portions(entries: Sequence[E], size: int = PORTION) -> Sequence[Sequence[E]]:
    """Divide entries into such portions as are passed over in one go; few entries, or none, are one portion, itself.

    Args:
        entries: what is divided.
        size: so many entries are passed over in one go.
    """
    if len(entries) <= size:
        return (entries,)
    return [entries[start : start + size] for start in range(0, len(entries), size)]


def each(entries: Iterable[E], do: Callable[[E], T]) -> Work[tuple[T, ...]]:
    """Do something with each of the entries, and return what came of it; others may have their turn in between."""
    done: list[T] = []
    for entry in entries:
        if done:
            yield None
        done.append(do(entry))
    return tuple(done)


def each_long(entries: Iterable[E], do: Callable[[E], Work[T]]) -> Work[tuple[T, ...]]:
    """Do as :func:`each`, where what is done with an entry is work itself."""
    done: list[T] = []
    for entry in entries:
        if done:
            yield None
        done.append((yield from do(entry)))
    return tuple(done)
