"""Blocking Kafka client of the tests: requests and responses as values, by the schemas of ``groupcoord.wire``."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from groupcoord.client import decode_response, encode_request
from groupcoord.records.batches import Batch, encode_batch, iter_batches
from groupcoord.schema.engine import Values

HOST = "127.0.0.1"
FETCH_BYTES = 50_000_000
API_VERSIONS = 18


class Request(NamedTuple):
    """Request in one version; its fields have the names of kio's schemas, and those of times end in ``_ms``."""

    api_key: int
    version: int
    values: Values

    def encode(self, correlation_id: int = 1) -> bytes:
        """Return the frame, its length first."""
        return encode_request(self.api_key, self.version, self.values, correlation_id, b"tests")

    def decode(self, response: bytes) -> Values:
        """Return the fields of the response, which is given without its length."""
        return decode_response(self.api_key, self.version, response)


class Frames:
    """Splits the bytes of a connection into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, part: bytes) -> list[bytes]:
        """Append received bytes; return the frames that are complete, each without its length."""
        buffer, found, position = self._buffer, [], 0
        buffer += part
        while len(buffer) >= (start := position + 4):
            end = start + int.from_bytes(buffer[position:start], "big")
            if len(buffer) < end:
                break
            found.append(bytes(buffer[start:end]))
            position = end
        del buffer[:position]
        return found


class Client:
    """Connection to a server on this machine."""

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection((HOST, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = Frames()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Request) -> Values:
        """Send a request, wait, and return the fields of its response."""
        self.socket.sendall(request.encode())
        return self.receive(request)

    def receive(self, request: Request) -> Values:
        """Return the fields of the next response, which belongs to ``request``.

        Raises:
            ConnectionError: the server closed the connection.
            TimeoutError: nothing arrived in time.
        """
        while not (found := self._frames.take(self._receive_some())):
            pass
        (response,) = found
        return request.decode(response)

    def _receive_some(self) -> bytes:
        part = self.socket.recv(1_048_576)
        if not part:
            raise ConnectionError("the server closed the connection")
        return part

    def close(self) -> None:
        self.socket.close()


# Requests of more than one room, each in an old version with few fields.


def api_versions() -> Request:
    return Request(API_VERSIONS, 0, {})


def committed_topic(topic: str, offsets: Mapping[int, int]) -> list[Values]:
    """Return the topics of a commit: one, without metadata and leader epochs."""
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index, offset in offsets.items()
    ]
    return [{"name": topic, "partitions": partitions}]


def offset_commit(
    group_id: str, topic: str, offsets: Mapping[int, int], generation_id: int = -1, member_id: str = ""
) -> Request:
    member = {"generation_id_or_member_epoch": generation_id, "member_id": member_id}
    return Request(8, 6, {"group_id": group_id, **member, "topics": committed_topic(topic, offsets)})


def commit_errors(response: Values) -> list[int]:
    """Return the error code of each partition of an OffsetCommit or a TxnOffsetCommit."""
    return [partition["error_code"] for topic in response["topics"] for partition in topic["partitions"]]


def offset_fetch(group_id: str) -> Request:
    return Request(9, 5, {"group_id": group_id, "topics": None})


def fetched_offsets(response: Values) -> dict[tuple[str, int], int]:
    """Return the committed offsets by topic and partition; none of the error codes may be set."""
    partitions = {
        (topic["name"], partition["partition_index"]): partition
        for topic in response["topics"]
        for partition in topic["partitions"]
    }
    errors = [response["error_code"], *(partition["error_code"] for partition in partitions.values())]
    assert not any(errors), f"an OffsetFetch failed with {errors}"
    return {key: partition["committed_offset"] for key, partition in partitions.items()}


def join_group(group_id: str, member_id: str = "", metadata: bytes = b"subscription") -> Request:
    """Return a JoinGroup of a version in which a member receives its id first (KIP-394)."""
    timeouts = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000}
    protocols = [{"name": "range", "metadata": metadata}]
    values = {"group_id": group_id, "member_id": member_id, "protocol_type": "consumer", "protocols": protocols}
    return Request(11, 4, {**values, **timeouts})


def heartbeat(group_id: str, generation_id: int, member_id: str) -> Request:
    return Request(12, 1, {"group_id": group_id, "generation_id": generation_id, "member_id": member_id})


def sync_group(group_id: str, generation_id: int, member_id: str, assignments: Mapping[str, bytes]) -> Request:
    entries = [{"member_id": member_id, "assignment": assignment} for member_id, assignment in assignments.items()]
    member = {"generation_id": generation_id, "member_id": member_id}
    return Request(14, 1, {"group_id": group_id, **member, "assignments": entries})


def init_producer_id(transactional_id: str | None, timeout_ms: int) -> Request:
    return Request(22, 1, {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms})


class Sender(NamedTuple):
    """Producer of a batch: its id and epoch, and the sequence of its first record; none by default."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional_id: str | None = None


NO_SENDER = Sender()


def produce(
    topic: str, partition: int, values: Sequence[bytes], at_ms: int, acks: int = -1, sender: Sender = NO_SENDER
) -> Request:
    batch = encode_batch(
        0,
        [(None, value, at_ms) for value in values],
        leader_epoch=-1,
        producer_id=sender.producer_id,
        producer_epoch=sender.epoch,
        base_sequence=sender.sequence,
        is_transactional=sender.transactional_id is not None,
    )
    topics = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    producer = {"transactional_id": sender.transactional_id, "acks": acks, "timeout_ms": 30_000}
    return Request(0, 3, {**producer, "topic_data": topics})


def produced(response: Values) -> tuple[int, int]:
    """Return the error code and the base offset of the only partition."""
    partition = only_partition(response["responses"], "partition_responses")
    return partition["error_code"], partition["base_offset"]


def only_partition(topics: Sequence[Values], partitions: str = "partitions") -> Any:
    """Return the only partition of the only topic of a response."""
    ((partition,),) = [topic[partitions] for topic in topics]
    return partition


def fetch(topic: str, partition: int, offset: int, isolation_level: int = 0) -> Request:
    entry = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": FETCH_BYTES, "isolation_level": isolation_level}
    return Request(1, 4, {"replica_id": -1, **limits, "topics": [{"topic": topic, "partitions": [entry]}]})


class Fetched(NamedTuple):
    """Records of a partition from an offset on.

    Attributes:
        aborted: producer id and first offset of aborted transactions.
    """

    error_code: int
    high_watermark: int
    batches: list[Batch]
    aborted: list[tuple[int, int]]

    def values(self) -> dict[int, bytes]:
        """Return the values by offset, without those of aborted transactions."""
        found: dict[int, bytes] = {}
        waiting = sorted(self.aborted, key=lambda transaction: transaction[1], reverse=True)
        skipped: set[int] = set()
        for batch in self.batches:
            while waiting and waiting[-1][1] < batch.next_offset:
                skipped.add(waiting.pop()[0])
            if batch.is_control:
                skipped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in skipped):
                found.update({offset: value or b"" for offset, _, _, value in batch.records()})
        return found


def fetched(response: Values) -> Fetched:
    partition = only_partition(response["responses"])
    aborted = [(each["producer_id"], each["first_offset"]) for each in partition["aborted_transactions"] or ()]
    batches = list(iter_batches(bytes(partition["records"] or b"")))
    return Fetched(partition["error_code"], partition["high_watermark"], batches, aborted)
