"""What a topology comes to: tasks, problems and internal topics as Kafka 4.4.0 found them for 400 random topologies."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from groupcoord.core.groups.streams.records import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupTopologyRecord,
    Subtopology,
    TopicInfo,
)
from groupcoord.core.groups.streams.topology import (
    TASKS_MAX,
    BrokenTopologyError,
    InvalidTopologyError,
    TopicProblemKind,
    configure,
)
from groupcoord.core.host_queries import InternalTopic

DATA = Path(__file__).with_name("data")
NONE, STREAMS_INVALID_TOPOLOGY, UNKNOWN_SERVER_ERROR = 0, 130, -1


def topic_info(fields: list[Any]) -> TopicInfo:
    """Return an internal topic as it is recorded."""
    name, partitions, replication_factor, configs = fields
    return TopicInfo(name, partitions, replication_factor, tuple(KeyValue(*config) for config in configs))


def topology_of(record: dict[str, Any]) -> StreamsGroupTopologyRecord:
    """Return a recorded topology."""
    return StreamsGroupTopologyRecord(
        "g",
        0,
        tuple(
            Subtopology(
                name,
                tuple(sources),
                tuple(regex),
                tuple(map(topic_info, changelogs)),
                tuple(sinks),
                tuple(map(topic_info, repartition)),
                tuple(CopartitionGroup(*map(tuple, group)) for group in groups),
            )
            for name, sources, regex, changelogs, sinks, repartition, groups in record["subtopologies"]
        ),
    )


def answer(record: dict[str, Any]) -> dict[str, Any]:
    """Return what we make of a recorded topology, in the recorded form."""
    try:
        configured = configure(topology_of(record), record["topics"])
    except InvalidTopologyError:
        return {"error": STREAMS_INVALID_TOPOLOGY, "status": [], "wanted": {}, "tasks": {}}
    except BrokenTopologyError:
        return {"error": UNKNOWN_SERVER_ERROR, "status": [], "wanted": {}, "tasks": {}}
    subtopologies = configured.subtopologies or {}
    return {
        "error": NONE,
        "status": [] if configured.problem is None else [configured.problem.kind],
        "wanted": {
            name: [topic.partition_count, topic.replication_factor] for name, topic in configured.missing.items()
        },
        "tasks": {name: part.task_count for name, part in subtopologies.items()} if configured.is_ready else {},
    }


def test_topologies_come_to_what_kafka_made_of_them() -> None:
    """Every recorded topology has the recorded tasks, problem or error, and wants the recorded internal topics."""
    with lzma.open(DATA / "topologies.jsonl.xz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    different = [record["id"] for record in records if answer(record) != {key: record[key] for key in answer(record)}]

    assert len(records) == 400
    assert not different


WORD_COUNT = StreamsGroupTopologyRecord(
    "g",
    3,
    (
        Subtopology("0", ("lines",), repartition_sink_topics=("by-word",)),
        Subtopology(
            "1",
            state_changelog_topics=(TopicInfo("counts", 0, 0, (KeyValue("cleanup.policy", "compact"),)),),
            repartition_source_topics=(TopicInfo("by-word"),),
        ),
    ),
)


def test_internal_topics_are_to_be_made_with_their_settings() -> None:
    """A repartition topic follows its writer's source, a changelog its subtopology; both are missing at first."""
    configured = configure(WORD_COUNT, {"lines": 6})

    assert configured.missing == {
        "by-word": InternalTopic("by-word", 6, -1),
        "counts": InternalTopic("counts", 6, -1, (("cleanup.policy", "compact"),)),
    }
    assert configured.problem is not None
    assert configured.problem.kind is TopicProblemKind.MISSING_INTERNAL_TOPICS
    assert "by-word, counts" in configured.problem.detail


def test_a_topology_whose_topics_are_there_is_ready() -> None:
    """With all topics there are tasks, of which those with changelogs keep state."""
    configured = configure(WORD_COUNT, {"lines": 2, "by-word": 2, "counts": 2})

    assert configured.is_ready
    assert configured.subtopologies is not None
    assert [part.is_stateful for part in configured.subtopologies.values()] == [False, True]
    assert configured.has_task("1", 1)
    assert not configured.has_task("1", 2)
    assert not configured.has_task("1", -1)
    assert not configured.has_task("2", 0)


def test_missing_source_topics_are_named() -> None:
    """Three missing source topics are told by name, the others by their number."""
    topology = StreamsGroupTopologyRecord("g", 0, (Subtopology("0", ("e", "d", "c", "b", "a")),))
    problem = configure(topology, {"c": 1}).problem

    assert problem is not None
    assert problem.detail == "Source topics a, b, d and 1 additional topics are missing."


def test_subscribed_topics_are_those_that_are_read() -> None:
    """Commits are of source and repartition source topics; what matters to the group are the changelogs as well."""
    assert WORD_COUNT.readers == {"lines": "0", "by-word": "1"}
    assert WORD_COUNT.required_topics == ("lines", "by-word", "counts")


def test_two_subtopologies_can_not_have_the_same_id() -> None:
    """Kafka fails over it (UNKNOWN_SERVER_ERROR)."""
    with pytest.raises(BrokenTopologyError):
        configure(StreamsGroupTopologyRecord("g", 0, (Subtopology("0", ("t",)),) * 2), {"t": 1})


def test_a_long_chain_is_followed_in_one_go() -> None:
    """However many subtopologies wait for each other, in whatever order, each is looked at a few times only."""
    length = 20_000
    links = [
        Subtopology(
            str(number),
            repartition_source_topics=(TopicInfo(f"r{number}"),),
            repartition_sink_topics=(f"r{number + 1}",),
        )
        for number in range(length)
    ]
    first = Subtopology("first", source_topics=("orders",), repartition_sink_topics=("r0",))
    last = Subtopology("last", repartition_source_topics=(TopicInfo(f"r{length}"),))

    found = configure(StreamsGroupTopologyRecord("g", 0, (last, *reversed(links), first)), {"orders": 7})

    assert len(found.partition_counts) == length + 1
    assert set(found.partition_counts.values()) == {7}


def _topology(*subtopologies: Subtopology) -> StreamsGroupTopologyRecord:
    return StreamsGroupTopologyRecord("g", 0, subtopologies)


def test_few_topics_are_told_by_name() -> None:
    """A text that names thousands would fit into no answer."""
    changelogs = tuple(TopicInfo(f"store-{number}") for number in range(1_000))
    problem = configure(_topology(Subtopology("0", ("a",), state_changelog_topics=changelogs)), {"a": 1}).problem
    assert problem is not None
    assert problem.detail == "Internal topics are missing: store-0, store-1, store-10 and 997 additional topics"


def test_topologies_are_no_larger_than_can_be_assigned() -> None:
    """All tasks are assigned in one go, so there is a largest number of them."""
    parts = [Subtopology(str(number), ("a",)) for number in range(TASKS_MAX // 100)]
    assert configure(_topology(*parts), {"a": 100}).is_ready
    with pytest.raises(InvalidTopologyError, match="more than"):
        configure(_topology(*parts, Subtopology("one more", ("a",))), {"a": 100})
