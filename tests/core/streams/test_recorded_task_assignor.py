"""The sticky assignor of tasks answers as that of Kafka 4.4.0 did, for 201 recorded groups and rounds of stories."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupcoord.core.groups.streams.assignors import (
    MemberTasks,
    StickyTaskAssignor,
    StreamsGroupSpec,
    StreamsMemberSpec,
    SubtopologySpec,
    Tasks,
)
from groupcoord.core.javacompat import hash_map_order

DATA = Path(__file__).with_name("data")


def group_of(record: dict[str, Any]) -> StreamsGroupSpec:
    """Return a recorded group as an assignor gets it."""
    members = {
        member["member_id"]: StreamsMemberSpec(
            member["process_id"],
            tasks_of(member),
            {
                name: {int(partition): offset for partition, offset in offsets.items()}
                for name, offsets in member["task_offsets"].items()
            },
            member["instance_id"],
            member["rack"],
            member["tags"],
        )
        for member in record["members"]
    }
    subtopologies = {
        name: SubtopologySpec(subtopology["tasks"], subtopology["stateful"])
        for name, subtopology in record["subtopologies"].items()
    }
    return StreamsGroupSpec(members, subtopologies, record["num_standby_replicas"], tuple(hash_map_order(members)))


def tasks_of(recorded: Mapping[str, dict[str, list[int]]]) -> MemberTasks:
    """Return recorded tasks."""
    return MemberTasks(sorted_tasks(recorded.get("active", {})), sorted_tasks(recorded.get("standby", {})))


def sorted_tasks(recorded: dict[str, list[int]]) -> Tasks:
    return {name: tuple(sorted(partitions)) for name, partitions in recorded.items() if partitions}


def test_everybody_gets_what_kafka_gave() -> None:
    """In every recorded group everybody gets the recorded tasks; a group without members has no assignment."""
    with lzma.open(DATA / "sticky-tasks.jsonl.xz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    different = []
    for record in records:
        group = group_of(record)
        expected = {member_id: tasks_of(record["assignment"].get(member_id, {})) for member_id in group.members}
        if StickyTaskAssignor().assign(group) != expected:
            different.append(record["id"])

    assert len(records) == 201
    assert not different
    assert StickyTaskAssignor().assign(StreamsGroupSpec({}, {"0": SubtopologySpec(1, False)}, 1, ())) == {}
