"""Codecs of OffsetCommit and TxnOffsetCommit, with offsets in columns for speed (:mod:`.offset_columns`).

OffsetCommit: key 8, versions 2-10, flexible from 8. 2-4: the client may send a retention time. 3: throttle time in the
response. 6: leader epochs (KIP-320). 7: instance id (KIP-345). 9: member epoch in place of the generation (KIP-848).
10: topics by id.

TxnOffsetCommit: key 28, versions 0-6, flexible from 3. 2: leader epochs. 3: member id and generation (KIP-447). 5: the
group is added to the transaction if necessary (KIP-890). 6: topics by id (KIP-1319).
"""

from collections.abc import Mapping
from uuid import UUID

from groupcoord.core.messages import OffsetCommit, TopicToCommit, TxnOffsetCommit
from groupcoord.errors import ErrorCode
from groupcoord.schema.engine import PROTOCOL, TYPES, Custom, parse_structures, reader_of
from groupcoord.schema.primitives import FLEXIBLE, PLAIN, skip_tagged_fields
from groupcoord.wire.api import Api, Decoder, Encoder, RequestHeader, VersionRange
from groupcoord.wire.by_schema import request_decoder
from groupcoord.wire.offset_columns import ResultsWriter, offsets_reader


def _offsets_since(first: int) -> Custom:
    """Return the type of a topic's offsets; ``first``: the first version with leader epochs."""
    return Custom(lambda version, flexible: offsets_reader(has_leader_epoch=version >= first, is_flexible=flexible))


_STRUCTURES = parse_structures(
    """
    Head: group_id string, generation_id int32, member_id string, group_instance_id string? 7+,
        retention_time_ms int64 2-4 = -1
    TopicName: name string 2-9, topic_id uuid 10+ = 0
    CommitTopic: name string 2-9, topic_id uuid 10+ = 0, partitions offsets
    Topics: topics CommitTopic[]

    TxnTopic: name string 0-5, topic_id uuid 6+ = 0, partitions txn_offsets
    TxnOffsetCommit: transactional_id string, group_id string, producer_id int64, producer_epoch int16,
        generation_id int32 3+, member_id string 3+, group_instance_id string? 3+, topics TxnTopic[]
    """,
    made={
        "CommitTopic": TopicToCommit,
        "TxnTopic": TopicToCommit,
        "TxnOffsetCommit": TxnOffsetCommit,
    },
    types={
        **TYPES,
        "offsets": _offsets_since(6),
        "txn_offsets": _offsets_since(2),
    },
    by_name=True,
)

_HEADS_MAX, _HEAD_BYTES_MAX = 8_192, 256

_Head = tuple[str | None, int, str, str | None, int, str | None, UUID]
"""Fields of a commit of one topic before its offsets."""


class _Heads:
    """Cache of the fields before the offsets, which a member repeats in each commit.

    Attributes:
        end_of: returns the end of these fields in the last cached request of equal length.
        find: returns the fields for these bytes, or None.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._heads: dict[bytes, _Head] = {}
        self.end_of = self._ends.get
        self.find = self._heads.get

    def remember(self, frame: bytes, start: int, end: int, head: _Head) -> None:
        if end - start > _HEAD_BYTES_MAX:  # so that clients can't make the cache large
            return
        if len(self._ends) >= _HEADS_MAX or len(self._heads) >= _HEADS_MAX:
            self._ends.clear()
            self._heads.clear()
        self._ends[len(frame)] = end
        self._heads[frame[start:end]] = head


def _decoder(version: int) -> Decoder:
    is_flexible, supports_epochs = version >= 8, version >= 9
    read_head, read_name, read_topics = (
        reader_of(_STRUCTURES[name], version, is_flexible, PROTOCOL, has_end=has_end)
        for name, has_end in (("Head", False), ("TopicName", False), ("Topics", True))
    )
    read_count = (FLEXIBLE if is_flexible else PLAIN).read_array_length
    read_offsets = offsets_reader(has_leader_epoch=version >= 6, is_flexible=is_flexible)
    heads = _Heads()
    end_of, find_head = heads.end_of, heads.find

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetCommit:
        end = end_of(len(frame), 0)
        head = find_head(frame[position:end])
        if head is None:
            fields, end = read_head(frame, position)
            topic_count, name_position = read_count(frame, end)
            if topic_count != 1:
                group_id, *others = fields
                (topics,), _ = read_topics(frame, end)
                return OffsetCommit(*(group_id, topics, *others, supports_epochs))
            names, end = read_name(frame, name_position)
            head = (*fields, *names)
            heads.remember(frame, position, end, head)
        group_id, generation_id, member_id, group_instance_id, retention_time_ms, name, topic_id = head
        offsets, position = read_offsets(frame, end)
        if is_flexible:
            skip_tagged_fields(frame, skip_tagged_fields(frame, position))
        topics = (TopicToCommit(name, offsets, topic_id),)
        return OffsetCommit(
            group_id, topics, generation_id, member_id, group_instance_id, retention_time_ms, supports_epochs
        )

    return decode


def _encoder(version: int) -> Encoder:
    is_flexible = version >= 8
    write_topics = ResultsWriter({}, is_flexible=is_flexible, uses_topic_ids=version >= 10).write
    throttle_time = bytes(4) if version >= 3 else b""

    if is_flexible:
        return lambda response, header: b"\x00\x00\x00\x00%b\x00" % write_topics(response.topics)
    return lambda response, header: throttle_time + write_topics(response.topics)


API = Api(8, "OffsetCommit", VersionRange(2, 10), 8, _decoder, _encoder)


# ---------------------------------------------------------------- TxnOffsetCommit


def _errors_of(version: int) -> Mapping[ErrorCode, ErrorCode]:
    """Return replacements of error codes that a version does not know (KIP-890, KIP-1319)."""
    errors = {}
    if version <= 5:
        errors[ErrorCode.STALE_MEMBER_EPOCH] = ErrorCode.ILLEGAL_GENERATION
    if version <= 3:
        errors[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    if version <= 1:
        errors[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return errors


def _txn_decoder(version: int) -> Decoder:
    since = {"adds_group": 5, "supports_member_epoch": 6}
    return request_decoder(_STRUCTURES["TxnOffsetCommit"], version, version >= 3, since)


def _txn_encoder(version: int) -> Encoder:
    is_flexible = version >= 3
    write_topics = ResultsWriter(_errors_of(version), is_flexible=is_flexible, uses_topic_ids=version >= 6).write
    tags = b"\x00" if is_flexible else b""

    return lambda response, header: b"\x00\x00\x00\x00%b%b" % (write_topics(response.topics), tags)


TXN_API = Api(28, "TxnOffsetCommit", VersionRange(0, 6), 3, _txn_decoder, _txn_encoder)
