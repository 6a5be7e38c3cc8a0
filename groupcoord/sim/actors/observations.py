"""Observations of a run: owners of partitions, tasks and records, transactions, duplicates and downtime."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import NamedTuple

from attrs import define, evolve, field

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import TxnOffsetCommit
from groupcoord.sim.cluster.share_groups import SharedTopics

RECORD_INTERVAL_MS = 10
"""Interval of the records of each partition, so that offsets correspond to times."""


def head(now_ms: int, start_ms: int) -> int:
    """Return the end offset of a partition in a run that began at ``start_ms``."""
    return (now_ms - start_ms) // RECORD_INTERVAL_MS


@define(eq=False)
class _Turn:
    """Ownership of a partition by a consumer."""

    assigned_ms: int
    first_offset: int | None = None


@define(eq=False)
class PartitionFigures:
    """Figures of a partition of a group.

    Attributes:
        turns: present ownerships by consumer; several while a former owner does not know of its loss.
        furthest_behind_ms: largest age of the first record of a new owner.
        duplicate_ms, longest_duplicate_ms: records that were processed again, as the time in which they were written.
    """

    since_ms: int
    turns: dict[str, _Turn] = field(factory=dict)
    last_consumer: str | None = None
    unowned_since_ms: int | None = None
    unowned_ms: int = 0
    furthest_behind_ms: int = 0
    moves: int = 0
    duplicate_ms: int = 0
    longest_duplicate_ms: int = 0
    processed_to: int = 0
    is_gone: bool = False


class OwnedSpan(NamedTuple):
    """Time for which a consumer owned a partition, in milliseconds since the epoch."""

    partition: TopicPartition
    consumer: str
    start_ms: int
    end_ms: int


@define
class ConsumerFigures:
    """Figures of a group of consumers, and of the transactions that commit its offsets.

    Attributes:
        offsets_waits_ms: time until each owner had the committed offset, or lost the partition.
        transactions_open_ms: time of each transaction from its start to its marker in the log.
        catch_up_ms: for each loss of an owner, the time until the records written meanwhile were processed.
        offsets_late_ms: time of each committed transaction from the decision to the marker.
        most_unowned: largest number of partitions without an owner at the same time.
    """

    most_unowned: int = 0
    rebalance_durations_ms: list[int] = field(factory=list)
    rebalance_causes: Counter[str] = field(factory=Counter)
    offsets_waits_ms: list[int] = field(factory=list)
    transactions_open_ms: list[int] = field(factory=list)
    offsets_late_ms: list[int] = field(factory=list)
    catch_up_ms: list[int] = field(factory=list)


class GroupObservations:
    """Observations of one group and its partitions."""

    def __init__(self, partitions: tuple[TopicPartition, ...], start_ms: int) -> None:
        self.figures = ConsumerFigures()
        self.rebalances: list[tuple[int, int]] = []
        self.owned: list[OwnedSpan] = []
        self.partitions = {partition: PartitionFigures(start_ms) for partition in partitions}
        self._unowned: set[TopicPartition] = set()
        self._behind_since_ms: dict[TopicPartition, int] = {}
        self._start_ms = start_ms
        self._is_watched = False

    def begin(self, now_ms: int) -> None:
        """Start to count time without an owner, at the start of the first consumer."""
        if not self._is_watched:
            self._is_watched = True
            for partition in self.partitions:
                self._begin_wait(partition, now_ms)

    def begin_measuring(self, now_ms: int) -> None:
        self.figures = ConsumerFigures(len(self._unowned))
        self._behind_since_ms = dict.fromkeys(self._behind_since_ms, now_ms)
        for history in self.partitions.values():
            history.unowned_ms = history.moves = history.furthest_behind_ms = 0
            history.duplicate_ms = history.longest_duplicate_ms = 0
            if history.unowned_since_ms is not None:
                history.unowned_since_ms = now_ms

    def add_partitions(self, partitions: tuple[TopicPartition, ...], now_ms: int) -> None:
        for partition in partitions:
            history = self.partitions.setdefault(partition, PartitionFigures(now_ms))
            history.is_gone = False
            history.since_ms = now_ms
            history.processed_to = 0
            if self._is_watched and not history.turns:
                self._begin_wait(partition, now_ms)

    def remove_partitions(self, partitions: tuple[TopicPartition, ...], now_ms: int) -> None:
        for partition in partitions:
            self._end_wait(partition, now_ms)
            self._behind_since_ms.pop(partition, None)
            self.partitions[partition].is_gone = True

    def rebalanced(self, at_ms: int, duration_ms: int, causes: tuple[str, ...]) -> None:
        self.rebalances.append((at_ms - duration_ms, at_ms))
        self.figures.rebalance_durations_ms.append(duration_ms)
        for cause in causes[:1]:
            self.figures.rebalance_causes[cause] += 1

    def transaction_ended(self, open_ms: int, late_ms: int | None) -> None:
        """Note the marker of a transaction; ``late_ms`` counts from the decision to commit."""
        self.figures.transactions_open_ms.append(open_ms)
        if late_ms is not None:
            self.figures.offsets_late_ms.append(late_ms)

    def assigned(self, consumer: str, partition: TopicPartition, now_ms: int) -> None:
        history = self.partitions[partition]
        self._end_wait(partition, now_ms)
        if history.last_consumer not in (None, consumer):
            history.moves += 1
        history.last_consumer = consumer
        history.turns[consumer] = _Turn(now_ms)

    def started(self, consumer: str, partition: TopicPartition, offset: int, now_ms: int) -> None:
        history = self.partitions[partition]
        turn = history.turns.get(consumer)
        if turn is not None:
            if turn.first_offset is None:
                self.figures.offsets_waits_ms.append(now_ms - turn.assigned_ms)
            turn.first_offset = offset
            # A partition that was added during the run has no records from before.
            behind_ms = (head(now_ms, self._start_ms) - offset) * RECORD_INTERVAL_MS
            history.furthest_behind_ms = max(history.furthest_behind_ms, min(behind_ms, now_ms - history.since_ms))

    def caught_up(self, partition: TopicPartition, now_ms: int) -> None:
        since_ms = self._behind_since_ms.pop(partition, None)
        if since_ms is not None:
            self.figures.catch_up_ms.append(now_ms - since_ms)

    def given_up(self, consumer: str, partition: TopicPartition, now_ms: int, processed_to: int | None = None) -> None:
        """Note that a consumer lost a partition; ``processed_to`` is None if it had reached the end."""
        history = self.partitions[partition]
        if consumer not in history.turns:
            return
        self._end_turn(consumer, partition, now_ms, processed_to)
        if not history.turns and not history.is_gone:
            self._begin_wait(partition, now_ms)

    def _end_turn(self, consumer: str, partition: TopicPartition, now_ms: int, processed_to: int | None = None) -> None:
        history = self.partitions[partition]
        turn = history.turns.pop(consumer)
        self.owned.append(OwnedSpan(partition, consumer, turn.assigned_ms, now_ms))
        if turn.first_offset is None:
            self.figures.offsets_waits_ms.append(now_ms - turn.assigned_ms)
        else:
            if processed_to is None:
                processed_to = head(now_ms, self._start_ms)
            again_ms = max(0, min(processed_to, history.processed_to) - turn.first_offset) * RECORD_INTERVAL_MS
            history.duplicate_ms += again_ms
            history.longest_duplicate_ms = max(history.longest_duplicate_ms, again_ms)
            history.processed_to = max(history.processed_to, processed_to)

    def _begin_wait(self, partition: TopicPartition, now_ms: int) -> None:
        self.partitions[partition].unowned_since_ms = now_ms
        self._unowned.add(partition)
        self._behind_since_ms.setdefault(partition, now_ms)
        self.figures.most_unowned = max(self.figures.most_unowned, len(self._unowned))

    def _end_wait(self, partition: TopicPartition, now_ms: int) -> None:
        history = self.partitions[partition]
        if history.unowned_since_ms is not None:
            history.unowned_ms += now_ms - history.unowned_since_ms
            history.unowned_since_ms = None
            self._unowned.discard(partition)

    def finish(self, now_ms: int) -> None:
        for partition, history in self.partitions.items():
            self._end_wait(partition, now_ms)
            for consumer in list(history.turns):
                self._end_turn(consumer, partition, now_ms)


class TransactionState(Enum):
    """State of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transactions:
    """State of the transaction coordinator, which nodes consult before they accept a transactional commit."""

    def __init__(self) -> None:
        self.states: dict[str, TransactionState] = {}
        self._epochs: dict[int, int] = {}

    def begin(self, producer_id: int) -> tuple[int, str]:
        epoch = self._epochs[producer_id] = self._epochs.get(producer_id, -1) + 1
        name = f"t{producer_id}.{epoch}"
        self.states[name] = TransactionState.OPEN
        return epoch, name

    def verify(self, request: TxnOffsetCommit) -> ErrorCode:
        epoch = self._epochs[request.producer_id]
        if request.producer_epoch != epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_open = self.states[f"t{request.producer_id}.{epoch}"] is TransactionState.OPEN
        return ErrorCode.NONE if is_open else ErrorCode.INVALID_TXN_STATE

    def check_read(self, group_id: str, metadata: str) -> None:
        """Check that a fetched offset belongs to no transaction, or to a committed one, by the name in its metadata."""
        state = self.states.get(metadata)
        require(
            state is None or state is TransactionState.COMMITTED,
            f"an offset of {group_id!r} is visible, but its transaction {metadata} is {state and state.value}",
        )


@define
class ShareFigures:
    """Figures of the records of a share group: times since the write of accepted records, and until those of crashed
    members were acquired again.
    """

    redeliveries: int = 0
    done_ms: list[int] = field(factory=list)
    lock_waits_ms: list[int] = field(factory=list)


class ShareRecords:
    """Records of one share group."""

    def __init__(self, group_id: str, topics: tuple[str, ...], shared: SharedTopics) -> None:
        self.figures = ShareFigures()
        self._group_id, self._topics, self._shared = group_id, topics, shared
        self._archived_before = 0
        self._lost_ms: dict[tuple[SharePartitionKey, int], int] = {}

    def begin_measuring(self) -> None:
        self.figures = ShareFigures()
        self._archived_before += self.archived

    @property
    def archived(self) -> int:
        self._shared.follow()
        given_up = self._shared.given_up.items()
        return sum(len(offsets) for key, offsets in given_up if key.group_id == self._group_id) - self._archived_before

    def delivered(self, key: SharePartitionKey, offset: int, count: int, now_ms: int) -> None:
        self.figures.redeliveries += count > 1
        lost_ms = self._lost_ms.pop((key, offset), None)
        if lost_ms is not None:
            self.figures.lock_waits_ms.append(now_ms - lost_ms)

    def lost(self, key: SharePartitionKey, offset: int, now_ms: int) -> None:
        self._lost_ms[key, offset] = now_ms

    def accepted(self, key: SharePartitionKey, offset: int, now_ms: int) -> None:
        self._lost_ms.pop((key, offset), None)
        topic = self._shared.topics.get_by_id(key.topic_id)
        if topic is not None:
            self.figures.done_ms.append(now_ms - self._shared.written_ms[topic.topic_id, key.partition][offset])

    def are_done(self) -> bool:
        """Return whether all records of existing topics are accepted or archived; if so, note their ends."""
        ends = {key: self._shared.end_offset(key) for key in self._shared.keys_of(self._group_id, self._topics)}
        left = {key: end for key, end in ends.items() if self._shared.unfinished(key, end) is not None}
        # A record is archived once its last lock ends. As in Kafka a failed write of that is not retried: then only the
        # leader knows.
        are_done = all(self._shared.start_offset(key) >= end for key, end in left.items())
        if are_done:
            self._shared.worked_off.update({key: end for key, end in ends.items() if key not in left})
        return are_done


CATCH_UP_FACTOR = 10
"""Speed of reading a changelog, relative to the writes."""


@define
class TaskFigures:
    """Figures of a task."""

    unprocessed_ms: int = 0
    moves: int = 0


@define
class _Task:
    """State of a task.

    Attributes:
        ready_ms: time at which the holder has restored the state.
        copies: by instance, the time up to which it has the state, or None for a standby task that is up to date.
    """

    idle_since_ms: int
    holder: int | None = None
    ready_ms: int = 0
    last_holder: int | None = None
    copies: dict[int, int | None] = field(factory=dict)
    figures: TaskFigures = field(factory=TaskFigures)


class StreamsTasks:
    """Tasks of a Kafka Streams application.

    An instance with a new active task first restores its state: nothing with a standby task, the missing part with an
    old state on its disk, and otherwise everything, which takes ``restore_ms``.
    """

    def __init__(self, count: int, start_ms: int, restore_ms: int) -> None:
        self._tasks = {number: _Task(start_ms) for number in range(count)}
        self._restore_ms = restore_ms
        self._finished: list[TaskFigures] | None = None

    def take(self, number: int, instance: int, now_ms: int) -> int:
        task = self._task(number, now_ms)
        restore_ms = self._restoring_ms(task, instance, now_ms)
        if task.last_holder not in (None, instance):
            task.figures.moves += 1
        task.holder = task.last_holder = instance
        task.ready_ms = now_ms + restore_ms
        return restore_ms

    def _task(self, number: int, now_ms: int) -> _Task:
        return self._tasks.setdefault(number, _Task(now_ms))

    def _restoring_ms(self, task: _Task, instance: int, now_ms: int) -> int:
        if not self._restore_ms or (task.last_holder is None and not task.copies):
            return 0  # the changelog is empty
        if instance not in task.copies:
            return self._restore_ms
        copied_ms = task.copies[instance]
        return 0 if copied_ms is None else min(self._restore_ms, (now_ms - copied_ms) // CATCH_UP_FACTOR)

    def give_up(self, number: int, instance: int, now_ms: int) -> None:
        task = self._tasks[number]
        if task.holder != instance:
            return
        if now_ms >= task.ready_ms:
            task.figures.unprocessed_ms += task.ready_ms - task.idle_since_ms
            task.idle_since_ms = task.copies[instance] = now_ms
        task.holder = None

    def copy(self, number: int, instance: int, now_ms: int) -> None:
        self._task(number, now_ms).copies[instance] = None

    def stop_copying(self, number: int, instance: int, now_ms: int) -> None:
        copies = self._tasks[number].copies
        if instance in copies and copies[instance] is None:
            copies[instance] = now_ms

    def holder(self, number: int) -> int | None:
        return self._tasks[number].holder

    def begin_measuring(self, now_ms: int) -> None:
        for task in self._tasks.values():
            task.figures = TaskFigures()
            if task.holder is None or now_ms < task.ready_ms:
                task.idle_since_ms = now_ms
            else:
                task.idle_since_ms = task.ready_ms = now_ms

    def finish(self, now_ms: int) -> list[TaskFigures]:
        """Return the figures of the tasks up to the first call of this method."""
        if self._finished is None:
            self._finished = [evolve(task.figures) for task in self._tasks.values()]
            for task, figures in zip(self._tasks.values(), self._finished, strict=True):
                until_ms = now_ms if task.holder is None else min(now_ms, task.ready_ms)
                figures.unprocessed_ms += max(0, until_ms - task.idle_since_ms)
        return self._finished
