"""XXH3 gives what its reference implementation gives, for inputs of every kind of length."""

from __future__ import annotations

import pytest

from groupcoord.core.javacompat import xxh3_64
from tests.tables import as_one_test

SAMPLE = bytes(number * number * 7 + number * 3 + (number >> 8) & 255 for number in range(5000))

GOLDEN = [
    (0, 0x2D06800538D394C2),
    (1, 0xC44BDFF4074EECDB),
    (2, 0x8137D9528D0E685D),
    (3, 0x32074F6B94585EA5),
    (4, 0xFDD8C65ADD01C2FA),
    (7, 0xE115AF78A1E64717),
    (8, 0x622B9451647C902D),
    (9, 0x3D978073EE949064),
    (15, 0x0203B164A1836782),
    (16, 0xB666997D87225E9A),
    (17, 0xB439B53A29247A63),
    (32, 0xE9A948D671CD2614),
    (33, 0x534C710873896361),
    (64, 0x0624D8AB3833CFD0),
    (65, 0x1C945BC94EF49B26),
    (96, 0x695D7D476D6297F9),
    (97, 0x31F58BEACFC06A78),
    (128, 0xB19AD7F53A2DE2AF),
    (129, 0x4979891BCA3481F7),
    (144, 0xCB83B10F1193FC56),
    (239, 0xDC3FBFE499425608),
    (240, 0x947E21352B67412D),
    (241, 0x113425AE2609C4E6),
    (255, 0x09C5A2B55352A05D),
    (256, 0xE161E33D880ECC9F),
    (1023, 0x97E5AC18695F37E6),
    (1024, 0x93DFBE9B374720E9),
    (1025, 0xA1FAE8635350E9DE),
    (1088, 0xCF2C7801DAA81AD4),
    (1089, 0xC028660DC277F19F),
    (2048, 0x95322EDF0E1A7729),
    (2049, 0xC6F96DBD4DD3FD08),
    (5000, 0xB48F38A8F5F79527),
]


@as_one_test
@pytest.mark.parametrize(("size", "value"), GOLDEN)
def test_golden_values(size: int, value: int) -> None:
    """Short, middle, long and very long input each go their own way; the borders between them are here."""
    assert xxh3_64(SAMPLE[:size]) == value
