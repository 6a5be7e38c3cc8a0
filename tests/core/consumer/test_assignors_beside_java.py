"""Consumer and share group assignors compared with Kafka's classes on random groups. Needs Java and the jars of Kafka
4.4, in ``KAFKA_LIBS`` or ``~/.cache/groupcoord-kafka/libs``. ``ASSIGNOR_SEEDS=0:2000`` sets the seeds per assignor.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from groupcoord.core.javacompat import hash_bucket, uuid_hash
from tests.member.assignors.recorded import has_overfull_bucket
from tests.member.assignors.test_beside_java import SEEDS, answered_by_java
from tests.storage.real_broker import needs_kafka

from .random_groups import ASSIGNORS, Story
from .recorded import Record, expected_shape, group_of, kafka_uuid, shape_of, without_order

PROGRAM = Path(__file__).with_name("ConsumerAssignors.java")

pytestmark = [pytest.mark.slow, *needs_kafka]


def is_as_expected(record: Record) -> bool:
    """Compare the answers: with the order of topics and partitions, but where nothing changes for a member.

    That of share groups has the order of hash maps in Java, and orders partitions here.
    """
    got = shape_of(record, ASSIGNORS[record["assignor"]].assign(group_of(record)))
    expected = expected_shape(record)
    if without_order(got) != without_order(expected):
        return False
    before = {
        member["member_id"]: without_order({"": list(member["assigned"].items())}) for member in record["members"]
    }
    if record["assignor"] == "simple":
        return True
    changed = {m for m, topics in without_order(expected).items() if before[m] != {"": topics}}
    return all(got[member_id] == expected[member_id] for member_id in changed)


def has_crowded_places(record: Record) -> bool:
    """Return whether more than eight keys share a bucket, in which case Java grows the table or makes the bucket a
    tree.
    """
    places = {
        31 * uuid_hash(kafka_uuid(topic["id"])) + index
        for topic in record["topics"].values()
        for index in range(topic["partitions"])
    }
    crowds = (Counter(hash_bucket(place, buckets) for place in places) for buckets in (16, 32))
    return record["assignor"] == "simple" and any(max(crowd.values(), default=0) > 8 for crowd in crowds)


def test_answers_are_those_of_java(tmp_path: Path) -> None:
    """Every round of every story gets Java's answer, order included."""
    stories = [Story(assignor, seed) for assignor in ASSIGNORS for seed in SEEDS]
    records = answered_by_java(PROGRAM, [record for story in stories for record in story.rounds()], tmp_path)
    failed = [record["id"] for record in records if "failed" in record]
    different = [
        record["id"]
        for record in records
        if "failed" not in record
        and not has_overfull_bucket(record)
        and not has_crowded_places(record)
        and not is_as_expected(record)
    ]

    print(f"{len(records)} groups compared, {len(failed)} of them without an answer from Java")
    assert all(group.startswith("simple-") for group in failed)  # of some it assigns more than there are places for
    assert not different
    assert len(records) >= len(stories)
