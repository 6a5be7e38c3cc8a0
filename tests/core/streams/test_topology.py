"""Tasks, problems and internal topics of 400 random topologies, compared with Kafka 4.4.0."""

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
from groupcoord.core.groups.streams.topology import TASKS_MAX, configure
from groupcoord.core.messages.request import RefusedError

DATA = Path(__file__).with_name("data")
NONE = 0


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
    except RefusedError as error:
        return {"error": error.error_code, "status": [], "wanted": {}, "tasks": {}}
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


def test_two_subtopologies_can_not_have_the_same_id() -> None:
    """Kafka fails over it (UNKNOWN_SERVER_ERROR)."""
    with pytest.raises(RefusedError, match="UNKNOWN_SERVER_ERROR"):
        configure(StreamsGroupTopologyRecord("g", 0, (Subtopology("0", ("t",)),) * 2), {"t": 1})


def test_a_long_chain_is_followed_in_one_go() -> None:
    """Each subtopology is visited a few times only, whatever the length and order of the chain."""
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


def test_topologies_are_no_larger_than_can_be_assigned() -> None:
    parts = [Subtopology(str(number), ("a",)) for number in range(TASKS_MAX // 100)]
    assert configure(_topology(*parts), {"a": 100}).is_ready
    with pytest.raises(RefusedError, match="more than"):
        configure(_topology(*parts, Subtopology("one more", ("a",))), {"a": 100})
