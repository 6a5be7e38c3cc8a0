"""Offsets of many partitions as columns: in requests, log, memory and responses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar, overload

from groupcoord.core.fast_construct import maker

NEVER_CHANGES = True  # all of its classes: see forking/copies.py

T = TypeVar("T")

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class OffsetColumns(NamedTuple):
    """Offsets of partitions of one topic as parallel tuples.

    A commit is decoded into these; the same columns are logged, kept and fetched.

    Attributes:
        partition_indexes: the partitions.
        offsets: one for each partition.
        leader_epochs: one for each offset; -1 if unknown.
        metadata: the client's text for each offset; None if all are empty.
    """

    partition_indexes: tuple[int, ...]
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    metadata: Sequence[str] | None = None

    def texts(self) -> Sequence[str]:
        return ("",) * len(self.offsets) if self.metadata is None else self.metadata

    def select(self, places: Sequence[int]) -> OffsetColumns:
        indexes, offsets, leader_epochs, metadata = self
        return offset_columns(
            [indexes[place] for place in places],
            [offsets[place] for place in places],
            [leader_epochs[place] for place in places],
            None if metadata is None else [metadata[place] for place in places],
        )


make_columns = maker(OffsetColumns)


def offset_columns(
    partition_indexes: Sequence[int],
    offsets: Sequence[int],
    leader_epochs: Sequence[int],
    metadata: Sequence[str] | None = None,
) -> OffsetColumns:
    """Return columns of equal length."""
    # Metadata that are all empty are none, so that equal commits have equal columns.
    kept = tuple(metadata) if metadata is not None and any(metadata) else None
    return make_columns((tuple(partition_indexes), tuple(offsets), tuple(leader_epochs), kept))


class Rows(Sequence[T]):
    """Immutable sequence of rows that are created from columns on access; equal to a tuple of the same rows."""

    __slots__ = ()

    @abstractmethod
    def __iter__(self) -> Iterator[T]:
        """Create the rows."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return the item at ``index``, or the tuple of a slice."""
        # Creates all rows, so hot paths read the columns.
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Rows | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


# ---------------------------------------------------------------- metadata

Widths = int | tuple[int, ...]
"""Length in bytes of each text, or one number if they are equal."""


class AsciiTexts(Rows[str]):
    """ASCII texts of one length, kept as bytes until they are read: the usual metadata of a request.

    Attributes:
        encoded: the bytes of at least one text.
        length: of each text.
    """

    __slots__ = ("encoded", "length")

    def __init__(self, encoded: tuple[bytes, ...]) -> None:
        self.encoded = encoded
        self.length = len(encoded[0])

    def __len__(self) -> int:
        return len(self.encoded)

    def __iter__(self) -> Iterator[str]:
        text, length = b"".join(self.encoded).decode("ascii"), self.length
        return iter([text[start : start + length] for start in range(0, len(text), length)])


def encode_each(texts: Sequence[str], length_of: Callable[[int], bytes]) -> tuple[list[bytes], Sequence[bytes], Widths]:
    """Return the encoded length of each text (by ``length_of``), its UTF-8 bytes, and the widths.

    Raises:
        UnicodeEncodeError: a text has surrogates.
    """
    # Read from a request, and written to the log unchanged.
    if type(texts) is AsciiTexts:
        return [length_of(texts.length)] * len(texts.encoded), texts.encoded, texts.length
    length = len(texts[0])
    # ASCII texts of equal length are encoded together.
    if length and [*map(len, texts)].count(length) == len(texts):
        joined = "".join(texts)
        if joined.isascii():
            encoded = joined.encode()
            contents = [encoded[start : start + length] for start in range(0, len(encoded), length)]
            return [length_of(length)] * len(contents), contents, length
    contents = [text.encode() for text in texts]
    widths = tuple(map(len, contents))
    lengths = [length_of(width) for width in widths]
    return lengths, contents, widths[0] if widths.count(widths[0]) == len(widths) else widths
