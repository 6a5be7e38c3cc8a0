"""The tasks of a simulated application of Kafka Streams: who processes which, and for how long nobody does."""

from __future__ import annotations

from attrs import define, evolve, field

CATCH_UP_FACTOR = 10
"""Records are read from a changelog so many times as fast as they were written to it."""


@define
class TaskFigures:
    """What became of one task.

    Attributes:
        unprocessed_ms: how long nobody processed it, all in all.
        moves: how often it went to another instance.
    """

    unprocessed_ms: int = 0
    moves: int = 0


@define
class _Task:
    """One task.

    Attributes:
        holder: the instance that has it active; None: nobody.
        ready_ms: when the holder has, or will have, its state.
        idle_since_ms: since when nobody has processed it; of no meaning while it is processed.
        last_holder: who had it last.
        copies: by instance, up to when it has the state; None: it keeps up, with a standby task.
    """

    idle_since_ms: int
    holder: int | None = None
    ready_ms: int = 0
    last_holder: int | None = None
    copies: dict[int, int | None] = field(factory=dict)
    figures: TaskFigures = field(factory=TaskFigures)


class StreamsTasks:
    """All tasks of an application.

    An instance that gets an active task first reads of its changelog what it lacks: nothing if it has had a standby
    task, what came since if it has an old state on its disk, all if it has none.

    Args:
        count: how many there are at first.
        start_ms: when the application starts.
        restore_ms: how long it takes to read a whole changelog; 0: tasks have no state.
    """

    def __init__(self, count: int, start_ms: int, restore_ms: int) -> None:
        self._tasks = {number: _Task(start_ms) for number in range(count)}
        self._restore_ms = restore_ms
        self._finished: list[TaskFigures] | None = None

    def take(self, number: int, instance: int, now_ms: int) -> int:
        """An instance has got a task to process; return how long it has to read before it can."""
        task = self._task(number, now_ms)
        restore_ms = self._restoring_ms(task, instance, now_ms)
        if task.last_holder not in (None, instance):
            task.figures.moves += 1
        task.holder = task.last_holder = instance
        task.ready_ms = now_ms + restore_ms
        return restore_ms

    def _task(self, number: int, now_ms: int) -> _Task:
        """Return a task; one that nobody has had yet may have come with a topic that has grown."""
        return self._tasks.setdefault(number, _Task(now_ms))

    def _restoring_ms(self, task: _Task, instance: int, now_ms: int) -> int:
        if not self._restore_ms or (task.last_holder is None and not task.copies):
            return 0  # nobody has written anything yet
        if instance not in task.copies:
            return self._restore_ms
        copied_ms = task.copies[instance]
        return 0 if copied_ms is None else min(self._restore_ms, (now_ms - copied_ms) // CATCH_UP_FACTOR)

    def give_up(self, number: int, instance: int, now_ms: int) -> None:
        """An instance does not process a task any more, and has its state as it is now."""
        task = self._tasks[number]
        if task.holder != instance:
            return
        if now_ms >= task.ready_ms:
            task.figures.unprocessed_ms += task.ready_ms - task.idle_since_ms
            task.idle_since_ms = task.copies[instance] = now_ms
        task.holder = None

    def copy(self, number: int, instance: int, now_ms: int) -> None:
        """An instance keeps the state of a task from now on, as a standby."""
        self._task(number, now_ms).copies[instance] = None

    def stop_copying(self, number: int, instance: int, now_ms: int) -> None:
        """An instance keeps up no longer."""
        copies = self._tasks[number].copies
        if instance in copies and copies[instance] is None:
            copies[instance] = now_ms

    def holder(self, number: int) -> int | None:
        """Return the instance that has a task active; None: nobody."""
        return self._tasks[number].holder

    def begin_measuring(self, now_ms: int) -> None:
        """Forget what was until now."""
        for task in self._tasks.values():
            task.figures = TaskFigures()
            if task.holder is None or now_ms < task.ready_ms:
                task.idle_since_ms = now_ms
            else:
                task.idle_since_ms = task.ready_ms = now_ms

    def finish(self, now_ms: int) -> list[TaskFigures]:
        """Return what became of the tasks until now, or until this was asked for the first time."""
        if self._finished is None:
            self._finished = [evolve(task.figures) for task in self._tasks.values()]
            for task, figures in zip(self._tasks.values(), self._finished, strict=True):
                until_ms = now_ms if task.holder is None else min(now_ms, task.ready_ms)
                figures.unprocessed_ms += max(0, until_ms - task.idle_since_ms)
        return self._finished
