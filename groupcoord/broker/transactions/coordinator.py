"""Transaction coordinator without sockets: producer ids, epochs, the end of transactions, and WriteTxnMarkers.

It implements KIP-98, KIP-447 and KIP-890, with the order of checks of ``TransactionCoordinator`` of Apache Kafka 4.4.
Markers go to the logs of a transaction's partitions, and through the :class:`~groupcoord.GroupCoordinator` to the log
partitions of its groups. Changes are in the transaction log before they are answered.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.transactions.log import (
    CLIENT_VERSION,
    CLIENT_VERSION_OF_EPOCHS,
    NoProducerIdError,
    ProducerIds,
    Transaction,
    TransactionLog,
    TransactionLogError,
    TransactionState,
    Writer,
)
from groupcoord.broker.work import (
    Answer,
    Timers,
    Token,
    Work,
    do_in_background,
    do_in_place,
    each_long,
    each_partition,
    run_on_entries,
)
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.javacompat import HashTable, hash_map_order, partition_for, scala_map_order, topic_partition_hash
from groupcoord.core.log.records import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TransactionMarker
from groupcoord.core.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    PartitionResult,
    TxnOffsetCommit,
)
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions, Principal
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.wire.broker_messages import TopicEntry
from groupcoord.wire.transaction_messages import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddedPartitions,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    DescribedTransaction,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    MarkerToWrite,
    PartitionsToAdd,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
    WrittenMarker,
)


def answer_write_txn_markers(
    request: WriteTxnMarkers, submit: Callable[[CompleteTransaction, Token], None], data: TopicData
) -> Work[WriteTxnMarkersResponse]:
    """Write markers to the log partitions of offsets and to the logs of other topics."""

    def write(marker: MarkerToWrite, name: str, index: int) -> tuple[int, Answer]:
        end = marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch
        # Each partition checks producer and coordinator epochs.
        answer, error_code = Answer(), _error(marker, index, data.topics.partition_count(name) or 0)
        if error_code is ErrorCode.NONE and name == OFFSETS_TOPIC:
            submit(CompleteTransaction(index, *end), answer)
        else:
            error_code = error_code or data.append_marker(name, index, TransactionMarker(*end))
            answer.answer(CompleteTransactionResponse(error_code))
        return index, answer

    def result(written: tuple[int, Answer]) -> Work[PartitionResult]:
        index, answer = written
        if not answer.is_done:
            yield answer
        return PartitionResult(index, answer.response.error_code)

    # All are written before the first wait.
    written = yield from each_long(
        request.markers, lambda marker: each_partition(marker.topics, partial(write, marker))
    )
    results: list[WrittenMarker] = []
    for marker, topics in zip(request.markers, written, strict=True):
        found: list[TopicEntry[PartitionResult]] = []
        for name, partitions in topics:
            yield None
            if partitions:
                found.append(TopicEntry(name, (yield from each_long(partitions, result))))
        # As in Kafka, a marker without partitions has no result.
        if found:
            results.append(WrittenMarker(marker.producer_id, tuple(found)))
    return WriteTxnMarkersResponse(tuple(results))


def _error(marker: MarkerToWrite, index: int, count: int) -> ErrorCode:
    if not 0 <= index < count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if marker.producer_id < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else ErrorCode.NONE


logger = logging.getLogger("groupcoord.host")

RETRY_MS = 1_000
"""Pause before failed markers are written again."""

ENDED = frozenset((ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
"""Errors of a marker for a transaction that has ended in its partition, perhaps by another marker."""

NOT_WRITTEN = ErrorCode.COORDINATOR_NOT_AVAILABLE


class TransactionCoordinator:
    """Coordinator of all transactions of a server, shared by its nodes.

    A handler that takes a ``token`` may return None and call ``token.answer(response)`` later. Offsets and markers go
    to the group coordinator of the node that leads their log partition.

    Args:
        serving: returns the group coordinator of a log partition, or None.
        submit: passes a request to it, and delivers its responses.
        topics_created: called when the transaction topic is created.
    """

    def __init__(
        self,
        *,
        producer_ids: ProducerIds,
        data: TopicData,
        serving: Callable[[int], GroupCoordinator | None],
        submit: Callable[[int, Any, Token, Principal], None],
        topics_created: Callable[[Collection[str]], None],
    ) -> None:
        self._config, self._clock = data.config, data.clock
        self._log = TransactionLog(data, on_made=lambda: topics_created((TRANSACTIONS_TOPIC,)))
        self._producer_ids = producer_ids
        self._lines = RateLimitedLogger(logger, burst=1)
        self._refused_count = 0
        self._serving = serving
        self._submit = submit
        self._topics = data.topics
        self._data = data
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, None] = {}
        self._timers = Timers()
        self.on_earlier = self._timers.on_earlier
        self._in_flight: Counter[str] = Counter()
        self._timeout_interval_ms = data.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._expiration_interval_ms = data.config.transaction_remove_expired_transaction_cleanup_interval_ms
        now_ms = data.clock.now_ms()
        self._timeout_check_ms = now_ms + self._timeout_interval_ms
        self._expiration_check_ms = now_ms + self._expiration_interval_ms
        self._unloaded = self._log.partitions()
        self._load()

    def _first_unused_producer_id(self) -> int:
        """Return an id above those in the logs, which a broker may have written."""
        ids = (transaction.producer_id for transaction in self._transactions.values())
        highest = max(ids, default=NO_PRODUCER_ID)
        # Offsets may be of transactions that no coordinator here knows.
        for index in range(self._config.offsets_topic_num_partitions):
            coordinator = self._serving(index)
            partition = None if coordinator is None else coordinator.partition(index)
            if partition is not None:
                highest = max(highest, partition.hard.offsets.producers.highest_id())
                for _, record in partition.snapshot():
                    highest = max(highest, getattr(record, "producer_id", NO_PRODUCER_ID))
        return highest + 1

    # ------------------------------------------------------------ loading

    def _load(self) -> list[Transaction]:
        """Return the transactions of partitions that were not loaded before; those that can't be read now stay."""
        loaded: list[Transaction] = []
        waiting, self._unloaded = self._unloaded, []
        for index in waiting:
            try:
                loaded += self._log.read(index)
            except TransactionLogError as error:
                self._lines.error("not loaded", self._clock.now_ms() / 1000, "transactions are not served: %s", error)
                self._unloaded.append(index)
        for transaction in loaded:
            self._take(transaction)
        return loaded

    def is_loaded(self, transactional_id: str) -> bool:
        return not self._unloaded or self._log.partition_of(transactional_id) not in self._unloaded

    def reload_failed(self) -> None:
        """Load partitions that could not be read, and log omitted lines."""
        self._recover(self._load())
        self._lines.report(self._clock.now_ms() / 1000)

    def recover(self) -> None:
        """Write the markers of transactions that the last process had prepared."""
        self._recover(list(self._transactions.values()))

    def _recover(self, transactions: Iterable[Transaction]) -> None:
        for transaction in transactions:
            if transaction.state.is_prepared:
                self._complete(transaction)

    # ------------------------------------------------------------ time

    def next_deadline_ms(self) -> int | None:
        # Without transactions no timer is due.
        if not self._transactions:
            return None
        deadline_ms = self._expiration_check_ms
        if self._open and self._timeout_check_ms < deadline_ms:
            deadline_ms = self._timeout_check_ms
        retry_ms = self._timers.next_deadline_ms()
        return deadline_ms if retry_ms is None else min(deadline_ms, retry_ms)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._timeout_check_ms:
            self._timeout_check_ms = _next_after(self._timeout_check_ms, self._timeout_interval_ms, now_ms)
            self._abort_timed_out(now_ms)
        self._timers.tick(now_ms)
        if now_ms >= self._expiration_check_ms:
            self._expiration_check_ms = _next_after(self._expiration_check_ms, self._expiration_interval_ms, now_ms)
            self._forget_unused(now_ms)

    def _abort_timed_out(self, now_ms: int) -> None:
        for transactional_id in list(self._open):
            transaction = self._transactions[transactional_id]
            # Offsets on their way would arrive after the marker.
            if transaction.has_timed_out(now_ms) and not self._in_flight[transactional_id]:
                logger.info("transaction of %r timed out after %d ms", transactional_id, transaction.timeout_ms)
                try:
                    self._store(transaction.fenced(now_ms))
                except TransactionLogError:
                    # The next check tries again.
                    continue
                self._complete(self._transactions[transactional_id])

    def _forget_unused(self, now_ms: int) -> None:
        for transactional_id, transaction in list(self._transactions.items()):
            # Open and prepared transactions never expire.
            is_idle = transaction.state.is_complete or transaction.state is TransactionState.EMPTY
            if is_idle and transaction.update_time_ms + self._config.transactional_id_expiration_ms <= now_ms:
                try:
                    self._write(self._log.remove, transactional_id)
                except TransactionLogError:
                    return
                del self._transactions[transactional_id]

    # ------------------------------------------------------------ producers

    def init_producer_id(self, request: InitProducerId) -> InitProducerIdResponse:
        """Return a producer id, and for a transactional id the next epoch. An open transaction is aborted first."""
        # KIP-360: both or neither.
        has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH
        if has_id != has_epoch or request.transactional_id == "":
            return InitProducerIdResponse(ErrorCode.INVALID_REQUEST)
        try:
            if request.transactional_id is None:
                return InitProducerIdResponse(ErrorCode.NONE, self._new_producer_id(), 0)
            if not 0 < request.transaction_timeout_ms <= self._config.transaction_max_timeout_ms:
                return InitProducerIdResponse(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return self._initialise(request.transactional_id, request)
        except TransactionLogError:
            return InitProducerIdResponse(NOT_WRITTEN)

    def _initialise(self, transactional_id: str, request: InitProducerId) -> InitProducerIdResponse:
        now_ms = self._clock.now_ms()
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, self._new_producer_id(), request.transaction_timeout_ms)
        expected_epoch = None
        if request.producer_id != NO_PRODUCER_ID:
            expected_epoch = request.producer_epoch
            # A fenced producer must not wait for the end of a transaction.
            if not transaction.may_resume(request.producer_id, expected_epoch):
                return InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)
        if transaction.state.is_prepared:
            # The completion would overwrite a new epoch.
            return InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is TransactionState.ONGOING:
            # Offsets on their way would arrive after the marker.
            if not self._in_flight[transactional_id]:
                # The client retries.
                self._complete(self._store(transaction.fenced(now_ms)))
            return InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS)
        initialised = transaction.initialised(
            expected_epoch, request.transaction_timeout_ms, now_ms, self._new_producer_id
        )
        if initialised is None:
            return InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)
        self._store(initialised)
        return InitProducerIdResponse(ErrorCode.NONE, initialised.producer_id, initialised.producer_epoch)

    def _new_producer_id(self) -> int:
        try:
            return self._producer_ids.take(self._first_unused_producer_id)
        except NoProducerIdError as error:
            raise self._refused(error) from error

    # ------------------------------------------------------------ partitions

    def add_partitions(
        self, request: AddPartitionsToTxn, permissions: Permissions = UNRESTRICTED
    ) -> Work[AddPartitionsToTxnResponse]:
        """Add partitions to transactions, all of a transaction's or none. Clients need permission to write."""
        asker = None if request.is_from_broker else permissions

        def add(wanted: PartitionsToAdd) -> Work[AddedPartitions]:
            return AddedPartitions(wanted.transactional_id, (yield from self._add_partitions(wanted, asker)))

        return AddPartitionsToTxnResponse((yield from each_long(request.transactions, add)))

    def _add_partitions(
        self, wanted: PartitionsToAdd, permissions: Permissions | None
    ) -> Work[tuple[TopicEntry[PartitionResult], ...]]:
        existence_errors: dict[TopicPartition, ErrorCode] = {}
        for topic in wanted.topics:
            for index in topic.partitions:
                if existence_errors:
                    yield None
                partition = TopicPartition(topic.name, index)
                existence_errors[partition] = self._existence_error(partition, permissions)
        version = CLIENT_VERSION if permissions is not None else CLIENT_VERSION_OF_EPOCHS
        errors = self._add_existing(wanted, existence_errors, version)

        topics: Sequence[TopicEntry[int]] = wanted.topics
        # KafkaApis has a Scala map; the coordinator verifies in the order of a Java map.
        if any(existence_errors.values()):
            topics = yield from run_on_entries(_in_scala_order, errors)
        elif wanted.verify_only:
            topics = yield from run_on_entries(_in_java_order, errors)

        return (
            yield from each_partition(
                topics, lambda name, index: PartitionResult(index, errors[TopicPartition(name, index)])
            )
        )

    def _add_existing(
        self, wanted: PartitionsToAdd, existence_errors: dict[TopicPartition, ErrorCode], version: int
    ) -> dict[TopicPartition, ErrorCode]:
        # Permissions and existence win over errors of the producer, as in KafkaApis.
        if any(existence_errors.values()):
            attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
            return {partition: error or attempted for partition, error in existence_errors.items()}
        partitions = frozenset(existence_errors)
        error_code = self._check(wanted.transactional_id, wanted.producer_id, wanted.producer_epoch)
        if error_code is ErrorCode.NONE and wanted.verify_only:
            # KIP-890: a verification adds nothing.
            missing = partitions - self._transactions[wanted.transactional_id].partitions
            return {
                partition: ErrorCode.TRANSACTION_ABORTABLE if partition in missing else ErrorCode.NONE
                for partition in partitions
            }
        if error_code is ErrorCode.NONE:
            error_code = self._add(wanted.transactional_id, partitions, version)
        return dict.fromkeys(partitions, error_code)

    def _existence_error(self, partition: TopicPartition, permissions: Permissions | None) -> ErrorCode:
        # Only brokers may add __consumer_offsets.
        if permissions is not None and (
            partition.topic in INTERNAL_TOPICS or not permissions.on_topic(partition.topic, Operation.WRITE)
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        exists = 0 <= partition.partition < (self._topics.partition_count(partition.topic) or 0)
        return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def add_offsets(self, request: AddOffsetsToTxn) -> AddOffsetsToTxnResponse:
        error_code = self._check(request.transactional_id, request.producer_id, request.producer_epoch)
        if error_code is ErrorCode.NONE:
            partition = self._log_partition_of(request.group_id)
            error_code = self._add(request.transactional_id, frozenset((partition,)))
        return AddOffsetsToTxnResponse(error_code)

    def _log_partition_of(self, group_id: str) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, self._config.offsets_topic_num_partitions))

    def _check(self, transactional_id: str, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Return NONE for the current producer, unless its transaction is ending."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # A fenced producer must not get a retriable error.
        error_code = transaction.check_producer(producer_id, producer_epoch)
        if error_code is ErrorCode.NONE and transaction.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return error_code

    def _add(
        self, transactional_id: str, partitions: frozenset[TopicPartition], client_version: int = CLIENT_VERSION
    ) -> ErrorCode:
        transaction = self._transactions[transactional_id]
        if transaction.state is not TransactionState.ONGOING or not partitions <= transaction.partitions:
            try:
                self._store(transaction.with_partitions(partitions, self._clock.now_ms(), client_version))
            except TransactionLogError:
                # Retriable, as nothing has changed.
                return NOT_WRITTEN
        return ErrorCode.NONE

    # ------------------------------------------------------------ offsets

    def commit_offsets(self, request: TxnOffsetCommit, token: Token, principal: Principal = None) -> None:
        """Pass a TxnOffsetCommit to the group coordinator; until its response, the transaction can't end."""
        do_in_background(self._commit_offsets(request, token, principal), do_in_place)

    def _commit_offsets(self, request: TxnOffsetCommit, token: Token, principal: Principal) -> Work[None]:
        in_flight, transactional_id, answer = self._in_flight, request.transactional_id, Answer()
        in_flight[transactional_id] += 1
        self._submit(self._log_partition_of(request.group_id).partition, request, answer, principal)
        if not answer.is_done:
            yield answer
        in_flight[transactional_id] -= 1
        if not in_flight[transactional_id]:
            # Counts of zero would pile up.
            del in_flight[transactional_id]
        token.answer(answer.response)

    def verify_writer(self, writer: Writer) -> ErrorCode:
        """Return NONE if a producer may write to a partition, which is added to its transaction if requested."""
        if not self.is_loaded(writer.transactional_id):
            return NOT_WRITTEN
        error_code = self._check(writer.transactional_id, writer.producer_id, writer.producer_epoch)
        # As in Kafka, Produce and TxnOffsetCommit fail with the older error.
        if error_code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error_code is not ErrorCode.NONE:
            return error_code
        if writer.adds_partition:
            return self._add(writer.transactional_id, frozenset((writer.partition,)), CLIENT_VERSION_OF_EPOCHS)
        transaction = self._transactions[writer.transactional_id]
        is_in = transaction.state is TransactionState.ONGOING and writer.partition in transaction.partitions
        return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE

    def verify_commit(self, request: TxnOffsetCommit) -> ErrorCode:
        """Return NONE if a producer may commit offsets of a group, which is added to its transaction if requested."""
        partition, adds_group = self._log_partition_of(request.group_id), request.adds_group
        return self.verify_writer(
            Writer(request.transactional_id, request.producer_id, request.producer_epoch, partition, adds_group)
        )

    # ------------------------------------------------------------ ends

    def end(self, request: EndTxn, token: Token) -> EndTxnResponse | None:
        """Commit or abort a transaction. The response follows when the markers are written."""
        if not request.transactional_id:
            return EndTxnResponse(ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            return EndTxnResponse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        error_code = _end_error(transaction, request)
        # An end must not overtake offsets on their way to the log.
        if error_code is None and self._in_flight[request.transactional_id]:
            error_code = ErrorCode.CONCURRENT_TRANSACTIONS
        if error_code is ErrorCode.NONE:
            return _ended(transaction)
        if error_code is not None:
            return EndTxnResponse(error_code)
        try:
            prepared = self._store(
                transaction.prepared(
                    committed=request.committed,
                    bumps_epoch=request.bumps_epoch,
                    now_ms=self._clock.now_ms(),
                    new_producer_id=self._new_producer_id,
                )
            )
        except TransactionLogError:
            return EndTxnResponse(NOT_WRITTEN)
        # From here the outcome is decided, even over a restart.
        self._complete(prepared, (token, _ended(prepared)))
        return None

    def _complete(self, transaction: Transaction, *waiting: tuple[Token, EndTxnResponse]) -> None:
        do_in_background(self._completing(transaction, waiting), do_in_place)

    def _completing(self, transaction: Transaction, waiting: Iterable[tuple[Token, EndTxnResponse]]) -> Work[None]:
        """Write the markers of a prepared transaction until all are written; answer after the first attempt."""
        while True:
            is_complete = yield from self._write_markers(transaction)
            now_ms = self._clock.now_ms()
            try:
                if is_complete:
                    self._store(transaction.completed(now_ms))
            except TransactionLogError:
                # The retry repeats all markers.
                is_complete = False
            if not is_complete:
                unwritten = "markers of %r are not all written; the next try is soon"
                self._lines.warning("markers", now_ms / 1000, unwritten, transaction.transactional_id)
            # Even with failed markers, the outcome is durable.
            for token, response in waiting:
                token.answer(response)
            if is_complete:
                return
            waiting = ()
            yield from self._timers.wait_until(now_ms + RETRY_MS)

    def _write_markers(self, transaction: Transaction) -> Work[bool]:
        """Return whether the transaction has ended in all its partitions, perhaps by another marker."""
        end = (
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            # Partitions refuse markers of a former coordinator.
            self._log.coordinator_epoch(transaction.transactional_id),
        )
        error_codes: list[ErrorCode] = []
        answers: list[Answer] = []
        # Sorted, since the order of a set differs between processes.
        for topic, index in sorted(transaction.partitions):
            if topic == OFFSETS_TOPIC:
                answers.append(Answer())
                self._submit(index, CompleteTransaction(index, *end), answers[-1], None)
            else:
                error_codes.append(self._data.append_marker(topic, index, TransactionMarker(*end)))
        for answer in answers:
            if not answer.is_done:
                yield answer
            error_codes.append(answer.response.error_code)
        return ENDED.issuperset(error_codes)

    # ------------------------------------------------------------ queries

    @property
    def all(self) -> Collection[Transaction]:
        return self._transactions.values()

    def describe(self, transactional_id: str, permissions: Permissions = UNRESTRICTED) -> DescribedTransaction:
        # Denied clients must not learn about the id.
        if not permissions.on_transactional_id(transactional_id, Operation.DESCRIBE):
            return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id)
        if not transactional_id:
            return DescribedTransaction(ErrorCode.INVALID_REQUEST, transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        return DescribedTransaction(
            error_code=ErrorCode.NONE,
            transactional_id=transactional_id,
            transaction_state=transaction.state.value,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_time_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=tuple(
                TopicEntry(*topic)
                for topic in transaction.topics
                if permissions.on_topic(topic.name, Operation.DESCRIBE)
            ),
        )

    # ------------------------------------------------------------ state

    def prepare(self) -> Topic | None:
        """Return the transaction topic, created if missing; None after an error."""
        try:
            return self._log.topic()
        except TransactionLogError as error:
            self._refused(error)
            return None

    def _write(self, write: Callable[[Any, int], None], what: Any) -> None:
        now_ms = self._clock.now_ms()
        try:
            write(what, now_ms)
        except TransactionLogError as error:
            raise self._refused(error) from error
        if self._refused_count:
            again = "transactions can be written again (changes refused in the meantime: %d)"
            self._lines.warning("written again", now_ms / 1000, again, self._refused_count)
            self._refused_count = 0

    def _refused(self, error: GroupcoordError) -> TransactionLogError:
        self._refused_count += 1
        self._lines.error("refused", self._clock.now_ms() / 1000, "a change of a transaction was refused: %s", error)
        return TransactionLogError(str(error))

    def _store(self, transaction: Transaction) -> Transaction:
        self._write(self._log.put, transaction)
        self._take(transaction)
        return transaction

    def _take(self, transaction: Transaction) -> None:
        transactional_id, before_ms = transaction.transactional_id, self.next_deadline_ms()
        self._transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._open[transactional_id] = None
        else:
            self._open.pop(transactional_id, None)
        if self.next_deadline_ms() != before_ms:
            self._timers.wake_earlier()


def _end_error(transaction: Transaction, request: EndTxn) -> ErrorCode | None:
    """Return the immediate response to EndTxn, or None if the request changes the transaction."""
    # KIP-890: the response may be lost, and the producer still has the old epoch.
    is_repeated = request.bumps_epoch and transaction.is_repeated_end(request.producer_id, request.producer_epoch)
    if not is_repeated:
        error_code = transaction.check_producer(request.producer_id, request.producer_epoch)
        if error_code is not ErrorCode.NONE:
            return error_code
    state = transaction.state
    if state is TransactionState.ONGOING:
        return None
    if state.is_prepared:
        is_same = request.committed == (state is TransactionState.PREPARE_COMMIT)
        # Markers are being written: the same outcome may be requested again later.
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
    if request.bumps_epoch and not is_repeated:
        # A producer may abort without a transaction to get a new epoch (KIP-890).
        return ErrorCode.INVALID_TXN_STATE if request.committed else None
    is_same = state is (TransactionState.COMPLETE_COMMIT if request.committed else TransactionState.COMPLETE_ABORT)
    return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE


def _ended(transaction: Transaction) -> EndTxnResponse:
    if transaction.next_producer_id != NO_PRODUCER_ID:
        # KIP-890: the client continues with this id and epoch.
        return EndTxnResponse(ErrorCode.NONE, transaction.next_producer_id, 0)
    return EndTxnResponse(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)


def _next_after(moment_ms: int, interval_ms: int, now_ms: int) -> int:
    """Return the first multiple of an interval after ``now_ms``, counted from a moment."""
    # Missed checks are skipped.
    return moment_ms + ((now_ms - moment_ms) // interval_ms + 1) * interval_ms


def _in_scala_order(partitions: Collection[TopicPartition]) -> list[TopicEntry[int]]:
    """Return partitions by topic in the order of ``KafkaApis``: that of a Scala map of this size."""
    # HashMap.sizeHint for a load factor of 0.75.
    capacity = int((len(partitions) + 1) / 0.75)
    return _by_topic(scala_map_order(partitions, topic_partition_hash, 1 << max(capacity - 1, 4).bit_length()))


def _in_java_order(partitions: Collection[TopicPartition]) -> list[TopicEntry[int]]:
    """Return partitions by topic in the order in which Kafka's transaction coordinator verifies them."""
    return _by_topic(HashTable(topic_partition_hash, partitions))


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicEntry[int]]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return [TopicEntry(topic, tuple(indexes[topic])) for topic in hash_map_order(indexes)]
