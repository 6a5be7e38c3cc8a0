"""What is kept of a group is the group, in a form that is known."""

from __future__ import annotations

import attrs
import pytest

from groupcoord.analysis.history.fold import GroupFold
from groupcoord.analysis.history.state import (
    CLASSES,
    GroupState,
    KnownOffset,
    StateVersionError,
    decode_state,
    encode_state,
)


def test_a_blob_is_a_group() -> None:
    """What is decoded is what was encoded, and its form is one byte."""
    fold = GroupFold("g", 3)
    fold.name_topic("id", "name")
    fold.committed(5, 50, "t", 1)
    state = GroupState(fold, {("t", 1): KnownOffset(5, 7, -1, "déjà vu", 50, -1, bytes(range(16)))})
    blob = encode_state(state)

    assert blob[0] == 3
    assert decode_state(blob) == state


def test_a_blob_of_another_version_is_refused() -> None:
    """The message says which one, and which one is known."""
    for blob in (b"", b"\x01" + encode_state(GroupState(GroupFold("g")))[1:]):
        with pytest.raises(StateVersionError, match=r"in form (none|1), and this version of groupcoord knows form 3"):
            decode_state(blob)


def test_the_form_of_blobs_is_pinned() -> None:
    """Whoever changes an attribute of what is kept changes BLOB_VERSION, and this list."""
    assert {one.__name__: len(attrs.fields(one)) for one in CLASSES} == {
        "GroupState": 2,
        "KnownOffset": 7,
        "GroupFold": 18,
        "FoldOptions": 2,
        "OpenRebalance": 6,
        "EpochGroup": 19,
        "GroupView": 9,
        "MemberView": 23,
        "GroupTrace": 9,
        "Membership": 9,
        "Ownership": 10,
        "Move": 9,
        "Revocation": 5,
    }


def test_tombstones_wait_for_open_transactions() -> None:
    """A tombstone is forgotten once no transaction can bring an older commit."""
    state = GroupState(GroupFold("g"))
    state.learn(("t", 0), KnownOffset(9, None, None, None, None, None, None))
    state.forget_tombstones(5)
    state.learn(("t", 0), KnownOffset(6, 1, -1, "", 0, -1, None))
    assert state.offsets["t", 0].log_offset == 9
    state.forget_tombstones(10)
    assert state.offsets == {}
