"""Metadata hash of a group's topics: Kafka's values, and a change for each input of an assignor."""

from __future__ import annotations

from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from groupcoord.core.topics import Topic, metadata_hash, topic_hash

T1 = Topic("t1", UUID("01020304-0506-0708-090a-0b0c0d0e0f10"), 2, (("r1", "r2"), ()))


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        (T1, 1461978267212122808),
        (evolve(T1, racks=(("r2", "r1"), ())), 1461978267212122808),
        (Topic("foo", UUID(int=2**64 + 2), 0), -1414895618637948600),
        (Topic("é", UUID(int=5), 1, (("rack-1",),)), -8258372071721100093),
    ],
)
def test_golden_values_of_topics(topic: Topic, value: int) -> None:
    """Id, name in UTF-16, partitions and sorted racks: as Kafka 4.4 hashes them, signed."""
    assert topic_hash(topic) == value


def test_golden_values_of_groups() -> None:
    """The topics' hashes in the order of their names; no topics are 0."""
    assert metadata_hash({"a": 1, "b": 2}) == metadata_hash({"b": 2, "a": 1}) == 571542372673154031
    assert metadata_hash({}) == 0


@settings(max_examples=100)
@given(
    name=st.text(min_size=1, max_size=5),
    topic_id=st.uuids(),
    racks=st.lists(st.lists(st.text(max_size=3), max_size=3).map(tuple), min_size=1, max_size=4).map(tuple),
)
def test_whatever_changes_shows(name: str, topic_id: UUID, racks: tuple[tuple[str, ...], ...]) -> None:
    """Another name, id, partition or rack is another hash; the order of a partition's racks is none."""
    topic = Topic(name, topic_id, len(racks), racks)
    changed = [
        evolve(topic, name=name + "x"),
        evolve(topic, topic_id=UUID(int=topic_id.int ^ 1)),
        evolve(topic, partition_count=len(racks) + 1, racks=(*racks, ())),
        evolve(topic, racks=((*racks[0], "one more"), *racks[1:])),
    ]

    hashes = {topic_hash(one) for one in (topic, *changed)}

    assert len(hashes) == 5
    assert all(-(2**63) <= value < 2**63 for value in hashes)
    assert topic_hash(evolve(topic, racks=tuple(tuple(reversed(one)) for one in racks))) == topic_hash(topic)
    if not any(racks):
        assert topic_hash(evolve(topic, racks=())) == topic_hash(topic)
