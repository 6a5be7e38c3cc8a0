"""Clients of the kill harness that write records, each to partitions of its own, and what must be there afterwards.

A *writer* sends numbered records, some requests ahead, and sends again what was not answered when it is back: without
idempotence (acks of 1 or all), where records may be there twice, or with it, where each must be there once and in
order. A *transactional writer* writes to two partitions; of each transaction all records are visible, or none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from groupcoord.schema.engine import Values
from tests.client import Fetched, Request, Sender, init_producer_id, only_partition, produce, produced
from tests.crash.clients import NONE, BrokenPromiseError, KillClient
from tests.crash.transactions import TIMEOUT_MS, TransactionalClient, TransactionPromises

TOPIC = "written"
ADD_PARTITIONS_TO_TXN = 24
IN_FLIGHT = 5
START_MS, STEP_MS = 1_700_000_000_000, 1_000
"""Each batch is a second younger than the one before, so that segments are full by their age."""
LARGE_BYTES, LARGE = 40_000, 0.02
LOOK_BACK = 200
"""So many records before the newest that was acknowledged are looked at after each restart; from time to time all."""
ALL_EVERY = 20

Fetch = Callable[[int, int, int], Fetched]
"""Reads a partition from an offset on, with an isolation level."""


class _Batch(NamedTuple):
    """Records that were sent in one request."""

    first: int
    values: list[bytes]


class WrittenPromises:
    """What one writer sent, and what was acknowledged.

    Attributes:
        partition: it alone writes there.
        is_idempotent: each record is there once, and in order.
        producer: id and epoch; None before it has one.
        unanswered: batches, the oldest first.
        acknowledged: offset → value of records that were answered.
    """

    def __init__(self, partition: int, *, is_idempotent: bool, acks: int) -> None:
        self.partition = partition
        self.is_idempotent = is_idempotent
        self.acks = acks
        self.producer: tuple[int, int] | None = None
        self.unanswered: deque[_Batch] = deque()
        self.acknowledged: dict[int, bytes] = {}
        self.sent = 0
        self._check_count = 0

    def check(self, fetch: Fetch) -> None:
        """Compare with what a restarted server has.

        Raises:
            BrokenPromiseError: something is lost, there twice, or out of order.
        """
        self._check_count += 1
        newest = max(self.acknowledged, default=-1)
        begin = 0 if self._check_count % ALL_EVERY == 0 else max(newest - LOOK_BACK, 0)
        found = fetch(self.partition, begin, 0)
        values = {offset: value for offset, value in found.values().items() if offset >= begin}
        if found.error_code != NONE or list(values) != list(range(begin, found.high_watermark)):
            raise BrokenPromiseError(f"partition {self.partition} has a gap, or can't be read: {found[:3]}")
        for offset, value in self.acknowledged.items():
            if offset >= begin and values.get(offset) != value:
                raise BrokenPromiseError(f"partition {self.partition}: record {offset} was acknowledged, and is lost")
        if self.is_idempotent:
            numbers = [_number(value) for value in values.values()]
            if numbers != list(range(begin, found.high_watermark)) or found.high_watermark > self.sent:
                raise BrokenPromiseError(f"partition {self.partition}: records {numbers[-20:]} from {begin} on")


def _number(value: bytes) -> int:
    return int(value.split()[0])


class Writer(KillClient[WrittenPromises]):
    """Writes on and on."""

    def connected(self) -> None:
        """Send again what was not answered, then go on."""
        super().connected()
        promises = self.promises
        if promises.is_idempotent and promises.producer is None:
            self.send(init_producer_id(None, TIMEOUT_MS))
            return
        for batch in promises.unanswered:
            self._send(batch)
        self._send_more()

    def on_response(self, request: Values, response: Values) -> None:
        promises = self.promises
        if promises.is_idempotent and promises.producer is None:
            error, promises.producer = response["error_code"], (response["producer_id"], response["producer_epoch"])
        else:
            error, offset = produced(response)
            batch = promises.unanswered.popleft()
            promises.acknowledged.update(enumerate(batch.values, offset))
        if error != NONE:
            raise BrokenPromiseError(f"partition {promises.partition}: a request failed with {error}")
        self._send_more()

    def _send_more(self) -> None:
        promises = self.promises
        while len(promises.unanswered) < IN_FLIGHT and (not promises.unanswered or self.random.random() < 0.7):
            values = []
            for _ in range(self.random.randint(1, 4)):
                size = LARGE_BYTES if self.random.random() < LARGE else 0
                values.append(b"%d %b" % (promises.sent + len(values), b"x" * size))
            batch = _Batch(promises.sent, values)
            promises.sent += len(values)
            promises.unanswered.append(batch)
            self._send(batch)

    def _send(self, batch: _Batch) -> None:
        promises = self.promises
        sender = Sender() if promises.producer is None else Sender(*promises.producer, batch.first)
        at_ms = START_MS + STEP_MS * batch.first
        self.send(produce(TOPIC, promises.partition, batch.values, at_ms, promises.acks, sender))


class RecordsInTransactions(TransactionPromises):
    """What one transactional writer was promised.

    Attributes:
        partitions: it alone writes there.
        committed: values by partition, in order.
        open: values that were sent in the transaction that is open, by partition.
        sequences: the next one by partition.
    """

    def __init__(self, transactional_id: str, partitions: tuple[int, ...]) -> None:
        super().__init__(transactional_id)
        self.partitions = partitions
        self.committed: dict[int, list[bytes]] = {partition: [] for partition in partitions}
        self.open: dict[int, list[bytes]] = {}
        self.sequences = dict.fromkeys(partitions, 0)

    def ended(self, *, is_committed: bool) -> None:
        if is_committed:
            for partition, values in self.open.items():
                self.committed[partition] += values
        self.open, self.ending = {}, None

    def initialised(self, producer: tuple[int, int]) -> None:
        """Reset the sequences."""
        super().initialised(producer)
        self.sequences = dict.fromkeys(self.partitions, 0)

    def check(self, fetch: Fetch) -> None:
        """Compare with what a restarted server shows, and remember which way an unanswered end went.

        Raises:
            BrokenPromiseError: a transaction is visible in part, too early or not at all, or what was aborted is.
        """
        visible = {partition: list(fetch(partition, 0, 1).values().values()) for partition in self.partitions}
        if visible == self.committed:
            # If an end was sent it was an abort, or did not arrive; a commit is tried again, an abort may have been.
            return
        expected = {partition: values + self.open.get(partition, []) for partition, values in self.committed.items()}
        if not self.ending or visible != expected:
            counts = {partition: len(values) for partition, values in visible.items()}
            wanted = {partition: len(values) for partition, values in self.committed.items()}
            raise BrokenPromiseError(
                f"{self.transactional_id}: {wanted} records were committed, and {counts} are visible (ending: "
                f"{self.ending}, open: {self.open})"
            )
        self.ended(is_committed=True)


class _Step(NamedTuple):
    """A request in a transaction: a partition takes part, or has records written to it."""

    partition: int
    values: tuple[bytes, ...] = ()
    sequence: int = -1


class TransactionalWriter(TransactionalClient[RecordsInTransactions, _Step]):
    """Writes records in one transaction after another."""

    def __init__(self, promises: RecordsInTransactions, seed: str) -> None:
        super().__init__(promises, seed)
        self._written = 0

    def next_steps(self) -> list[_Step]:
        """All partitions take part; which of them are written to is chance."""
        promises, sequences = self.promises, dict(self.promises.sequences)
        steps = [_Step(partition) for partition in promises.partitions]
        for _ in range(self.random.randint(1, 4)):
            partition = self.random.choice(promises.partitions)
            values = tuple(b"%d" % (self._written + number) for number in range(self.random.randint(1, 3)))
            steps.append(_Step(partition, values, sequences[partition]))
            sequences[partition] += len(values)
            self._written += len(values)
        return steps

    def request_of(self, step: _Step) -> Request:
        """Return an AddPartitionsToTxn or a Produce."""
        promises = self.promises
        if not step.values:
            fields = promises.sender_fields("v3_and_below_")
            topics = [{"name": TOPIC, "partitions": [step.partition]}]
            return Request(ADD_PARTITIONS_TO_TXN, 0, {**fields, "v3_and_below_topics": topics})
        if promises.sequences[step.partition] == step.sequence:  # else it is sent again
            promises.open.setdefault(step.partition, []).extend(step.values)
            promises.sequences[step.partition] += len(step.values)
        sender = Sender(*promises.producer, step.sequence, promises.transactional_id)
        at_ms = START_MS + STEP_MS * self._written
        return produce(TOPIC, step.partition, step.values, at_ms, -1, sender)

    def error_of(self, step: _Step, response: Values) -> int:
        if step.values:
            return produced(response)[0]
        partition = only_partition(response["results_by_topic_v3_and_below"], "results_by_partition")
        error: int = partition["partition_error_code"]
        return error
