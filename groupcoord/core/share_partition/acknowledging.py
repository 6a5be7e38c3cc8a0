"""What a member says of records that it has, and in which form it may say so."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from groupcoord.core.fast_construct import plain_members
from groupcoord.errors import ErrorCode


@plain_members
class AcknowledgeType(IntEnum):
    """What is to become of a record, by Kafka's numbers."""

    GAP = 0
    """There is no such record."""
    ACCEPT = 1
    RELEASE = 2
    """Somebody else may try."""
    REJECT = 3
    """Nobody should try again."""
    RENEW = 4
    """It takes longer (KIP-1222)."""


class Acknowledgement(NamedTuple):
    """Records that follow each other, and a type for all or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]

    def said(self, first: int, last: int) -> list[tuple[int, int, AcknowledgeType]]:
        """Return what is said of records between two offsets that it is about: of which, up to which, and what."""
        types = self.acknowledge_types
        if len(types) == 1:
            return [(first, last, AcknowledgeType(types[0]))]
        said = []
        for kind, same in groupby(types[first - self.first_offset : last + 1 - self.first_offset]):
            end = first + len(list(same)) - 1
            said.append((first, end, AcknowledgeType(kind)))
            first = end + 1
        return said


ACKNOWLEDGEMENTS_MAX = 20_000
"""More of one partition come in no request: records that are next to each other may be named together, and no more than
10,000 can be locked."""


class RefusedAcknowledgementError(Exception):
    """Acknowledgements are refused, and nothing has changed."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


def check_acknowledgements(acknowledgements: Sequence[Acknowledgement], *, may_renew: bool) -> None:
    """Check the form of what a member says of the records of a partition.

    Args:
        acknowledgements: what it says.
        may_renew: the request says that there are such.

    Raises:
        RefusedAcknowledgementError: INVALID_REQUEST.
    """
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    if len(acknowledgements) > ACKNOWLEDGEMENTS_MAX:
        raise RefusedAcknowledgementError(ErrorCode.INVALID_REQUEST)
    behind = -1
    for first, last, types in acknowledgements:
        is_sound = behind <= first <= last and len(types) in (1, last - first + 1)
        if not is_sound or not all(AcknowledgeType.GAP <= kind <= highest for kind in types):
            raise RefusedAcknowledgementError(ErrorCode.INVALID_REQUEST)
        behind = last
