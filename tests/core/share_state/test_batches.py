"""Merging of state batches, compared with a model of single offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from groupcoord.core.share_state.records import StateBatch, merge_batches

BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(-2, 20),
        st.integers(0, 9),
        st.sampled_from((0, 2, 3, 4)),
        st.integers(1, 3),
    ),
    max_size=6,
)


def offsets_of(batches: list[StateBatch]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (count, state))
    return found


@given(BATCHES, BATCHES, st.integers(-1, 25))
def test_each_offset_has_the_latest_attempt(known: list[StateBatch], changed: list[StateBatch], start: int) -> None:
    """Per offset the higher count wins, then the higher state; below the start there is nothing; neighbours join."""
    merged = merge_batches(known, changed, start)
    expected = {offset: found for offset, found in offsets_of(known + changed).items() if start < 0 or offset >= start}
    assert offsets_of(list(merged)) == expected
    for left, right in pairwise(merged):
        assert left.last_offset < right.first_offset
        assert left.last_offset + 1 < right.first_offset or left[2:] != right[2:]
    assert merge_batches(merged, (), start) == merged
