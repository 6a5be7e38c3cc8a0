"""Subscriptions and assignments in bytes: those that kafka-clients 4.4.0 wrote, and what can't be read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from groupcoord.core.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

from .assignors.recorded import Record, records, subscriptions_of

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
FULL = Subscription(("a", "b"), b"\x01\x02", OWNED, 7, "rack-1")


def recorded_bytes() -> Iterator[tuple[Record, str, Record]]:
    for assignor in ASSIGNORS:
        for record in records(assignor):
            for member_id, wire in record.get("wire", {}).items():
                yield record, member_id, wire


def was_cut(record: Record, member_id: str) -> bool:
    """Return whether the member's recorded fields are those of an older version than its recorded bytes."""
    return any(m["member_id"] == member_id and "subscription_version" in m for m in record["members"])


def test_recorded_subscriptions_are_written_alike() -> None:
    """Each version of each recorded subscription is what we write for the member's fields."""
    compared = 0
    for record, member_id, wire in recorded_bytes():
        if was_cut(record, member_id):
            continue
        for version, expected in enumerate(wire["subscription"]):
            assert encode_subscription(subscriptions_of(record)[member_id], version).hex() == expected, record["id"]
            compared += 1

    assert compared > 900


def test_recorded_subscriptions_are_read_alike() -> None:
    """Every recorded subscription is read, and written again, as it was; version 3 has what the older ones have."""
    for _, _, wire in recorded_bytes():
        read = [decode_subscription(bytes.fromhex(data)) for data in wire["subscription"]]
        for version, (data, subscription) in enumerate(zip(wire["subscription"], read, strict=True)):
            assert encode_subscription(subscription, version).hex() == data
            assert encode_subscription(read[3], version).hex() == data


def test_recorded_assignments_are_written_and_read_alike() -> None:
    """Each version of each recorded assignment is what we write, and is read as the recorded answer."""
    compared = 0
    for record, member_id, wire in recorded_bytes():
        if record["assignment"] is None:
            continue
        topics = record["assignment"][member_id]
        assignment = Assignment(tuple(TopicPartition(topic, n) for topic, numbers in topics.items() for n in numbers))
        for version, expected in enumerate(wire["assignment"]):
            assert encode_assignment(assignment, version).hex() == expected
            assert decode_assignment(bytes.fromhex(expected)) == assignment
            compared += 1

    assert compared > 900


def test_newer_versions_are_read_as_the_newest_known() -> None:
    """A version that is not known yet is read as version 3, and what follows is not looked at; we write 3 at most."""
    data = encode_subscription(FULL, 9)

    assert data == encode_subscription(FULL, 3)
    assert decode_subscription(b"\x00\x09" + data[2:] + b"more") == FULL
    assert decode_assignment(b"\x7f\xff" + encode_assignment(Assignment(OWNED))[2:] + b"more") == Assignment(OWNED)


def test_older_versions_leave_out_what_they_lack() -> None:
    """Version 0 has topics and user data, 1 owned partitions, 2 the generation, 3 the rack."""
    assert decode_subscription(encode_subscription(FULL, 0)) == Subscription(FULL.topics, FULL.user_data)
    assert decode_subscription(encode_subscription(FULL, 1)) == Subscription(FULL.topics, FULL.user_data, OWNED)
    assert decode_subscription(encode_subscription(FULL, 2)) == Subscription(FULL.topics, FULL.user_data, OWNED, 7)
    assert decode_subscription(encode_subscription(FULL, 3)) == FULL


def test_topics_and_owned_partitions_are_sorted_as_java_sorts() -> None:
    """By UTF-16 code units: a character beyond the basic plane comes before the last ones of it."""
    emoji, full_width = "\N{GRINNING FACE}", "\N{FULLWIDTH LATIN SMALL LETTER A}"
    owned = (TopicPartition(full_width, 3), TopicPartition(emoji, 2), TopicPartition(full_width, 1))

    read = decode_subscription(encode_subscription(Subscription((full_width, emoji, "z"), None, owned)))

    assert read.topics == ("z", emoji, full_width)
    assert read.owned_partitions == (
        TopicPartition(emoji, 2),
        TopicPartition(full_width, 1),
        TopicPartition(full_width, 3),
    )


def test_the_instance_id_comes_from_the_join() -> None:
    data = encode_subscription(Subscription(("a",), group_instance_id="i"))

    assert decode_subscription(data).group_instance_id is None
    assert decode_subscription(data, "i").group_instance_id == "i"


def test_an_empty_rack_is_none_and_generations_below_0_too() -> None:
    assert decode_subscription(encode_subscription(Subscription(rack_id=""))).rack_id is None
    assert decode_subscription(encode_subscription(Subscription(generation_id=-5))).generation_id == -1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it has 0 bytes"),
        (b"\x00", "it has 1 bytes"),
        (b"\xff\xff", "its version is -1"),
        (b"\x80\x00" + bytes(40), "its version is -32768"),
        (b"\x00\x00\x7f\xff\xff\xff", "malformed"),
        (b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", "malformed"),
        (b"\x00\x00\x00\x00\x00\x01\xff\xff", "malformed"),
    ],
)
def test_malformed_bytes_are_an_error(data: bytes, why: str) -> None:
    """Too few bytes, a negative version, absurd or negative lengths and a missing name are refused."""
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(ConsumerProtocolError, match=why):
            decode(data)


def test_every_cut_is_an_error() -> None:
    """Bytes that end too early are refused, wherever that is, with the version named."""
    for kind, data, decode in (
        ("subscription", encode_subscription(FULL), decode_subscription),
        ("assignment", encode_assignment(Assignment(OWNED, b"x")), decode_assignment),
    ):
        for end in range(2, len(data)):
            with pytest.raises(ConsumerProtocolError, match=f"the {kind} of version 3 is malformed"):
                decode(data[:end])


def test_text_that_is_no_utf8_is_read_with_replacements() -> None:
    """As Java's decoder does: a name that can't be read is that of no topic."""
    data = b"\x00\x00\x00\x00\x00\x01\x00\x02\xc3\x28\xff\xff\xff\xff"
    assert decode_subscription(data).topics == ("\ufffd(",)


def test_absurd_lengths_allocate_nothing() -> None:
    """An array with a claimed length of two billion costs no memory."""
    data = b"\x00\x00\x00\x00\x00\x01\x00\x01a\x7f\xff\xff\xff" + bytes(64)
    tracemalloc.start()
    with pytest.raises(ConsumerProtocolError):
        decode_assignment(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    refusals = []
    for version in range(4):
        data = version.to_bytes(2, "big") + noise
        for decode in (decode_subscription, decode_assignment):
            try:
                decode(data)
            except ConsumerProtocolError as error:
                refusals.append(str(error))

    assert all("malformed" in refusal for refusal in refusals)


names = st.text(st.characters(codec="utf-8"), max_size=8)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=8, unique=True)


@given(
    names=st.lists(names, max_size=5),
    user_data=st.none() | st.binary(max_size=9),
    owned=partitions,
    rack=st.none() | names,
)
def test_what_is_written_is_read(
    names: list[str], user_data: bytes | None, owned: list[TopicPartition], rack: str | None
) -> None:
    """Version 3 loses nothing but the order of what is sorted, and what is read is written as it was."""
    subscription = Subscription(tuple(names), user_data, tuple(owned), 5, rack)
    data = encode_subscription(subscription)
    read = decode_subscription(data)

    assert (sorted(read.topics), sorted(read.owned_partitions)) == (sorted(names), sorted(owned))
    assert (read.user_data, read.generation_id, read.rack_id) == (user_data, 5, rack or None)
    assert encode_subscription(read) == data or rack == ""
    assert set(decode_assignment(encode_assignment(Assignment(tuple(owned), user_data))).partitions) == set(owned)


def test_what_does_not_fit_is_an_error() -> None:
    """Negative versions, names of more than 32,767 bytes, numbers beyond 32 bits and lone surrogates are refused."""
    for version in (-1, -32_768):
        with pytest.raises(ConsumerProtocolError, match=f"version {version}"):
            encode_subscription(FULL, version)
        with pytest.raises(ConsumerProtocolError, match=f"version {version}"):
            encode_assignment(Assignment(OWNED), version)
    for partition in (TopicPartition("x" * 32_768, 0), TopicPartition("x", 2**31), TopicPartition("\ud800", 0)):
        with pytest.raises(ConsumerProtocolError, match="can't be encoded"):
            encode_subscription(Subscription(owned_partitions=(partition,)))
        with pytest.raises(ConsumerProtocolError, match="can't be encoded"):
            encode_assignment(Assignment((partition,)))
