"""Reading the topics in a consumer's metadata, which is anything a client cares to send."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from groupcoord.core.consumer_protocol import subscribed_topics
from tests.tables import as_one_test

ORDERS = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


@as_one_test
@pytest.mark.parametrize(
    ("subscription", "topics"),
    [
        (ORDERS, {"orders"}),
        (b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", set()),
        (b"\x00\x03" + ORDERS[2:] + b"\x00\x00\x00\x00later versions have more", {"orders"}),
        (b"\x7f\xff" + ORDERS[2:], {"orders"}),
        (b"\xff\xff" + ORDERS[2:], {"orders"}),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00", {"\ufffd"}),
        (b"\x00\x00\x00\x00\x00\x02\x00\x01a\x00\x02bc\x00\x00\x00\x03xyz", {"a", "bc"}),
        (b"\x00\x00\x00\x00\x00\x01\x00\x02\xc3\xa9\x00\x00\x00\x00", {"\N{LATIN SMALL LETTER E WITH ACUTE}"}),
        (b"\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00", {""}),
    ],
)
def test_readable(subscription: bytes, topics: set[str]) -> None:
    """The prefix that all versions share is read as in Kafka: negative versions and names that are no UTF-8, too."""
    assert subscribed_topics([subscription]) == topics


@as_one_test
@pytest.mark.parametrize(
    "subscription",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x00\x00\x00",
        b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff",
        ORDERS[:7],
        ORDERS[:10],
        ORDERS[:14],
        ORDERS[:15],
        b"\x00\x00\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00",
        ORDERS[:-4] + b"\x00\x00\x00\x01",
        b"no consumer metadata",
    ],
)
def test_unreadable(subscription: bytes) -> None:
    """The topics of all members are unknown if one member's metadata is unreadable."""
    assert subscribed_topics([subscription]) is None
    assert subscribed_topics([ORDERS, subscription]) is None


def test_the_union() -> None:
    """The topics of all members count; without members there are none."""
    assert subscribed_topics([ORDERS, ORDERS.replace(b"orders", b"trades")]) == {"orders", "trades"}
    assert subscribed_topics([]) == frozenset()


@given(st.binary(max_size=64))
def test_any_bytes(subscription: bytes) -> None:
    """Any bytes of a client give topics or None, at once."""
    topics = subscribed_topics([subscription])
    assert topics is None or all(isinstance(topic, str) for topic in topics)


@given(st.lists(st.text(max_size=20), max_size=5), st.binary(max_size=10))
def test_what_is_written_is_read(topics: list[str], rest: bytes) -> None:
    """Any list of names comes back."""
    names = [topic.encode() for topic in topics]
    body = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    subscription = b"\x00\x01" + len(names).to_bytes(4, "big") + body + len(rest).to_bytes(4, "big") + rest
    assert subscribed_topics([subscription]) == frozenset(topics)
