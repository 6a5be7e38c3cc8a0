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
    turns: dict[str, _Turn] = field(factory=dict)
    last_consumer: str | None = None
    unowned_since_ms: int | None = None
    unowned_ms: int = 0
    moves: int = 0
    duplicate_records: int = 0
    longest_duplicate_records: int = 0
    processed_to: int = 0
    is_gone: bool = False

    def end_wait(self, now_ms: int) -> None:
        """It is not without an owner any more, or needs none."""
        if self.unowned_since_ms is not None:
            self.unowned_ms += now_ms - self.unowned_since_ms
            self.unowned_since_ms = None


@define(eq=False)
class PartitionFigures:
    """What happened to one partition of one group.

    Attributes:
        unowned_ms: how long no consumer had it, from the first consumer's start on.
        moves: how often it went to another consumer than before.
        duplicate_ms: how much was processed again, as the time in which it was written.
        longest_duplicate_ms: the most that one change of owners made somebody process again.
    """

    unowned_ms: int
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
        self._start_ms = start_ms
        self._histories = {partition: _PartitionHistory() for partition in partitions}
        self._is_watched = False

    def begin(self, now_ms: int) -> None:
        """The group's first consumer starts: from now on a partition should have an owner."""
        if not self._is_watched:
            self._is_watched = True
            for history in self._histories.values():
                history.unowned_since_ms = now_ms

    def begin_measuring(self, now_ms: int) -> None:
        """Forget what was counted so far; who owns what, and how far everybody is, stays."""
        for values in (
            self.rebalance_durations_ms,
            self.offsets_waits_ms,
            self.transactions_open_ms,
            self.offsets_late_ms,
        ):
            values.clear()
        self.rebalance_causes.clear()
        for history in self._histories.values():
            history.unowned_ms = history.moves = 0
            history.duplicate_records = history.longest_duplicate_records = 0
            if history.unowned_since_ms is not None:
                history.unowned_since_ms = now_ms

    def add_partitions(self, partitions: tuple[TopicPartition, ...], now_ms: int) -> None:
        """A topic has grown, or is there again."""
        for partition in partitions:
            history = self._histories.setdefault(partition, _PartitionHistory())
            history.is_gone = False
            history.processed_to = 0
            history.unowned_since_ms = now_ms if self._is_watched and not history.turns else None

    def remove_partitions(self, partitions: tuple[TopicPartition, ...], now_ms: int) -> None:
        """A topic is gone: nobody need own its partitions any more."""
        for partition in partitions:
            history = self._histories[partition]
            history.end_wait(now_ms)
            history.is_gone = True

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
        history.end_wait(now_ms)
        if history.last_consumer not in (None, consumer):
            history.moves += 1
        history.last_consumer = consumer
        history.turns[consumer] = _Turn(now_ms)

    def started(self, consumer: str, partition: TopicPartition, offset: int, now_ms: int) -> None:
        """A consumer begins to process a partition at an offset."""
        turn = self._histories[partition].turns.get(consumer)
        if turn is not None:
            if turn.started_at is None:
                self.offsets_waits_ms.append(now_ms - turn.assigned_ms)
            turn.started_at = offset

    def given_up(self, consumer: str, partition: TopicPartition, now_ms: int, processed_to: int | None = None) -> None:
        """A consumer has a partition no more: revoked, lost, or it died.

        Args:
            consumer: its name.
            partition: which.
            now_ms: when.
            processed_to: the offset up to which it has processed; None: it has kept up with what is written.
        """
        history = self._histories[partition]
        turn = history.turns.pop(consumer, None)
        if turn is None:
            return
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
        if not history.turns and not history.is_gone:
            history.unowned_since_ms = now_ms

    def finish(self, now_ms: int) -> None:
        """The run is over."""
        for partition, history in self._histories.items():
            for consumer in list(history.turns):
                self.given_up(consumer, partition, now_ms)
            history.end_wait(now_ms)

    def figures(self) -> dict[TopicPartition, PartitionFigures]:
        """Return what happened to each partition."""
        return {
            partition: PartitionFigures(
                history.unowned_ms,
                history.moves,
                history.duplicate_records * RECORD_INTERVAL_MS,
                history.longest_duplicate_records * RECORD_INTERVAL_MS,
            )
            for partition, history in self._histories.items()
        }
