"""No bytes do harm: a frame is a request or a ProtocolError, at once and without memory to speak of."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from groupcoord.wire import ProtocolError, decode_request
from tests.wire.kio_client import VERSIONS
from tests.wire.sample_frames import FRAMES

HOST = "/127.0.0.1"

ABSURD_LENGTHS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07")
"""2,147,483,647 as an int32, and one less as a compact length."""

OTHER_LENGTHS = (b"\x7f\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08")


def decode(frame: bytes) -> bool:
    """Return whether the frame is a request; exceptions other than ProtocolError propagate."""
    try:
        decode_request(frame, HOST)
    except ProtocolError:
        return False
    return True


def test_samples_are_requests() -> None:
    assert len(FRAMES) == sum(last - first + 1 for first, last in VERSIONS.values())
    assert all(decode(frame) for frame in FRAMES.values())


def test_every_truncation() -> None:
    """A frame that is cut anywhere behind the header is refused: nothing is made up."""
    for (api_key, version), frame in FRAMES.items():
        if api_key == 18 and version < 3:
            continue  # the body is empty
        for length in range(len(frame)):
            assert not decode(frame[:length]), (api_key, version, length)


def memory_of(frame: bytes) -> int:
    """Return how many bytes decoding a frame takes at its highest, with nothing that is made but once in a process."""
    peaks = []
    for _ in range(2):  # a table of what is remembered may grow at the first
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        decode(frame)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    return min(peaks)


def test_absurd_lengths_everywhere() -> None:
    """An absurd length at any place of any request costs no memory."""
    tracemalloc.start()
    try:
        for frame in FRAMES.values():
            for position in range(10, len(frame)):
                for length in ABSURD_LENGTHS:
                    assert memory_of(frame[:position] + length + frame[position + len(length) :]) < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("filler", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_endless_fillers(filler: int) -> None:
    """A long run of one byte in place of the body is a request or refused."""
    for frame in FRAMES.values():
        decode(frame[:18] + bytes([filler]) * 5000)
        decode(frame[:17] + b"\x00" + bytes([filler]) * 50)


mutations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 400), st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("insert"), st.integers(0, 400), st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("delete"), st.integers(0, 400), st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("set"), st.integers(0, 400), st.sampled_from(ABSURD_LENGTHS + OTHER_LENGTHS)),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=600, deadline=None)
@given(frame=st.sampled_from(sorted(FRAMES.values())), changes=mutations)
def test_mutations(frame: bytes, changes: list[tuple[str, int, bytes]]) -> None:
    """Any change to any request gives a request or a ProtocolError."""
    for kind, place, content in changes:
        position = place % (len(frame) + 1)
        tail = position if kind == "insert" else position + len(content)
        frame = frame[:position] + (b"" if kind == "delete" else content) + frame[tail:]
    decode(frame)


@settings(max_examples=300, deadline=None)
@given(api=st.sampled_from(sorted(FRAMES)), body=st.binary(max_size=200))
def test_random_bodies(api: tuple[int, int], body: bytes) -> None:
    """Any body behind a good header gives a request or a ProtocolError."""
    api_key, version = api
    decode(api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(6) + body)
