"""What Kafka's answers inherit from Java: golden values from the JVM."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.java import hash_bucket, hash_map_order, partition_for, string_hash, string_sort_key

GOLDEN = [
    ("", 0, 0),
    ("group", 98629247, 47),
    ("my-group", -1906497762, 12),
    ("test", 3556498, 48),
    ("consumer-group-1", 147483020, 20),
    ("group\N{LATIN SMALL LETTER E WITH ACUTE}", -1237460406, 6),
    ("\N{GRINNING FACE}", 1772899, 49),
    ("polygenelubricants", -(2**31), 0),
    ("g1", 3242, 42),
]


@pytest.mark.parametrize(("text", "value", "partition"), GOLDEN)
def test_golden_values(text: str, value: int, partition: int) -> None:
    """The hash counts UTF-16 units and wraps; the absolute value of -2^31 is 0."""
    assert string_hash(text) == value
    assert partition_for(text, 50) == partition


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_the_hash_is_the_polynomial(text: str) -> None:
    """It is the sum of unit * 31^(n - 1 - place) modulo 2^32, as a signed number, for any text."""
    units = _units(text)
    expected = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units)) % 2**32
    assert string_hash(text) == (expected - 2**32 if expected >= 2**31 else expected)


def _units(text: str) -> list[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[place : place + 2], "big") for place in range(0, len(encoded), 2)]


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    """The partition is one of those that exist."""
    assert 0 <= partition_for(group_id, count) < count


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("range", "roundrobin"), "range roundrobin"),
        (("range", "sticky"), "sticky range"),
        (("range", "cooperative-sticky"), "range cooperative-sticky"),
        (("a", "b"), "a b"),
        (("eager", "compatible"), "compatible eager"),
        (("cooperative-sticky", "roundrobin", "range", "sticky"), "sticky range roundrobin cooperative-sticky"),
    ],
)
def test_the_order_of_protocol_names(names: tuple[str, ...], order: str) -> None:
    """However they got in, the usual names come out in the order seen with Kafka 4.4."""
    for permutation in itertools.permutations(names):
        assert hash_map_order(permutation) == order.split()


def test_equal_buckets_keep_the_order_of_insertion() -> None:
    """Aa and BB have the same hash: the first in comes out first; repetitions do not count."""
    assert string_hash("Aa") == string_hash("BB")
    assert hash_map_order(["BB", "Aa", "BB"]) == ["BB", "Aa"]
    assert hash_map_order(["Aa", "BB"]) == ["Aa", "BB"]


def test_the_table_grows() -> None:
    """Twelve names fit in 16 buckets, where P (80) is first; the thirteenth makes it 32, where it is last."""
    assert hash_map_order("abcdefghijkP") == list("Pabcdefghijk")
    assert hash_map_order("abcdefghijklP") == list("abcdefghijklP")


def test_no_names() -> None:
    """Nothing in, nothing out."""
    assert hash_map_order([]) == []


def test_buckets_mix_the_upper_half_in() -> None:
    """The upper 16 bits count too; a negative hash is taken as its 32 bits."""
    assert [hash_bucket(value, 16) for value in (17, 0x10000, 0x10001, -1)] == [1, 1, 0, 0]
    assert hash_bucket(-(2**31), 1 << 16) == 0x8000


@given(st.lists(st.text(alphabet=st.characters(codec=None, exclude_categories=()))))
def test_strings_sort_by_utf_16_units(texts: list[str]) -> None:
    """The key orders as a comparison of the units does, lone surrogates included."""
    assert sorted(texts, key=string_sort_key) == sorted(texts, key=_units)
