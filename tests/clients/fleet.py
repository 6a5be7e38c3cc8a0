"""Groups of real clients: a group for each library, and one with a member of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.clients.member_process import Options
from tests.processes import (
    MemberProcess,
    ProcessError,
    ServerProcess,
    acknowledged,
    describe_group,
    own_each_once,
    wait_until,
)

LIBRARIES = ("kafka-python", "aiokafka", "confluent-kafka")
TOPIC = "orders"
PARTITION_COUNT = 12
SESSION_TIMEOUT_MS = 1_500
DEADLINE_S = 20.0
SETTINGS = {
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 500,
    "offsets.topic.num.partitions": 5,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
}


class Group:
    """Three members, and who they are with."""

    def __init__(self, group_id: str, members: list[MemberProcess]) -> None:
        self.group_id = group_id
        self.members = members

    def owns_all(self) -> bool:
        """Return whether every partition is owned exactly once, and each member has some."""
        return own_each_once(self.members, PARTITION_COUNT)

    def describe(self) -> str:
        """Return what is known of the members, for a failure."""
        lines = [
            f"{member.name}: owns {sorted(member.owned)}, {member.commit_count} commits, {list(member.last_words)}"
            for member in self.members
        ]
        return "\n".join([f"group {self.group_id}", *lines])


def open_server(data_dir: Path, port: int = 0) -> ServerProcess:
    """Return a server whose topics are empty: the committed offsets here are invented."""
    topics = {TOPIC: PARTITION_COUNT}
    return ServerProcess(data_dir, port=port, topics=topics, settings=SETTINGS, words=["--no-records"])


@contextmanager
def open_groups(server: ServerProcess, commit_interval_ms: int = 50) -> Iterator[list[Group]]:
    """Start a group per library and a mixed one, and wait until each has shared out the partitions."""
    kinds = {library: [library] * 3 for library in LIBRARIES} | {"mixed": list(LIBRARIES)}
    with ExitStack() as stack:
        groups = []
        for group_id, libraries in kinds.items():
            members = []
            for number, library in enumerate(libraries):
                options = Options(
                    library=library,
                    bootstrap=server.bootstrap,
                    group_id=group_id,
                    topic=TOPIC,
                    client_id=f"{group_id}-{number}-{library}",
                    session_timeout_ms=SESSION_TIMEOUT_MS,
                    commit_interval_ms=commit_interval_ms,
                )
                members.append(MemberProcess(options))
                stack.callback(members[-1].kill)
            groups.append(Group(group_id, members))
        wait_for_all(groups, Group.owns_all, "every partition is owned once")
        yield groups


def wait_for_all(groups: list[Group], condition: Callable[[Group], bool], expected: str) -> float:
    """Wait until a condition holds for all groups at the same time; return the seconds it took."""
    try:
        return wait_until(lambda: all(condition(group) for group in groups), DEADLINE_S, expected)
    except ProcessError as error:
        failed = "\n".join(group.describe() for group in groups if not condition(group))
        raise AssertionError(f"{error}\n{failed}") from error


def is_stable(server: ServerProcess, group: Group) -> bool:
    """Return whether the group is described as Stable, with exactly these members."""
    described = describe_group(server.port, group.group_id)
    names = tuple(sorted(member.name for member in group.members))
    return (described.state, described.client_ids) == ("Stable", names)


def follows(stored: dict[str, dict[int, int]], group: Group) -> bool:
    """Return whether the stored offsets, by group, are the last acknowledged ones or one commit more. The one commit
    more is that which the server has written, but could not answer before it was killed.
    """
    offsets, last = stored[group.group_id], acknowledged(group.members)
    return offsets.keys() >= last.keys() and all(
        offset - last.get(partition, 0) in (0, partition + 1) for partition, offset in offsets.items()
    )
