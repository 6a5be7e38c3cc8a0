"""Responses in parts: a repeated entry is kept, and takes memory, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from groupcoord.wire.errors import ProtocolError

T = TypeVar("T")

FRAME_BYTES_MAX = 2**31 - 1
"""Largest length of a frame."""

ANSWER_MEMORY_MAX_BYTES = 256 * 1024 * 1024
"""Largest memory of a response. A Kafka broker with the default heap of 1 GiB fails at about this size."""


def write_each(elements: Sequence[T], write: Callable[[T], bytes]) -> list[bytes]:
    """Encode each of the elements; an object that occurs several times is encoded once.

    Raises:
        ProtocolError: the result takes more than :data:`ANSWER_MEMORY_MAX_BYTES`.
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
