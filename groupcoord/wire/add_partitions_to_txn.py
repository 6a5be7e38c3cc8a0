"""AddPartitionsToTxn: key 24, versions 0-5, flexible from 3.

2: PRODUCER_FENCED in answers, which is INVALID_PRODUCER_EPOCH before (KIP-588). 4: several transactions, and looking
without adding (KIP-890); meant for brokers, while clients use 3 at most.
"""

from groupcoord.core.messages import TopicResult
from groupcoord.wire.by_schema import by_schema
from groupcoord.wire.cluster_messages import TopicPartitions
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.schema import Values
from groupcoord.wire.transaction_messages import AddPartitionsToTxn, AddPartitionsToTxnResponse, PartitionsToAdd
from groupcoord.wire.version_differences import fenced

_CLIENTS_PREFIX = "v3_and_below_"


def _request(values: Values, header: RequestHeader, client_host: str) -> AddPartitionsToTxn:
    if header.api_version >= 4:
        transactions = tuple(_transaction(transaction) for transaction in values["transactions"])
        return AddPartitionsToTxn(transactions, is_from_broker=True)
    own = {name.removeprefix(_CLIENTS_PREFIX): value for name, value in values.items()}
    return AddPartitionsToTxn((_transaction(own),))


def _transaction(values: Values) -> PartitionsToAdd:
    return PartitionsToAdd(
        transactional_id=values["transactional_id"],
        producer_id=values["producer_id"],
        producer_epoch=values["producer_epoch"],
        topics=tuple(TopicPartitions(topic["name"], topic["partitions"]) for topic in values["topics"]),
        verify_only=values.get("verify_only", False),
    )


def _response(response: AddPartitionsToTxnResponse, header: RequestHeader) -> Values:
    version = header.api_version
    if version < 4:
        (result,) = response.results
        return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": _topics(result.topics, version)}
    results = [
        {"transactional_id": result.transactional_id, "topic_results": _topics(result.topics, version)}
        for result in response.results
    ]
    return {"throttle_time_ms": 0, "error_code": response.error_code, "results_by_transaction": results}


def _topics(topics: tuple[TopicResult, ...], version: int) -> list[Values]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": fenced(error_code, version, since=2)}
                for index, error_code in topic.partitions
            ],
        }
        for topic in topics
    ]


API = by_schema(24, AddPartitionsToTxn, AddPartitionsToTxnResponse, (0, 5), 3, to_request=_request, to_values=_response)
