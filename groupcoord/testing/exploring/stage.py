"""Stage of the exploration: a coordinator and its clients on which the steps of a history are played."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from attrs import define, frozen

from groupcoord.analysis.report.text import counted
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.messages import (
    CompleteTransaction,
    DeleteGroups,
    GroupToFetch,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    Response,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)
from groupcoord.laws import check_forgets_topic, errors_in, offsets_of_topic, require, served_partitions
from groupcoord.log_store import LogRecord, LogStore
from groupcoord.testing.exploring.scope import WORDS, HistoryError, Scope, Step, Trace, refusal
from groupcoord.testing.machine.consumers import PRODUCER_EPOCH, TOPIC, ClassicConsumer, Consumer, Sent, in_transaction
from groupcoord.testing.machine.modern_members import Kip848Consumer, ModernMember
from groupcoord.testing.machine.world import World
from groupcoord.testing.topics import Topics

LOG_PARTITION = 0
FIRST_PRODUCER_ID = 7
OUTSIDERS_ID = 6
ONE_OFFSET = (TopicToCommit(TOPIC, (OffsetToCommit(0, 1),)),)
OF_READY_CONSUMERS = ("go", "beat", "commit", "leave", "pause", "fetch", "txn")
"""Steps of a living consumer without a request in flight."""

Law = Callable[["Stage"], None]
"""Law checked after each step; raises :class:`~groupcoord.laws.LawBrokenError`."""

MakeCoordinator = Callable[..., GroupCoordinator]
"""Creates a coordinator from the keyword arguments of :class:`~groupcoord.GroupCoordinator`."""


@define
class Happening:
    """Visible effect of a step.

    Attributes:
        who: the process; empty for the log or other clients.
        what: ``sends``, ``receives``, or (of the log) ``is asked``.
        value: the request, the response or None, or the records.
    """

    step: int
    at_ms: int
    who: str
    what: str
    value: Any


class Stage(World):
    """Coordinator, its log, and one consumer of each process."""

    def __init__(
        self,
        scope: Scope,
        *,
        make_log_store: Callable[[], LogStore] | None = None,
        make_coordinator: MakeCoordinator = GroupCoordinator,
    ) -> None:
        self.scope = scope
        self.group_ids = (scope.group_id,)
        self.processes = {process.name: process for process in scope.processes}
        self.consumers: dict[str, Consumer] = {}
        self.happenings: list[Happening] = []
        self.step = 0
        self._breaks_after: int | None = None
        self._make_log_store = make_log_store
        self.coordinator_type = make_coordinator
        self.begin(scope.config(), log_is_late=scope.log_is_late)

    # ------------------------------------------------------------ the world

    def make_topics(self) -> Topics:
        return Topics(self.scope.topics)

    def make_log_store(self) -> LogStore:
        return super().make_log_store() if self._make_log_store is None else self._make_log_store()

    def submit(self, request: Request, consumer: Consumer | None = None) -> Sent:
        self._note("sends", request, consumer)
        return super().submit(request, consumer)

    def on_answer(self, sent: Sent, response: Response | None) -> None:
        self._note("receives", response, sent.consumer)
        super().on_answer(sent, response)

    def on_append(self, records: Sequence[LogRecord]) -> None:
        self._note("is asked", tuple(entry.record for entry in records), None)
        super().on_append(records)

    def _note(self, what: str, value: Any, consumer: Consumer | None) -> None:
        who = "" if consumer is None else consumer.name
        self.happenings.append(Happening(self.step, self.clock.now_ms(), who, what, value))

    def delete_topic(self, name: str) -> None:
        committed, before = offsets_of_topic(self.coordinator, self.topics.ids[name]), len(self.happenings)
        super().delete_topic(name)
        written = [seen.value for seen in self.happenings[before:] if seen.what == "is asked"]
        check_forgets_topic(committed, (record for records in written for record in records))

    # ------------------------------------------------------------ steps

    def do(self, step: Step) -> None:
        """Take a step, and fire due timers; an impossible step has no effect."""
        operands: list[Any] = list(step.operands)
        names_process = bool(operands) and "process" in WORDS[step.word].operands[0]
        if names_process and operands[0] not in self.processes:
            raise HistoryError(f"there is no process {operands[0]!r}; there are {', '.join(self.processes)}")
        is_possible = True
        if names_process and step.word in OF_READY_CONSUMERS:
            consumer = operands[0] = self.consumers.get(operands[0])
            is_possible = consumer is not None and consumer.is_alive and not consumer.is_waiting
        if is_possible:
            getattr(self, f"_{step.word}")(*operands)  # each of WORDS has a method
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.clock.now_ms():
            self.sleep(0)
        self.step += 1

    def _start(self, name: str) -> None:
        self._die(name)
        started = self.processes[name].consumer(self.scope.group_id, self.new_member_id(f"{name}-own"))
        self.consumers[name] = self.start_consumer(started)
        self.go_on(started)

    def _die(self, name: str) -> None:
        consumer = self.consumers.pop(name, None)
        if consumer is not None:
            consumer.is_alive = False
            self._hang_up(consumer)

    def _hang_up(self, consumer: Consumer) -> None:
        for sent in self.fleet.outstanding.values():
            if sent.consumer is consumer:
                sent.consumer = None

    def _retry(self, name: str) -> None:
        consumer = self.consumers.get(name)
        if consumer is not None and consumer.is_waiting:
            self._hang_up(consumer)
            consumer.is_waiting = False
            self.go_on(consumer)

    def _go(self, consumer: Consumer) -> None:
        self.go_on(consumer)

    def _beat(self, consumer: Consumer) -> None:
        if isinstance(consumer, ClassicConsumer | Kip848Consumer) and consumer.member_id:
            self.submit(consumer.heartbeat())

    def _commit(self, consumer: Consumer | None = None) -> None:
        if consumer is None:
            self.submit(OffsetCommit(self.scope.group_id, ONE_OFFSET))
        else:
            self.go_on(consumer, commits=True)

    def _leave(self, consumer: Consumer) -> None:
        super().leave(consumer)
        self._die(consumer.name)

    def _pause(self, consumer: Consumer) -> None:
        if isinstance(consumer, Kip848Consumer):
            self.submit(consumer.leave_request(for_good=False), consumer)
            self._die(consumer.name)

    def _fetch(self, consumer: Consumer) -> None:
        if isinstance(consumer, Kip848Consumer):
            self.submit(consumer.fetch_request())
        else:
            self.submit(OffsetFetch((GroupToFetch(self.scope.group_id, None),)))

    # ------------------------------------------------------------ time, the log, the coordinator

    def _time(self, duration_ms: int | None = None) -> None:
        self.sleep(self.scope.step_ms if duration_ms is None else duration_ms)

    def _sweep(self) -> None:
        for partition in served_partitions(self.coordinator):
            deadline_ms = partition.administration.timer.deadline_ms
            if deadline_ms is not None:
                self.sleep(deadline_ms - self.clock.now_ms())

    def _ack(self, count: int = 1) -> None:
        self.write(count)

    def _refuse(self, error: str | None = None) -> None:
        self.refuse(refusal(error), 1)

    def _lose(self, fate: str = "written") -> None:
        if self.store.waiting():
            self.pass_on(self.store.time_out(is_written=fate == "written"))

    def _fail(self, error: str | None = None) -> None:
        self.store.fail_next(refusal(error))

    def _crash(self, written: int = 0) -> None:
        self.kill(written)
        self._load()

    def _move(self, written: int = 0) -> None:
        self._unload()
        self.store.write(written)
        self._load()

    def _unload(self, what: str = "leader") -> None:
        """Unload the log partition; unless ``what`` is ``leader``, the node has no replica and gets no epoch."""
        self.leader_epoch += 1
        self.coordinator.unload(LOG_PARTITION, self.leader_epoch if what == "leader" else None)
        self.deliver()
        require(self.coordinator.partition(LOG_PARTITION) is None, "the log partition was unloaded, but is served")

    def _load(self) -> None:
        """Load the log partition, which fails only if the history breaks its read."""
        self.store.lose()
        breaks_after, self._breaks_after = self._breaks_after, None
        if breaks_after is None:
            self.load(LOG_PARTITION)
            return
        self.store.break_next_read(breaks_after)
        with suppress(LoadError):
            self.try_to_load(LOG_PARTITION)

    def _read_breaks(self, record_count: int) -> None:
        self._breaks_after = record_count

    def _recover(self) -> None:
        self.recover()
        if any(isinstance(consumer, ModernMember) for consumer in self.consumers.values()):
            for consumer in self.fleet.living(self.scope.group_id):
                require(consumer.phase == "stable", f"{consumer} does not become stable")
        else:
            self.check_all_are_served(self.scope.group_id)

    # ------------------------------------------------------------ transactions, administrators

    def _txn(self, consumer: Consumer | None = None) -> None:
        if consumer is None:
            self.submit(TxnOffsetCommit(self.scope.group_id, ONE_OFFSET, OUTSIDERS_ID, PRODUCER_EPOCH))
        elif (commit := consumer.commit()) is not None:
            transaction = in_transaction(commit, self._producer_id(consumer.name), f"of {consumer.name}")
            self.submit(transaction, consumer)

    def _producer_id(self, name: str) -> int:
        return FIRST_PRODUCER_ID + list(self.processes).index(name)

    def _marker(self, name: str, outcome: str) -> None:
        self.submit(CompleteTransaction(LOG_PARTITION, self._producer_id(name), PRODUCER_EPOCH, outcome == "commit"))

    def _delete(self, topic: str | None = None) -> None:
        group_id = self.scope.group_id
        if topic is None:
            self.submit(DeleteGroups((group_id,)))
        else:
            indexes = tuple(range(self.topics.partition_count(topic) or 1))
            self.submit(OffsetDelete(group_id, (TopicToDelete(topic, indexes),)))

    def _topic(self, change: str, name: str, count: int = 1) -> None:
        is_there = name in self.topics.ids
        require(is_there or change != "grow", f"{name!r} cannot grow: the topic does not exist")
        if change == "create" and not is_there:
            self.create_topic(name, count)
        elif change == "grow":
            self.grow_topic(name, count)
        elif change == "delete" and is_there:
            self.delete_topic(name)


@frozen
class BrokenLaw:
    """Broken law.

    Attributes:
        step: number of the step, from 0.
        law: name of the check, such as ``check_tokens``.
    """

    step: int
    law: str
    message: str

    @classmethod
    def of(cls, error: BaseException, step: int) -> BrokenLaw:
        return cls(step, law_of(error), f"{type(error).__name__}: {error}")


@frozen
class Played:
    """Result of a played history.

    Attributes:
        broken: the first broken law, which ended the play, or None.
    """

    trace: Trace
    happenings: tuple[Happening, ...]
    broken: BrokenLaw | None


def play(
    trace: Trace,
    *,
    make_log_store: Callable[[], LogStore] | None = None,
    make_coordinator: MakeCoordinator = GroupCoordinator,
    laws: Iterable[Law] = (),
    watch: Callable[[Stage, int], Any] = lambda stage, number: None,
) -> Played:
    """Play a history and check every law after each step.

    Args:
        trace: the history.
        make_log_store: creates the log store under test; default: in memory.
        make_coordinator: creates the coordinator under test from keyword arguments; default: groupcoord's.
        laws: further laws.
        watch: called with the stage and the step's number after each step, before the laws are checked.

    Returns:
        The visible effects, and the first broken law.

    Raises:
        HistoryError: the history is invalid.
    """
    stage = Stage(trace.scope, make_log_store=make_log_store, make_coordinator=make_coordinator)
    broken = None
    for number, step in enumerate(trace.steps):
        try:
            stage.do(step)
            watch(stage, number)
            stage.check_laws()
            for law in laws:
                law(stage)
        except HistoryError:
            raise
        except Exception as error:  # an exception of the core is a broken law, too
            broken = BrokenLaw.of(error, number)
            break
    return Played(trace, tuple(stage.happenings), broken)


def law_of(error: BaseException) -> str:
    """Return the innermost check that raised an exception, or else the raising function."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    checks = [name for name in names if name.startswith("check")]
    return checks[-1] if checks else next((name for name in reversed(names) if name != "require"), "")


RECEIVES, IS_ASKED = "receives", "is asked"
REPEATED_MAX = 12
"""Limit on lines shown of a step."""

GROUPS = ("ConsumerGroup", "ShareGroup", "StreamsGroup")
"""Prefixes that are omitted from names of records."""


@frozen
class Line:
    """Visible effect as text."""

    who: str
    what: str
    text: str
    is_error: bool = False

    @property
    def is_append(self) -> bool:
        return self.what == IS_ASKED

    def __str__(self) -> str:
        if self.is_append:
            return f"the log receives {self.text}"
        return f"{self.who or 'somebody'} {self.what} {self.text}"


@frozen
class StoryStep:
    """Step with its effects."""

    step: str
    at_ms: int
    lines: tuple[Line, ...]
    state: str

    @property
    def shown(self) -> tuple[Line, ...]:
        return self.lines[:REPEATED_MAX]


@frozen
class Story:
    """Played history as text, up to the step that broke a law."""

    processes: tuple[str, ...]
    steps: tuple[StoryStep, ...]
    law: str = ""
    message: str = ""


def draw_story(trace: Trace, **options: Any) -> Story:
    states: dict[int, tuple[int, str]] = {}

    def watch(stage: Stage, number: int) -> None:
        states[number] = stage.clock.now_ms(), _state_of(stage)

    played = play(trace, watch=watch, **options)
    seen, broken = played.happenings, played.broken or BrokenLaw(len(trace.steps) - 1, "", "")
    start_ms = seen[0].at_ms if seen else 0
    steps = []
    for number, step in enumerate(trace.steps[: broken.step + 1]):
        at_ms, state = states.get(number, (start_ms, ""))
        lines = tuple(_line(happening) for happening in seen if happening.step == number)
        steps.append(StoryStep(str(step), max(at_ms - start_ms, 0), lines, state))
    return Story(tuple(process.name for process in trace.scope.processes), tuple(steps), broken.law, broken.message)


def _line(happening: Happening) -> Line:
    is_answer = happening.what == RECEIVES and happening.value is not None
    errors = ", ".join(error.name for error in (errors_in(happening.value) if is_answer else ()))
    return Line(happening.who, happening.what, _short(happening) + (f": {errors}" if errors else ""), bool(errors))


def _short(happening: Happening) -> str:
    value = happening.value
    if happening.what == IS_ASKED:
        kinds = Counter(_kind(record) for record in value)
        return ", ".join(kind if count == 1 else f"{count} {kind}s" for kind, count in kinds.items())
    if value is None:
        return "nothing, ever"
    parts = [type(value).__name__.removesuffix("Response")]
    for name, word in (("generation_id", "generation"), ("member_epoch", "epoch")):
        number = getattr(value, name, None)
        if number is not None and number != -1:
            parts.append(f"{word} {number}")
    if happening.what == RECEIVES and getattr(value, "member_id", None):
        parts.append(f"as {value.member_id}")
    return " ".join(parts)


def _kind(record: Any) -> str:
    name = type(record).__name__.removesuffix("Record")
    return next((name.removeprefix(group) for group in GROUPS if name.startswith(group)), name)


def _state_of(stage: Stage) -> str:
    parts = []
    for partition in served_partitions(stage.coordinator):
        for group in partition.groups.values():
            members = group.members if hasattr(group, "members") else group.state.members  # type: ignore[attr-defined]
            parts.append(f"{group!r} of {', '.join(members) or 'nobody'}")
    if not any(True for _ in served_partitions(stage.coordinator)):
        parts.append("not served here")
    parts = parts or ["no group"]
    written, waiting = sum(1 for _ in stage.store.store.read(LOG_PARTITION)), len(stage.store.waiting())
    parts.append(
        f"{counted(written, 'record')} in the log" + (f", {counted(waiting, 'append')} on the way" if waiting else "")
    )
    return "; ".join([*parts, *(_of_consumer(name, consumer) for name, consumer in stage.consumers.items())])


def _of_consumer(name: str, consumer: Consumer) -> str:
    owned = getattr(consumer, "owned", None) or ()
    indexes = [index for each in owned.values() for index in each] if isinstance(owned, dict) else owned
    has = f" and has {', '.join(map(str, sorted(indexes)))}" if indexes else ""
    return f"{name} is {consumer.phase}{has}{', and waits' if consumer.is_waiting else ''}"


# ---------------------------------------------------------------- in lines


def in_lines(story: Story) -> Iterable[str]:
    for number, entry in enumerate(story.steps, 1):
        yield f"{number:>3}. {entry.step:<24} {entry.at_ms / 1000:>8.1f} s"
        for seen in entry.shown:
            yield f"       {seen}"
        if len(entry.lines) > len(entry.shown):
            yield f"       and {len(entry.lines) - len(entry.shown)} more"
        if entry.state:
            yield f"       {entry.state}"
    yield f"     BROKEN {story.law}: {story.message}" if story.law else "     every law holds"
