"""Answers in parts: what is said several times in one is kept, and takes memory, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from groupcoord.wire.errors import ProtocolError

T = TypeVar("T")

FRAME_BYTES_MAX = 2**31 - 1
"""What the length in front of a frame can say."""

ANSWER_MEMORY_MAX_BYTES = 256 * 1024 * 1024
"""An answer that takes more memory isn't given. A Kafka broker with its usual heap of 1 GiB ends at some such size."""


def write_each(elements: Sequence[T], write: Callable[[T], bytes]) -> list[bytes]:
    """Write each of the elements; an object that is among them several times is written once.

    Raises:
        ProtocolError: what was written takes more than :data:`ANSWER_MEMORY_MAX_BYTES`.
    """
    written: dict[int, bytes] = {}
    size = 0
    parts = []
    for element in elements:
        part = written.get(id(element))
        if part is None:
            part = written[id(element)] = write(element)
            size += len(part)
            if size > ANSWER_MEMORY_MAX_BYTES:
                raise ProtocolError(f"the answer is larger than {ANSWER_MEMORY_MAX_BYTES} bytes")
        parts.append(part)
    return parts
