"""What is kept of one group while its log grows, and how that becomes one blob.

A blob is a byte with the version of its form and, compressed, JSON in which each object is the list of its attributes'
values, in the order of their declaration. So the version changes with any of these classes' attributes; a test holds
the list of them.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from typing import Any

import attrs
from attrs import define, field

from groupcoord.analysis.history.embedded import TopicPartition
from groupcoord.analysis.history.epochs import EpochGroup, Kip848Types, types_named
from groupcoord.analysis.history.fold import FoldOptions, GroupFold, OpenRebalance
from groupcoord.analysis.history.ownership import Move, Ownership, Revocation
from groupcoord.analysis.history.trace import GroupTrace, Membership
from groupcoord.analysis.history.views import GroupView, MemberView
from groupcoord.errors import GroupcoordError

BLOB_VERSION = 3

_COMPRESSION_LEVEL = 6


class StateVersionError(GroupcoordError):
    """A blob is in a form that this version of groupcoord does not know."""


@define
class KnownOffset:
    """The last record of a committed offset, whose transaction, if any, was committed.

    Attributes:
        log_offset: where it lies.
        committed_offset: the next offset to read; None: a tombstone, which is kept as long as an open transaction has
            an older commit of the same partition.
        leader_epoch: as in the record, as all that follow.
        metadata: see there.
        commit_timestamp_ms: see there.
        expire_timestamp_ms: see there.
        topic_id: see there.
    """

    log_offset: int
    committed_offset: int | None
    leader_epoch: int | None
    metadata: str | None
    commit_timestamp_ms: int | None
    expire_timestamp_ms: int | None
    topic_id: bytes | None


@define
class GroupState:
    """One group as far as its log was read.

    Attributes:
        fold: its history so far.
        offsets: by topic and partition.
    """

    fold: GroupFold
    offsets: dict[TopicPartition, KnownOffset] = field(factory=dict)

    def learn(self, partition: TopicPartition, offset: KnownOffset) -> None:
        """Take an offset's record, if it lies behind the one that is known: transactions are committed late."""
        known = self.offsets.get(partition)
        if known is None or known.log_offset < offset.log_offset:
            self.offsets[partition] = offset

    def forget_tombstones(self, below: int | None) -> None:
        """Drop tombstones that no transaction has a commit before; ``below``: where the first open one begins."""
        self.offsets = {
            partition: known
            for partition, known in self.offsets.items()
            if known.committed_offset is not None or (below is not None and below < known.log_offset)
        }


CLASSES: tuple[type[Any], ...] = (
    *(GroupState, KnownOffset, GroupFold, FoldOptions, OpenRebalance, EpochGroup, GroupView, MemberView),
    *(GroupTrace, Membership, Ownership, Move, Revocation),
)
"""What a blob is made of, in the order of the numbers that stand for them."""

_NUMBER_OF = {one: number for number, one in enumerate(CLASSES)}


def encode_state(state: GroupState) -> bytes:
    """Return the blob of a group."""
    text = json.dumps(_plain(state), separators=(",", ":"))
    return bytes([BLOB_VERSION]) + zlib.compress(text.encode("ascii"), _COMPRESSION_LEVEL)


def decode_state(blob: bytes) -> GroupState:
    """Return the group that :func:`encode_state` was given.

    Raises:
        StateVersionError: the blob is of another version.
    """
    if blob[:1] != bytes([BLOB_VERSION]):
        told = str(blob[0]) if blob else "none"
        raise StateVersionError(
            f"a group is kept in form {told}, and this version of groupcoord knows form {BLOB_VERSION}"
        )
    state = _object(json.loads(zlib.decompress(blob[1:])))
    assert isinstance(state, GroupState)
    return state


def _plain(value: Any) -> Any:
    """Return a value in JSON's terms: what JSON has no word for is an object with one key that says what it is."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return {"b": b64encode(value).decode("ascii")}
    if isinstance(value, Kip848Types):
        return {"k": value.group_type}
    if isinstance(value, tuple):
        return {"t": [_plain(one) for one in value]}
    if isinstance(value, frozenset):
        return {"s": [_plain(one) for one in sorted(value)]}
    if isinstance(value, dict):
        return {"d": [[_plain(key), _plain(one)] for key, one in value.items()]}
    return {"o": [_NUMBER_OF[type(value)], *(_plain(getattr(value, one.name)) for one in attrs.fields(type(value)))]}


def _object(value: Any) -> Any:
    """Return what :func:`_plain` was given."""
    if isinstance(value, list):
        return [_object(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "b":
        return b64decode(content)
    if kind == "k":
        return types_named(content)
    if kind == "t":
        return tuple(_object(one) for one in content)
    if kind == "s":
        return frozenset(_object(one) for one in content)
    if kind == "d":
        return {_object(key): _object(one) for key, one in content}
    made = CLASSES[content[0]]
    given = zip(attrs.fields(made), content[1:], strict=True)
    return made(**{one.alias: _object(plain) for one, plain in given})
