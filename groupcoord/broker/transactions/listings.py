"""ListTransactions and DescribeProducers: looking for transactions that hang (KIP-664).

Sources: ``TransactionStateManager.listTransactionStates`` and ``ReplicaManager.activeProducerState`` of Apache Kafka
4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.regexes import ExpressionError, compile_expression
from groupcoord.broker.topics.registry import TopicError, check_topic_name
from groupcoord.broker.transactions.state import Transaction, TransactionState
from groupcoord.broker.work import Work, each, each_long
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError
from groupcoord.wire.transaction_messages import (
    DescribedPartition,
    DescribedPartitions,
    DescribedProducer,
    DescribeProducers,
    DescribeProducersResponse,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
)

NOT_TAKEN = frozenset(("Dead", "PrepareEpochFence"))
"""States that Kafka knows and no transaction is listed in."""

STATES = frozenset(state.value for state in TransactionState) | NOT_TAKEN


def answer_list_transactions(
    request: ListTransactions, transactions: Iterable[Transaction], now_ms: int, permissions: Permissions = UNRESTRICTED
) -> Work[ListTransactionsResponse]:
    """List the transactional ids that the filters let through, and that the asker may describe.

    Kafka's error for a pattern that is none is INVALID_REGULAR_EXPRESSION.
    """
    try:
        pattern = compile_expression(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except ExpressionError:
        return ListTransactionsResponse(ErrorCode.INVALID_REGULAR_EXPRESSION)
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter_ms

    def list_it(transaction: Transaction) -> ListedTransaction | None:
        is_wanted = (
            (not states or transaction.state.value in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - transaction.start_time_ms > duration_ms)
            and (pattern is None or pattern.fullmatch(transaction.transactional_id))
            and permissions.on_transactional_id(transaction.transactional_id, Operation.DESCRIBE)
        )
        if not is_wanted:
            return None
        return ListedTransaction(transaction.transactional_id, transaction.producer_id, transaction.state.value)

    listed = yield from each(transactions, list_it)
    unknown = tuple(state for state in dict.fromkeys(request.state_filters) if state not in STATES)
    return ListTransactionsResponse(ErrorCode.NONE, unknown, tuple(filter(None, listed)))


def answer_describe_producers(
    request: DescribeProducers, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[DescribeProducersResponse]:
    """Describe who wrote to partitions. One that is named twice is described once: many may have written to it."""
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        if asked:
            yield None
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))

    def describe(name: str) -> Work[DescribedPartitions]:
        partitions = yield from each(asked[name], lambda index: _describe(name, index, data, permissions))
        return DescribedPartitions(name, partitions)

    return DescribeProducersResponse((yield from each_long(asked, describe)))


def _describe(name: str, index: int, data: TopicData, permissions: Permissions) -> DescribedPartition:
    error_code = permissions.topic_error(name, Operation.READ)
    if error_code is not ErrorCode.NONE:
        return DescribedPartition(index, error_code)
    topic = data.topics.get(name)
    if topic is None:
        try:
            check_topic_name(name)
        except TopicError as error:
            return DescribedPartition(index, error.error_code, error_message=error.message)
        message = "This server does not host this topic-partition."
        return DescribedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message)
    if not topic.has_partition(index):
        return DescribedPartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        log = data.log(topic, index)
    except FailedLogError as error:
        return DescribedPartition(index, error.error_code)
    producers = () if log is None else tuple(DescribedProducer(*producer) for producer in log.producers.active())
    return DescribedPartition(index, ErrorCode.NONE, producers)
