"""The few requests that the kill harness sends, in versions that are quick to write by hand, and their answers."""

from __future__ import annotations

from struct import Struct

from groupcoord import ErrorCode
from groupcoord.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    PartitionResult,
    Request,
    Response,
    SyncGroup,
    SyncGroupResponse,
    TopicResult,
)

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 9, 11, 12, 14
INIT_PRODUCER_ID, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 22, 25, 26, 28

_header = Struct(">ihhi")
_int16, _int32 = Struct(">h"), Struct(">i")
_partition = Struct(">iqih")
_producer = Struct(">qh")
CLIENT_ID = b"\0\5crash"


def string(text: str) -> bytes:
    """Return a string behind its length."""
    raw = text.encode()
    return _int16.pack(len(raw)) + raw


def sized(raw: bytes) -> bytes:
    """Return bytes behind their length."""
    return _int32.pack(len(raw)) + raw


def frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a whole request."""
    size = _header.size - 4 + len(CLIENT_ID) + len(body)
    return _header.pack(size, api_key, version, correlation_id) + CLIENT_ID + body


def offset_commit(
    correlation_id: int, group_id: str, generation_id: int, member_id: str, topic: str, offsets: dict[int, int]
) -> bytes:
    """OffsetCommit version 6, of one topic; the metadata is empty."""
    parts = [string(group_id), _int32.pack(generation_id), string(member_id), _int32.pack(1), string(topic)]
    parts.append(_int32.pack(len(offsets)))
    parts += [_partition.pack(index, offset, -1, 0) for index, offset in offsets.items()]
    return frame(OFFSET_COMMIT, 6, correlation_id, b"".join(parts))


def offset_fetch(correlation_id: int, group_id: str) -> bytes:
    """OffsetFetch version 5, of all topics."""
    return frame(OFFSET_FETCH, 5, correlation_id, string(group_id) + _int32.pack(-1))


def stable_fetch(correlation_id: int, group_id: str, topic: str, partition_count: int) -> bytes:
    """OffsetFetch version 7, of the partitions of one topic, refusing those with an offset in an open transaction."""
    parts = [b"\0", _compact(group_id), b"\2", _compact(topic), bytes([partition_count + 1])]
    parts += [_int32.pack(index) for index in range(partition_count)]
    parts += [b"\0", b"\1", b"\0"]
    return frame(OFFSET_FETCH, 7, correlation_id, b"".join(parts))


def _compact(text: str) -> bytes:
    raw = text.encode()
    assert len(raw) < 127
    return bytes([len(raw) + 1]) + raw


def join_group(correlation_id: int, group_id: str, member_id: str) -> bytes:
    """JoinGroup version 4: a member is given its id before it joins (KIP-394), so that it never loses it."""
    parts = [string(group_id), _int32.pack(600_000), _int32.pack(600_000), string(member_id), string("consumer")]
    parts += [_int32.pack(1), string("range"), sized(b"subscription")]
    return frame(JOIN_GROUP, 4, correlation_id, b"".join(parts))


def sync_group(
    correlation_id: int, group_id: str, generation_id: int, member_id: str, assignments: dict[str, bytes]
) -> bytes:
    """SyncGroup version 1."""
    parts = [string(group_id), _int32.pack(generation_id), string(member_id), _int32.pack(len(assignments))]
    parts += [string(member) + sized(assignment) for member, assignment in assignments.items()]
    return frame(SYNC_GROUP, 1, correlation_id, b"".join(parts))


def heartbeat(correlation_id: int, group_id: str, generation_id: int, member_id: str) -> bytes:
    """Heartbeat version 1."""
    body = string(group_id) + _int32.pack(generation_id) + string(member_id)
    return frame(HEARTBEAT, 1, correlation_id, body)


def init_producer_id(correlation_id: int, transactional_id: str | None, timeout_ms: int) -> bytes:
    """InitProducerId version 1."""
    name = _int16.pack(-1) if transactional_id is None else string(transactional_id)
    return frame(INIT_PRODUCER_ID, 1, correlation_id, name + _int32.pack(timeout_ms))


def add_offsets_to_txn(correlation_id: int, transactional_id: str, producer: tuple[int, int], group_id: str) -> bytes:
    """AddOffsetsToTxn version 1; ``producer`` is its id and epoch."""
    body = string(transactional_id) + _producer.pack(*producer) + string(group_id)
    return frame(ADD_OFFSETS_TO_TXN, 1, correlation_id, body)


def txn_offset_commit(
    correlation_id: int,
    transactional_id: str,
    producer: tuple[int, int],
    group_id: str,
    topic: str,
    offsets: dict[int, int],
) -> bytes:
    """TxnOffsetCommit version 2, of one topic; the metadata is empty."""
    parts = [string(transactional_id), string(group_id), _producer.pack(*producer), _int32.pack(1), string(topic)]
    parts.append(_int32.pack(len(offsets)))
    parts += [_partition.pack(index, offset, -1, 0) for index, offset in offsets.items()]
    return frame(TXN_OFFSET_COMMIT, 2, correlation_id, b"".join(parts))


def end_txn(correlation_id: int, transactional_id: str, producer: tuple[int, int], *, committed: bool) -> bytes:
    """EndTxn version 1."""
    body = string(transactional_id) + _producer.pack(*producer) + bytes([committed])
    return frame(END_TXN, 1, correlation_id, body)


def encoded(correlation_id: int, request: Request) -> bytes:
    """Return a consumer's request in one of these versions."""
    match request:
        case JoinGroup():
            return join_group(correlation_id, request.group_id, request.member_id)
        case SyncGroup(group_id, generation_id, member_id):
            assignments = {entry.member_id: entry.assignment for entry in request.assignments}
            return sync_group(correlation_id, group_id, generation_id, member_id, assignments)
        case Heartbeat(group_id, generation_id, member_id):
            return heartbeat(correlation_id, group_id, generation_id, member_id)
        case OffsetCommit(group_id, (topic,), generation_id, member_id):
            offsets = {offset.partition_index: offset.committed_offset for offset in topic.partitions}
            return offset_commit(correlation_id, group_id or "", generation_id, member_id, topic.name or "", offsets)
        case _:
            raise TypeError(f"no consumer sends {request!r}")


class Answer:
    """Reads the body of a response, field by field."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 0

    def int16(self) -> int:
        """Read a number of two bytes."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """Read a number of four bytes."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        """Read a number of eight bytes."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def int8(self) -> int:
        """Read a number of one byte, or a varint that is as short."""
        return self._take(1)[0]

    def string(self) -> str:
        """Read a string; null is empty."""
        return self._take(max(self.int16(), 0)).decode()

    def compact(self) -> str:
        """Read a string of less than 127 bytes behind a varint; null is empty."""
        return self._take(max(self.int8() - 1, 0)).decode()

    def sized(self) -> bytes:
        """Read bytes."""
        return self._take(max(self.int32(), 0))

    def _take(self, size: int) -> bytes:
        end = self._position + size
        assert end <= len(self._payload), "the answer is too short"
        taken, self._position = self._payload[self._position : end], end
        return taken


def commit_errors(answer: Answer) -> list[int]:
    """Read an OffsetCommit answer: the error code of each partition."""
    answer.int32()
    errors = []
    for _ in range(answer.int32()):
        answer.string()
        for _ in range(answer.int32()):
            answer.int32()
            errors.append(answer.int16())
    return errors


def fetched_offsets(answer: Answer) -> dict[tuple[str, int], int]:
    """Read an OffsetFetch answer: topic and partition → offset."""
    answer.int32()
    offsets = {}
    for _ in range(answer.int32()):
        topic = answer.string()
        for _ in range(answer.int32()):
            index, offset = answer.int32(), answer.int64()
            answer.int32()
            answer.string()
            assert answer.int16() == 0
            offsets[topic, index] = offset
    assert answer.int16() == 0
    return offsets


def fetched_stability(answer: Answer) -> dict[int, int]:
    """Read the answer to :func:`stable_fetch`: partition → error code."""
    answer.int8()
    answer.int32()
    errors = {}
    for _ in range(answer.int8() - 1):
        answer.compact()
        for _ in range(answer.int8() - 1):
            index = answer.int32()
            answer.int64()
            answer.int32()
            answer.compact()
            errors[index] = answer.int16()
            answer.int8()
        answer.int8()
    assert answer.int16() == 0
    return errors


def decoded(request: Request, answer: Answer) -> Response:
    """Read the answer to what :func:`encoded` sends; what its version has no field for is as in the request."""
    if isinstance(request, OffsetCommit):
        codes = commit_errors(answer)
        (topic,) = request.topics
        results = tuple(PartitionResult(index, ErrorCode(code)) for index, code in enumerate(codes))
        return OffsetCommitResponse((TopicResult(topic.name, topic.topic_id, results),))
    answer.int32()
    error_code = ErrorCode(answer.int16())
    match request:
        case JoinGroup():
            generation_id, protocol_name, leader = answer.int32(), answer.string(), answer.string()
            member_id, count = answer.string(), answer.int32()
            members = tuple(JoinedMember(answer.string(), None, answer.sized()) for _ in range(count))
            return JoinGroupResponse(
                error_code, member_id, generation_id, request.protocol_type, protocol_name, leader, members=members
            )
        case SyncGroup():
            return SyncGroupResponse(error_code, "consumer", "range", answer.sized())
        case _:
            return HeartbeatResponse(error_code)
