"""Observations of a run: owners of partitions, tasks and records, transactions, duplicates and downtime."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from attrs import define, evolve, field

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import TxnOffsetCommit
from groupcoord.sim.cluster.topics import SharedTopics

RECORD_INTERVAL_MS = 10
"""Each partition gets one record in so many milliseconds, so offsets tell time."""


def head(now_ms: int, start_ms: int) -> int:
    """Return the next offset that a partition's producer will write, for a run that began at ``start_ms``."""
    return (now_ms - start_ms) // RECORD_INTERVAL_MS


@define(eq=False)
class _Turn:
    """A consumer's time with a partition; it processes from ``started_at`` on, once it knows where to start."""

    assigned_ms: int
    started_at: int | None = None


@define(eq=False)
class _PartitionHistory:
    since_ms: int
    turns: dict[str, _Turn] = field(factory=dict)
    last_consumer: str | None = None
    unowned_since_ms: int | None = None
    unowned_ms: int = 0
    furthest_behind_ms: int = 0
    moves: int = 0
    duplicate_records: int = 0
    longest_duplicate_records: int = 0
    processed_to: int = 0
    is_gone: bool = False


@define(eq=False)
class PartitionFigures:
    """What happened to one partition of one group.

    Attributes:
        unowned_ms: how long no consumer had it, from the first consumer's start on.
        furthest_behind_ms: how long ago what a consumer began with had been written, at most.
        moves: how often it went to another consumer than before.
        duplicate_ms: how much was processed again, as the time in which it was written.
        longest_duplicate_ms: the most that one change of owners made somebody process again.
    """

    unowned_ms: int
    furthest_behind_ms: int
    moves: int
    duplicate_ms: int
    longest_duplicate_ms: int


class OwnedSpan(NamedTuple):
    """A consumer's time with a partition; in milliseconds since the epoch."""

    partition: TopicPartition
    consumer: str
    start_ms: int
    end_ms: int


class GroupObservations:
    """Watches the partitions of one group, and the transactions that commit its offsets.

    Args:
        partitions: what the group subscribes to.
        start_ms: when the run began.

    Attributes:
        rebalance_durations_ms, rebalance_causes: of all rebalances.
        offsets_waits_ms: how long a consumer waited for the committed offset, each time it was given a partition.
        transactions_open_ms: how long each transaction took, from its begin until its marker was in the log.
        rebalances: begin and end of each, in milliseconds since the epoch.
        owned: who had which partition when, in the order of the ends.
        catch_up_ms: each time that a partition lost its owner, how long it took until what had been written meanwhile
            was done.
        most_unowned: how many partitions had no owner at the same time, at most.
        offsets_late_ms: of each that was committed, how long after the decision that was.
    """

    def __init__(self, partitions: tuple[TopicPartition, ...], start_ms: int) -> None:
        self.rebalance_durations_ms: list[int] = []
        self.rebalance_causes: dict[str, int] = {}
        self.rebalances: list[tuple[int, int]] = []
        self.owned: list[OwnedSpan] = []
        self.offsets_waits_ms: list[int] = []
        self.transactions_open_ms: list[int] = []
        self.offsets_late_ms: list[int] = []
        self.catch_up_ms: list[int] = []
        self.most_unowned = 0
        self._unowned: set[TopicPartition] = set()
        self._behind_since_ms: dict[TopicPartition, int] = {}
        self._start_ms = start_ms
        self._histories = {partition: _PartitionHistory(start_ms) for partition in partitions}
        self._is_watched = False

    def begin(self, now_ms: int) -> None:
        """The group's first consumer starts: from now on a partition should have an owner."""
        if not self._is_watched:
            self._is_watched = True
            for partition in self._histories:
                self._begin_wait(partition, now_ms)

    def begin_measuring(self, now_ms: int) -> None:
        """Forget what was counted so far; who owns what, and how far everybody is, stays."""
        for values in (
            self.rebalance_durations_ms,
            self.offsets_waits_ms,
            self.transactions_open_ms,
            self.offsets_late_ms,
            self.catch_up_ms,
        ):
            values.clear()
        self.rebalance_causes.clear()
        self.most_unowned = len(self._unowned)
        self._behind_since_ms = dict.fromkeys(self._behind_since_ms, now_ms)
        for history in self._histories.values():
            history.unowned_ms = history.moves = history.furthest_behind_ms = 0
            history.duplicate_records = history.longest_duplicate_records = 0
            if history.unowned_since_ms is not None:
                history.unowned_since_ms = now_ms

    def add_partitions(self, partitions: tuple[TopicPartition, ...], now_ms: int) -> None:
        """A topic has grown, or is there again."""
        for partition in partitions:
            history = self._histories.setdefault(partition, _PartitionHistory(now_ms))
            history.is_gone = False
            history.since_ms = now_ms
            history.processed_to = 0
            if self._is_watched and not history.turns:
                self._begin_wait(partition, now_ms)

    def remove_partitions(self, partitions: tuple[TopicPartition, ...], now_ms: int) -> None:
        """A topic is gone: nobody need own its partitions any more."""
        for partition in partitions:
            self._end_wait(partition, now_ms)
            self._behind_since_ms.pop(partition, None)
            self._histories[partition].is_gone = True

    def rebalanced(self, at_ms: int, duration_ms: int, causes: tuple[str, ...]) -> None:
        """A rebalance came to its end."""
        self.rebalances.append((at_ms - duration_ms, at_ms))
        self.rebalance_durations_ms.append(duration_ms)
        for cause in causes[:1]:
            self.rebalance_causes[cause] = self.rebalance_causes.get(cause, 0) + 1

    def transaction_ended(self, open_ms: int, late_ms: int | None) -> None:
        """A transaction's marker is in the log.

        Args:
            open_ms: how long ago it began.
            late_ms: how long ago it was committed; None if it was aborted.
        """
        self.transactions_open_ms.append(open_ms)
        if late_ms is not None:
            self.offsets_late_ms.append(late_ms)

    def assigned(self, consumer: str, partition: TopicPartition, now_ms: int) -> None:
        """A consumer has a partition."""
        history = self._histories[partition]
        self._end_wait(partition, now_ms)
        if history.last_consumer not in (None, consumer):
            history.moves += 1
        history.last_consumer = consumer
        history.turns[consumer] = _Turn(now_ms)

    def started(self, consumer: str, partition: TopicPartition, offset: int, now_ms: int) -> None:
        """A consumer begins to process a partition at an offset."""
        history = self._histories[partition]
        turn = history.turns.get(consumer)
        if turn is not None:
            if turn.started_at is None:
                self.offsets_waits_ms.append(now_ms - turn.assigned_ms)
            turn.started_at = offset
            behind_ms = (head(now_ms, self._start_ms) - offset) * RECORD_INTERVAL_MS
            history.furthest_behind_ms = max(history.furthest_behind_ms, min(behind_ms, now_ms - history.since_ms))

    def caught_up(self, partition: TopicPartition, now_ms: int) -> None:
        """What had been written to a partition while it had no owner is done."""
        since_ms = self._behind_since_ms.pop(partition, None)
        if since_ms is not None:
            self.catch_up_ms.append(now_ms - since_ms)

    def given_up(self, consumer: str, partition: TopicPartition, now_ms: int, processed_to: int | None = None) -> None:
        """A consumer has a partition no more: revoked, lost, or it died.

        Args:
            consumer: its name.
            partition: which.
            now_ms: when.
            processed_to: the offset up to which it has processed; None: it has kept up with what is written.
        """
        history = self._histories[partition]
        if consumer not in history.turns:
            return
        self._end_turn(consumer, partition, now_ms, processed_to)
        if not history.turns and not history.is_gone:
            self._begin_wait(partition, now_ms)

    def _end_turn(self, consumer: str, partition: TopicPartition, now_ms: int, processed_to: int | None = None) -> None:
        """Note what came of a consumer's time with a partition."""
        history = self._histories[partition]
        turn = history.turns.pop(consumer)
        self.owned.append(OwnedSpan(partition, consumer, turn.assigned_ms, now_ms))
        if turn.started_at is None:
            self.offsets_waits_ms.append(now_ms - turn.assigned_ms)
        else:
            if processed_to is None:
                processed_to = head(now_ms, self._start_ms)
            again = max(0, min(processed_to, history.processed_to) - turn.started_at)
            history.duplicate_records += again
            history.longest_duplicate_records = max(history.longest_duplicate_records, again)
            history.processed_to = max(history.processed_to, processed_to)

    def _begin_wait(self, partition: TopicPartition, now_ms: int) -> None:
        """It has no owner, and should have one."""
        self._histories[partition].unowned_since_ms = now_ms
        self._unowned.add(partition)
        self._behind_since_ms.setdefault(partition, now_ms)
        if len(self._unowned) > self.most_unowned:
            self.most_unowned = len(self._unowned)

    def _end_wait(self, partition: TopicPartition, now_ms: int) -> None:
        """It has an owner again, or needs none."""
        history = self._histories[partition]
        if history.unowned_since_ms is not None:
            history.unowned_ms += now_ms - history.unowned_since_ms
            history.unowned_since_ms = None
            self._unowned.discard(partition)

    def finish(self, now_ms: int) -> None:
        """The run is over: what anybody has is not given up for that, and what waits has waited until now."""
        for partition, history in self._histories.items():
            self._end_wait(partition, now_ms)
            for consumer in list(history.turns):
                self._end_turn(consumer, partition, now_ms)

    def figures(self) -> dict[TopicPartition, PartitionFigures]:
        """Return what happened to each partition."""
        return {
            partition: PartitionFigures(
                history.unowned_ms,
                history.furthest_behind_ms,
                history.moves,
                history.duplicate_records * RECORD_INTERVAL_MS,
                history.longest_duplicate_records * RECORD_INTERVAL_MS,
            )
            for partition, history in self._histories.items()
        }


class TransactionState(Enum):
    """Whether a transaction goes on, or how it ended."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@define
class _Producer:
    """What the transaction coordinator knows of a producer."""

    epoch: int = -1
    is_open: bool = False


class Transactions:
    """What the transaction coordinator knows; nodes ask it before they take a transactional commit.

    Attributes:
        states: the name of each transaction → its state.
    """

    def __init__(self) -> None:
        self.states: dict[str, TransactionState] = {}
        self._producers: dict[int, _Producer] = {}

    def begin(self, producer_id: int) -> tuple[int, str]:
        """Begin a producer's next transaction; return its epoch and name."""
        producer = self._producers.setdefault(producer_id, _Producer())
        producer.epoch += 1
        producer.is_open = True
        name = f"t{producer_id}.{producer.epoch}"
        self.states[name] = TransactionState.OPEN
        return producer.epoch, name

    def decide(self, producer_id: int, name: str, state: TransactionState) -> None:
        """Decide a transaction: from now on nothing can be added to it."""
        self._producers[producer_id].is_open = False
        self.states[name] = state

    def verify(self, request: TxnOffsetCommit) -> ErrorCode:
        """Tell whether a producer may commit now, as nodes ask it (see :class:`groupcoord.GroupCoordinator`)."""
        producer = self._producers[request.producer_id]
        if request.producer_epoch != producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.NONE if producer.is_open else ErrorCode.INVALID_TXN_STATE

    def check_read(self, group_id: str, metadata: str) -> None:
        """An offset that a reader is told belongs to no transaction, or to one that was committed."""
        state = self.states.get(metadata)
        require(
            state is None or state is TransactionState.COMMITTED,
            f"an offset of {group_id!r} is visible, but its transaction {metadata} is {state and state.value}",
        )


@define
class ShareFigures:
    """What became of the records of a group.

    Attributes:
        redeliveries: how often somebody got a record that had been delivered before.
        done_ms: of each record that was accepted, how long that took since it was written.
        lock_waits_ms: of each record that somebody had who died: how long it took until another one got it.
    """

    redeliveries: int = 0
    done_ms: list[int] = field(factory=list)
    lock_waits_ms: list[int] = field(factory=list)


class ShareRecords:
    """The records of one share group.

    Args:
        group_id: the group.
        topics: which topics it reads.
        shared: what they hold.

    Attributes:
        figures: since the last :meth:`begin_measuring`.
    """

    def __init__(self, group_id: str, topics: tuple[str, ...], shared: SharedTopics) -> None:
        self.figures = ShareFigures()
        self._group_id, self._topics, self._shared = group_id, topics, shared
        self._archived_before = 0
        self._lost_ms: dict[tuple[SharePartitionKey, int], int] = {}

    def begin_measuring(self) -> None:
        """Forget what was until now."""
        self.figures = ShareFigures()
        self._archived_before += self.archived

    @property
    def archived(self) -> int:
        """How many records were given up since :meth:`begin_measuring`."""
        self._shared.follow()
        given_up = self._shared.given_up.items()
        return sum(len(offsets) for key, offsets in given_up if key.group_id == self._group_id) - self._archived_before

    def delivered(self, key: SharePartitionKey, offset: int, count: int, now_ms: int) -> None:
        """Somebody has got a record, for the how-manieth time."""
        self.figures.redeliveries += count > 1
        lost_ms = self._lost_ms.pop((key, offset), None)
        if lost_ms is not None:
            self.figures.lock_waits_ms.append(now_ms - lost_ms)

    def lost(self, key: SharePartitionKey, offset: int, now_ms: int) -> None:
        """Who has a record is dead."""
        self._lost_ms[key, offset] = now_ms

    def accepted(self, key: SharePartitionKey, offset: int, now_ms: int) -> None:
        """Somebody was told that a record is done."""
        self._lost_ms.pop((key, offset), None)
        topic = self._shared.registry.get_by_id(key.topic_id)
        if topic is not None:
            self.figures.done_ms.append(now_ms - self._shared.written_ms[topic.topic_id, key.partition][offset])

    def are_done(self) -> bool:
        """Tell whether all records of topics that there are were accepted, or given up.

        A record is given up as soon as its last lock is over, whatever the log says (as in Kafka, where such a write is
        not tried again): then only its leader knows, and forgets it with the process.
        """
        ends = {key: self._shared.end_offset(key) for key in self._shared.keys_of(self._group_id, self._topics)}
        left = {key: end for key, end in ends.items() if self._shared.unfinished(key, end) is not None}
        are_done = all(self._shared.start_offset(key) >= end for key, end in left.items())
        if are_done:
            self._shared.worked_off.update({key: end for key, end in ends.items() if key not in left})
        return are_done


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
