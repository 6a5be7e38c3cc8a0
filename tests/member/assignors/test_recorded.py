"""The assignors answer as those of kafka-clients 4.4.0 did, for 948 recorded groups and stories, order included."""

from __future__ import annotations

from collections import Counter

import pytest

from groupcoord.core.consumer_protocol import Assignment, TopicPartition
from groupcoord.member.assignors import ASSIGNORS, AssignmentError
from groupcoord.member.assignors.balancing import decode_sticky_user_data, encode_sticky_user_data

from .recorded import (
    Record,
    Shape,
    cluster_of,
    expected_shape,
    hangs_on_hash_order,
    has_overfull_bucket,
    records,
    shape_of,
    subscriptions_of,
)

GROUPS = {"range": 207, "roundrobin": 150, "sticky": 211 + 418, "cooperative-sticky": 202 + 387, "disputed": 460}


def answer(record: Record) -> Shape | None:
    try:
        return shape_of(ASSIGNORS[record["assignor"]]().assign(cluster_of(record), subscriptions_of(record)))
    except AssignmentError:
        return None


@pytest.mark.parametrize("name", GROUPS)
def test_all_recorded_groups_are_here(name: str) -> None:
    assert len(records(name)) == GROUPS[name]


@pytest.mark.parametrize("name", GROUPS)
def test_answers_are_those_of_java(name: str) -> None:
    """Every group gets the recorded answer in the recorded order, and an error where Java threw one.

    That holds for answers that hang on Java's hash order too, since maps are walked as Java does. Where Java turns an
    overfull bucket into a tree, they are left to the next test.
    """
    different = []
    for record in records(name):
        is_excused = hangs_on_hash_order(record) and has_overfull_bucket(record)
        if not is_excused and answer(record) != expected_shape(record):
            different.append(record["id"])

    assert not different


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_what_hangs_on_hash_order_is_sound(assignor: str) -> None:
    """Such answers give no partition twice and none that isn't there; sticky spreads all as evenly as Java did.

    What the cooperative one gives nobody is claimed by somebody, who has to give it up first.
    """
    seen = 0
    for record in records(assignor):
        if not hangs_on_hash_order(record):
            continue
        seen += 1
        got, expected = answer(record), expected_shape(record)
        assert got is not None
        assert expected is not None
        given = partitions_in(got)
        assert max(given.values(), default=1) == 1, record["id"]
        assert all(number < record["topics"][topic]["partitions"] for topic, number in given), record["id"]
        if assignor == "sticky":
            assert sizes(got) == sizes(expected), record["id"]
        else:
            claimed = {partition for member in record["members"] for partition in owned_by(member)}
            assert set(partitions_in(expected)) - set(given) <= claimed, record["id"]

    assert seen


def partitions_in(shape: Shape) -> Counter[TopicPartition]:
    return Counter(
        TopicPartition(topic, number) for topics in shape.values() for topic, numbers in topics for number in numbers
    )


def sizes(shape: Shape) -> list[int]:
    return sorted(sum(len(numbers) for _, numbers in topics) for topics in shape.values())


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_keep_the_order_of_the_join(assignor: str) -> None:
    for record in records(assignor)[:50]:
        if record["assignment"] is not None:
            subscriptions = subscriptions_of(record)

            assert list(ASSIGNORS[assignor]().assign(cluster_of(record), subscriptions)) == list(subscriptions)


def test_user_data_of_stories_is_what_java_wrote() -> None:
    """A sticky member's user data equals the bytes that the Java assignor wrote."""
    compared = 0
    for record in records("sticky"):
        for member in record["members"] if "case" in record else ():
            if member["user_data_hex"] is None:
                continue
            data = bytes.fromhex(member["user_data_hex"])
            claim = decode_sticky_user_data(data)
            assert claim.generation_id is not None
            assert list(claim.partitions) == owned_by(member)
            assert encode_sticky_user_data(claim.partitions, claim.generation_id) == data
            assignor = ASSIGNORS["sticky"]()
            assignor.on_assignment(Assignment(claim.partitions), claim.generation_id)
            assert assignor.subscription_user_data(tuple(member["topics"])) == data
            compared += 1

    assert compared > 1_000


def owned_by(member: Record) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number) for topic, numbers in member["owned_partitions"].items() for number in numbers
    ]


def test_user_data_of_single_groups_is_read_as_java_reads_it() -> None:
    """Version 0 and unreadable bytes included, the claims are the recorded ones, and the generation too."""
    generations = Counter[str]()
    for record in records("sticky"):
        for member in record["members"]:
            data = None if member["user_data_hex"] is None else bytes.fromhex(member["user_data_hex"])
            claim = decode_sticky_user_data(data)
            assert list(claim.partitions) == owned_by(member), record["id"]
            if data is None:
                assert claim.generation_id is None
            elif member["user_data_hex"] == "ffffff":
                generations["unreadable"] += 1
                assert claim.generation_id == -1
            else:
                expected = member.get("user_data_generation", member["generation_id"])
                generations["version 0" if expected is None else "version 1"] += 1
                assert claim.generation_id == expected, record["id"]

    assert min(generations["unreadable"], generations["version 0"], generations["version 1"]) > 0


def test_impossible_claims_name_what_is_wrong() -> None:
    """Where Java throws, the error names the claim, or that there are more partitions than capacity."""
    messages = []
    for name in ("sticky", "cooperative-sticky"):
        for record in records(name):
            if record["assignment"] is None:
                with pytest.raises(AssignmentError) as caught:
                    ASSIGNORS[name]().assign(cluster_of(record), subscriptions_of(record))
                messages.append(str(caught.value))

    assert len(messages) == 3
    assert sum("in an older generation and can't get it back" in message for message in messages) == 2
    assert sum("more partitions are left over than" in message for message in messages) == 1
