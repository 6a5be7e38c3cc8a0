"""Consumers of Java, librdkafka and franz-go live in consumer groups (KIP-848) on ``groupcoord serve``.

Java needs the jars of Kafka (``KAFKA_LIBS``), franz-go needs Go and its module proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from tests.clients.beside import Consumer, franz, running
from tests.processes import ProcessError, ServerProcess, committed_offsets, wait_until
from tests.storage.real_broker import HAS_KAFKA, ask

TOPIC, PARTITION_COUNT = "orders", 6
EVERYTHING = set(range(PARTITION_COUNT))
OFFSET = 7
"""What the consumers commit for each partition that they get."""

DEADLINE_S = 50.0
SHORT_SESSION_MS, LONG_SESSION_MS = 4_000, 60_000
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.max.session.timeout.ms": LONG_SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 0,
}
UNOWNED_MS_MAX = 5_500
"""How long a partition may have no owner while members change their protocol: less than any session takes to end."""

KINDS = ("librdkafka", "java", "franz")
NEW = "consumer"
Start = Callable[..., Consumer]

pytestmark = pytest.mark.usefixtures("client_libraries")


def need(*kinds: str) -> None:
    """Skip the test where one of these can't be had."""
    if "java" in kinds and not HAS_KAFKA:
        pytest.skip("there is no java, or there are no jars of Kafka 4")
    if "franz" in kinds and franz() is None:
        pytest.skip("there is no go, or franz-go can't be had")


def serving(data_dir: Path, port: int = 0, session_ms: int = LONG_SESSION_MS) -> ServerProcess:
    """Start a server with the topic, and sessions longer than the test by default."""
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": session_ms}
    return ServerProcess(data_dir, port=port, topics={TOPIC: PARTITION_COUNT}, settings=settings)


@contextmanager
def starting(bootstrap: str, group: str, topic: str = TOPIC) -> Iterator[Start]:
    """Give a function that starts a consumer of a kind, with a protocol and perhaps an instance id."""
    with ExitStack() as stack:
        yield lambda kind, strategy=NEW, *instance: stack.enter_context(
            running(kind, bootstrap, group, topic, strategy, str(OFFSET), *instance)
        )


def wait_for(condition: Callable[[], bool], expected: str, consumers: list[Consumer]) -> float:
    """Wait for a condition, and return the seconds; otherwise fail with the consumers' output."""
    try:
        return wait_until(condition, DEADLINE_S, expected)
    except ProcessError as error:
        raise AssertionError("\n\n".join([str(error), *map(str, consumers)])) from error


def have_shared(consumers: list[Consumer]) -> bool:
    """Return whether the consumers own all partitions, evenly, and none twice."""
    owned = [partition for consumer in consumers for partition in consumer.owned]
    counts = {len(consumer.owned) for consumer in consumers}
    return len(owned) == PARTITION_COUNT and set(owned) == EVERYTHING and max(counts) - min(counts) <= 1


def share(*consumers: Consumer) -> float:
    """Wait until the consumers have shared out the partitions; return the seconds."""
    return wait_for(lambda: have_shared(list(consumers)), "they share the partitions", list(consumers))


def is_stable(port: int, group: str) -> bool:
    """Return whether the server describes the group as stable."""
    client = Client(SocketServer("127.0.0.1", port), "test")
    try:
        groups = ask(client, "ListGroups", 5, {"states_filter": ["Stable"], "types_filter": []})["groups"]
    finally:
        client.close()
    return group in [found["group_id"] for found in groups]


def assert_untroubled(*consumers: Consumer) -> None:
    """Check that no consumer was fenced."""
    for consumer in consumers:
        assert not consumer.said("lost"), consumer
        assert not [line for line in consumer.lines if "Exception" in line or "FENCED" in line.upper()], consumer


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_joins_and_leaves(tmp_path: Path, kind: str) -> None:
    """When one leaves, the other takes over without waiting for a session to end."""
    need(kind)
    with serving(tmp_path) as server, starting(server.bootstrap, "comes-and-goes") as start:
        first, second = start(kind), start(kind)
        share(first, second)
        second.stop()
        share(first)
        share(first, start(kind))
        assert_untroubled(first)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_member(tmp_path: Path, kind: str) -> None:
    """When its session has ended, the other one has its partitions."""
    need(kind)
    with serving(tmp_path, session_ms=SHORT_SESSION_MS) as server, starting(server.bootstrap, "killed-member") as start:
        first, second = start(kind), start(kind)
        share(first, second)
        second.kill()
        share(first)


@pytest.mark.parametrize("kind", ["librdkafka", pytest.param("java", marks=pytest.mark.slow)])
def test_a_static_member_restarts(tmp_path: Path, kind: str) -> None:
    """While it is away its partitions are nobody's, and then they are its own again; the other one notices nothing.

    Not with franz-go: up to 1.22 its heartbeat with epoch -2 lacks the instance id, which is INVALID_REQUEST.
    """
    need(kind)
    with serving(tmp_path) as server, starting(server.bootstrap, "static") as start:
        first, second = start(kind, NEW, "one"), start(kind, NEW, "two")
        share(first, second)
        had, before = second.owned, moves([first])
        second.stop()
        again = start(kind, NEW, "two")
        share(first, again)
        assert again.owned == had
        assert moves([first]) == before, first
        assert_untroubled(first, again)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_regular_expression(tmp_path: Path, kind: str) -> None:
    """A member that subscribes to one gets the partitions of what it matches."""
    need(kind)
    with serving(tmp_path) as server, starting(server.bootstrap, "expression", "^ord.*") as start:
        first = start(kind)
        share(first)
        second = start(kind)
        share(first, second)
        assert_untroubled(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server(tmp_path: Path, kind: str) -> None:
    """Members keep what they have while the server is gone, and go on with it when it is back on its data."""
    need(kind)
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path))
        start = stack.enter_context(starting(server.bootstrap, "killed"))
        first, second = start(kind), start(kind)
        share(first, second)
        had = first.owned, second.owned
        server.kill()
        stack.enter_context(serving(tmp_path, server.port))
        third = start(kind)
        share(first, second, third)
        assert first.owned <= had[0]
        assert second.owned <= had[1]
        assert_untroubled(first, second, third)


# ---------------------------------------------------------------- from one protocol to the other


CHANGES = {"assigned": 1, "revoked": -1, "lost": -1}


def moves(consumers: list[Consumer]) -> list[tuple[int, int, int]]:
    """Return the consumers' changes in order: time, 1 for assigned and -1 for revoked, partition."""
    found, at_ms = [], 0
    for word, *words in [line.split() for consumer in consumers for line in consumer.lines if line]:
        if word == "at":
            at_ms = int(words[0])
        elif word in CHANGES:
            found += [(at_ms, CHANGES[word], int(name.rpartition("-")[2])) for name in words]
    return sorted(found)


def longest_without_owner_ms(consumers: list[Consumer], until_ms: int) -> int:
    longest_ms = 0
    for partition in EVERYTHING:
        owners, free_since_ms = 0, 0
        for at_ms, change, moved in moves(consumers):
            if moved == partition and at_ms <= until_ms:
                if not owners and free_since_ms:
                    longest_ms = max(longest_ms, at_ms - free_since_ms)
                owners += change
                free_since_ms = at_ms
                assert owners in (0, 1), f"partition {partition} has {owners} owners at {at_ms}"
    return longest_ms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "assignor"),
    [
        (("librdkafka",) * 3, "range"),
        (("java",) * 3, "cooperative-sticky"),
        (("franz",) * 3, "cooperative-sticky"),
        (KINDS, "range"),
    ],
    ids=["librdkafka", "java", "franz", "mixed"],
)
def test_an_upgrade_and_back(tmp_path: Path, kinds: tuple[str, ...], assignor: str) -> None:
    """Member by member a live classic group goes over to the consumer protocol, and back.

    Nobody is fenced, no partition is two members' or without one for long, and offsets stay. The group is given time to
    become stable between two steps: as in Kafka, the generation of the classic group that it becomes is its epoch, and
    a classic member that has not come so far has to start over. librdkafka puts what its sticky assignors remember into
    assignments, and a group with such data is not converted.
    """
    need(*kinds)
    with serving(tmp_path) as server, starting(server.bootstrap, "rolls") as start:
        everybody = members = [start(kind, assignor) for kind in kinds]
        share(*members)
        wait_for(lambda: is_stable(server.port, "rolls"), "the group is stable", members)
        for strategy in (NEW, assignor):
            for number, kind in enumerate(kinds):
                members[number].stop()
                members = [*members[:number], start(kind, strategy), *members[number + 1 :]]
                everybody = [*everybody, members[number]]
                share(*members)
                wait_for(lambda: is_stable(server.port, "rolls"), "the group is stable", members)
        wait_for(
            lambda: set(committed_offsets(server.port, "rolls", TOPIC).values()) == {OFFSET},
            "all offsets are committed",
            members,
        )
        assert committed_offsets(server.port, "rolls", TOPIC) == dict.fromkeys(range(PARTITION_COUNT), OFFSET)
        until_ms = max(at_ms for at_ms, _, _ in moves(members))
        unowned_ms = longest_without_owner_ms(everybody, until_ms)
        print(f"{'-'.join(kinds)}: a partition was without an owner for {unowned_ms} ms at most")
        assert unowned_ms < UNOWNED_MS_MAX
        assert_untroubled(*everybody)
