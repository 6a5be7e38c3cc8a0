"""The log of thirty groups of which five misbehave, each in its own way, as a coordinator wrote it in three quarters of
an hour: what the pictures of an analysis are made of.

    python -m tests.analysis.report.thirty_groups FOLDER      writes FOLDER/data and FOLDER/end_offsets.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from uuid import UUID

from attrs import define, field

from groupcoord import Config, GroupCoordinator, ManualClock
from groupcoord.messages import OffsetToCommit, TopicToCommit
from groupcoord.storage.stores.segments import SegmentLogStore
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.topics import Topics

FLAPPING, STUCK, SILENT, UNEVEN, STORM = "fraud-checks", "payments", "search-index", "billing", "audit-trail"
MISBEHAVING = (FLAPPING, STUCK, SILENT, UNEVEN, STORM)
WELL = tuple(f"service-{number:02d}" for number in range(25))
QUEUES = tuple(f"billing-{region}" for region in ("at", "be", "ch", "de", "es", "fr", "it", "nl"))

STARTED_MS = 1_795_245_600_000
STEP_MS = 5_000
COMMIT_EVERY = 6
MINUTE = 60_000 // STEP_MS
LENGTH = 45 * MINUTE
PARTITIONS, RECORDS_PER_STEP = 6, 40
STUCK_FROM, STORM_FROM, STORM_UNTIL = 14 * MINUTE, 20 * MINUTE, 24 * MINUTE
COMMITS_IN_STORM = 12


@define
class Group:
    """A group that lives.

    Attributes:
        commits: it commits what it has processed.
        members: in the order in which they came.
    """

    group_id: str
    topics: tuple[str, ...]
    assignor: str | None = None
    commits: bool = True
    members: list[Kip848Consumer] = field(factory=list)


class ThirtyGroups:
    """Groups, their coordinator, and topics into which records come."""

    def __init__(self, store: SegmentLogStore) -> None:
        names = [f"{group_id}-events" for group_id in (*WELL, FLAPPING, STUCK, SILENT, STORM)]
        self.topics = Topics(dict.fromkeys(names, PARTITIONS) | dict.fromkeys(QUEUES, 1))
        self._names: dict[UUID, str] = {topic_id: name for name, topic_id in self.topics.ids.items()}
        self.clock = ManualClock(STARTED_MS)
        config = Config(offsets_topic_num_partitions=4, group_consumer_assignment_interval_ms=0)
        self._coordinator = GroupCoordinator(
            config=config, clock=self.clock, log_store=store, topics=self.topics, regexes=self.topics
        )
        self._coordinator.load_all()
        self._steps = 0

    @property
    def end_offset(self) -> int:
        return self._steps * RECORDS_PER_STEP

    def step(self) -> None:
        """Advance the clock."""
        self._steps += 1
        self.clock.advance(STEP_MS)
        self._coordinator.tick()

    def beat(self, member: Kip848Consumer) -> None:
        """Send a member's heartbeat."""
        member.receive(self._coordinator.call(member.next_request()))

    def leave(self, member: Kip848Consumer) -> None:
        """Have a member leave."""
        self._coordinator.call(member.leave_request())

    def commit(self, member: Kip848Consumer, behind: int = 5) -> None:
        offset = max(self.end_offset - behind, 0)
        topics = tuple(
            TopicToCommit(self._names[topic_id], tuple(OffsetToCommit(index, offset) for index in indexes), topic_id)
            for topic_id, indexes in member.owned.items()
            if indexes
        )
        if topics and member.epoch > 0:
            member.receive(self._coordinator.call(member.commit_request(topics)))


def groups() -> list[Group]:
    """Return all groups, before any member has joined."""
    found = [Group(group_id, (f"{group_id}-events",)) for group_id in (*WELL, FLAPPING, STUCK, STORM)]
    found.append(Group(SILENT, (f"{SILENT}-events",), commits=False))
    found.append(Group(UNEVEN, QUEUES, assignor="range"))
    for group in found:
        for number in range(4 if group.group_id == UNEVEN else 3):
            group.members.append(_member(group, number))
    return found


def _member(group: Group, number: int) -> Kip848Consumer:
    name = f"{group.group_id}-{number}"
    return Kip848Consumer(
        name, group.group_id, topics=group.topics, assignor=group.assignor, member_id=f"{name}-id", brings_id=True
    )


def _live(world: ThirtyGroups, group: Group, step: int) -> None:
    """Run one step of a group."""
    if group.group_id == FLAPPING and step > 5 * MINUTE and step % (MINUTE // 2) == 0:
        if len(group.members) == 3:
            world.leave(group.members.pop())
        else:
            group.members.append(_member(group, 2))
    for place, member in enumerate(group.members):
        world.beat(member)
        is_stuck = group.group_id == STUCK and place != 1 and step >= STUCK_FROM
        if group.group_id == STORM and STORM_FROM <= step < STORM_UNTIL:
            for behind in range(COMMITS_IN_STORM, 0, -1):
                world.commit(member, behind)
        elif group.commits and not is_stuck and (step + place) % COMMIT_EVERY == 0:
            world.commit(member)


def write_log(folder: Path) -> tuple[Path, Path]:
    """Run all groups; return the folder of the log, and the file of end offsets."""
    data, ends = folder / "data", folder / "end_offsets.csv"
    with SegmentLogStore(data) as store:
        world, living = ThirtyGroups(store), groups()
        for step in range(LENGTH):
            world.step()
            for group in living:
                _live(world, group, step)
        store.flush()
    with ends.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("topic", "topic_partition", "end_offset"))
        for topic, count in world.topics.partition_counts.items():
            writer.writerows((topic, number, world.end_offset) for number in range(count))
    return data, ends


if __name__ == "__main__":
    print(*write_log(Path(sys.argv[1])), sep="\n")
