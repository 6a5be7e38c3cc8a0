"""What a run is judged by: who owned which partition when, what moved, and what was processed twice."""

from __future__ import annotations

from typing import NamedTuple

from attrs import define, field

from groupcoord.core.consumer_protocol import TopicPartition

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
