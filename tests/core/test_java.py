"""Java behaviour in Kafka's answers, with golden values from the JVM, and XXH3 with those of its reference."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from groupcoord.coordinator.group_coordinator import random_uuid
from groupcoord.core.javacompat import (
    HashTable,
    PriorityQueue,
    buckets_for,
    buckets_of_copy,
    hash_bucket,
    hash_map_order,
    integer_hash,
    partition_for,
    string_hash,
    string_sort_key,
    timeline_map_order,
    uuid_hash,
    uuid_sort_key,
    xxh3_64,
)
from tests.tables import as_one_test

GOLDEN = [
    ("", 0, 0),
    ("group", 98629247, 47),
    ("my-group", -1906497762, 12),
    ("group\N{LATIN SMALL LETTER E WITH ACUTE}", -1237460406, 6),
    ("\N{GRINNING FACE}", 1772899, 49),
    ("polygenelubricants", -(2**31), 0),
]


@as_one_test
@pytest.mark.parametrize(("text", "value", "partition"), GOLDEN)
def test_golden_values(text: str, value: int, partition: int) -> None:
    """The hash counts UTF-16 units and wraps; the absolute value of -2^31 is 0."""
    assert string_hash(text) == value
    assert partition_for(text, 50) == partition


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_the_hash_is_the_polynomial(text: str) -> None:
    """For any text it is the sum of unit * 31^(n - 1 - index) modulo 2^32, as a signed number."""
    units = _units(text)
    expected = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units)) % 2**32
    assert string_hash(text) == (expected - 2**32 if expected >= 2**31 else expected)


def _units(text: str) -> list[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[place : place + 2], "big") for place in range(0, len(encoded), 2)]


@as_one_test
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


def test_buckets_mix_the_upper_half_in() -> None:
    """The upper 16 bits count too; a negative hash is taken as its 32 bits."""
    assert [hash_bucket(value, 16) for value in (17, 0x10000, 0x10001, -1)] == [1, 1, 0, 0]
    assert hash_bucket(-(2**31), 1 << 16) == 0x8000


@given(st.lists(st.text(alphabet=st.characters(codec=None, exclude_categories=()))))
def test_strings_sort_by_utf_16_units(texts: list[str]) -> None:
    """The key orders as a comparison of the units does, lone surrogates included."""
    assert sorted(texts, key=string_sort_key) == sorted(texts, key=_units)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("00000000-0000-0001-0000-000000000002", 3),
        ("ffffffff-ffff-ffff-0000-000000000000", 0),
        ("01234567-89ab-cdef-fedc-ba9876543210", 0),
        ("e358efa4-89f5-3062-b10d-d7316b65649e", -1329238935),
    ],
)
def test_ids_hash_as_kafkas_do(value: str, expected: int) -> None:
    """The four words of an id are combined, as a signed number."""
    assert uuid_hash(UUID(value)) == expected


def test_ids_sort_as_signed_numbers() -> None:
    """The upper half decides, then the lower one; what begins with a set bit is negative."""
    ids = [UUID(int=number) for number in (2**127, 2**127 + 2**63, 2**127 + 1, 2**63, 0, 1, 2**64)]
    order = [2**127 + 2**63, 2**127, 2**127 + 1, 2**63, 0, 1, 2**64]

    assert [found.int for found in sorted(ids, key=uuid_sort_key)] == order


def test_keys_that_are_computed_come_first_in_their_bucket() -> None:
    """``computeIfAbsent`` puts keys at the beginning of a bucket, and lets one more in before the table doubles."""
    table = HashTable(string_hash, buckets=buckets_for(2))
    seen = []
    for key in ("a", "b", "Aa", "BB", "q", "r"):
        table.compute_if_absent(key)
        seen.append(" ".join(table))

    assert seen == ["a", "b a", "Aa a b", "BB Aa a b", "BB Aa q a b", "BB Aa q a r b"]
    table.compute_if_absent("a")
    assert list(table) == ["BB", "Aa", "q", "a", "r", "b"]


def test_sets_of_numbers_are_walked_by_bucket() -> None:
    """A set that was made from a collection is as large as that needs; what comes later goes behind in its bucket."""
    numbers = HashTable(integer_hash, (40, 8, 24, 1, 17, 33, 2), max(16, buckets_of_copy(7)))
    assert list(numbers) == [1, 17, 33, 2, 40, 8, 24]
    numbers.discard(8)
    numbers.put(56)
    numbers.put(40)
    assert list(numbers) == [1, 17, 33, 2, 40, 24, 56]
    assert len(numbers) == 7
    grown = HashTable(integer_hash)
    for number in range(13):
        grown.put(number * 16)
    assert list(grown) == [*range(0, 208, 32), *range(16, 208, 32)]


def test_how_large_java_makes_its_tables() -> None:
    """The next power of two; for a copy a third more, so that twelve keys take 32 buckets, not 16."""
    assert [buckets_for(capacity) for capacity in (0, 1, 2, 3, 16, 17)] == [1, 1, 2, 4, 16, 32]
    assert [buckets_of_copy(size) for size in (0, 1, 2, 3, 11, 12, 13, 24)] == [1, 2, 4, 8, 16, 32, 32, 64]


@pytest.mark.parametrize(
    ("count", "order"),
    [
        (2, "0 1"),
        (3, "2 0 1"),
        (6, "5 0 2 4 1 3"),
        (12, "0 5 2 7 4 11 9 1 6 3 10 8"),
        (25, "0 20 5 12 17 2 22 7 14 19 4 11 24 9 16 1 21 6 13 18 3 10 23 8 15"),
    ],
)
def test_the_order_of_timelines(count: int, order: str) -> None:
    """Kafka's table of snapshots grows later than Java's, and walks each slot from its end."""
    assert timeline_map_order(f"m{number}" for number in range(count)) == [f"m{number}" for number in order.split()]


def test_timelines_with_equal_hashes() -> None:
    """Of two keys with the same hash the later one comes first."""
    assert timeline_map_order(["Aa", "BB", "range", "uniform"]) == ["uniform", "BB", "Aa", "range"]


def test_a_priority_queue_takes_the_least_and_of_equal_ones_what_the_heap_has_on_top() -> None:
    """Entries come in order, and equal ones as in Java, where the last takes the place of the first."""
    queue = PriorityQueue(len, ["ab", "cd", "ef", "gh", "i"])
    taken = [queue.take() for _ in range(5)]

    assert [len(entry) for entry in taken] == [1, 2, 2, 2, 2]
    assert taken == ["i", "cd", "gh", "ef", "ab"]
    assert len(queue) == 0


def test_random_ids_do_not_begin_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``Uuid.randomUuid``, ids whose text begins with a dash are drawn again."""
    drawn = iter([UUID(int=0xF8 << 120), UUID(int=1)])
    monkeypatch.setattr("uuid.uuid4", lambda: next(drawn))
    assert random_uuid() == "AAAAAAAAAAAAAAAAAAAAAQ"


SAMPLE = bytes(number * number * 7 + number * 3 + (number >> 8) & 255 for number in range(1025))


@as_one_test
@pytest.mark.parametrize(
    ("size", "value"),
    [
        (0, 0x2D06800538D394C2),
        (2, 0x8137D9528D0E685D),
        (3, 0x32074F6B94585EA5),
        (4, 0xFDD8C65ADD01C2FA),
        (8, 0x622B9451647C902D),
        (9, 0x3D978073EE949064),
        (16, 0xB666997D87225E9A),
        (17, 0xB439B53A29247A63),
        (33, 0x534C710873896361),
        (128, 0xB19AD7F53A2DE2AF),
        (129, 0x4979891BCA3481F7),
        (240, 0x947E21352B67412D),
        (241, 0x113425AE2609C4E6),
        (256, 0xE161E33D880ECC9F),
        (1025, 0xA1FAE8635350E9DE),
    ],
)
def test_xxh3(size: int, value: int) -> None:
    """Each range of lengths has its own algorithm."""
    assert xxh3_64(SAMPLE[:size]) == value
