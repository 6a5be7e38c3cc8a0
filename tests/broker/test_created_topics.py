"""Topics that the broker creates: by auto-creation, and the internal ones of streams groups."""

from __future__ import annotations

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.topics.registry import CREATION_MS
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopic, InternalTopicsCreated
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.router.authorization import Operation, Resource, ResourceType
from groupcoord.wire.broker_messages import Metadata, TopicReference
from tests.broker.data_world import FakeConnection

# ---------------------------------------------------------------- auto-creation


Denied = set[tuple[Operation, str]]


def broker(denied: Denied | None = None, **settings: object) -> Broker:
    """Return a broker on which some operations are not allowed, each on the thing of a name."""

    def authorize(_: object, operation: Operation, resource: Resource) -> bool:
        return (operation, resource.name) not in (denied or set())

    return make_broker(
        config=Config(**settings),  # type: ignore[arg-type]
        clock=ManualClock(),
        log_store=MemoryLogStore(),
        authorize=authorize,
    )


def ask(broker: Broker, *names: str, allows: bool = True) -> dict[str | None, str]:
    connection = FakeConnection(broker)
    request = Metadata(tuple(map(TopicReference, names)), allow_auto_topic_creation=allows)
    broker.handle(connection, request)  # type: ignore[arg-type]
    return {topic.name: topic.error_code.name for topic in connection.answers[0].topics}


@pytest.mark.parametrize(("allows", "settings"), [(False, {}), (True, {"auto_create_topics_enable": False})])
def test_the_client_and_the_server_can_forbid_it(allows: bool, settings: dict[str, bool]) -> None:
    """Then it stays unknown."""
    made = broker(**settings)
    for _ in range(2):
        assert ask(made, "new", allows=allows) == {"new": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert [topic.name for topic in made.topics] == [OFFSETS_TOPIC]


def test_internal_topics_and_collisions() -> None:
    """Internal topics are not created, nor a topic with a name that differs from another one only in dots."""
    made = broker()
    ask(made, "a.b")
    for _ in range(2):
        assert set(ask(made, "a_b", "__transaction_state").values()) == {"UNKNOWN_TOPIC_OR_PARTITION"}
    assert len(made.topics) == 2


@pytest.mark.parametrize(
    ("denied", "error", "is_made"),
    [
        ({(Operation.CREATE, "kafka-cluster")}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ({(Operation.CREATE, "new")}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (
            {(Operation.CREATE, "kafka-cluster"), (Operation.CREATE, "new")},
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            False,
        ),
        ({(Operation.DESCRIBE, "new")}, ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_who_may(denied: Denied, error: ErrorCode, is_made: bool) -> None:
    """CREATE on the cluster or on the topic, and DESCRIBE on it."""
    made = broker(denied)
    assert ask(made, "new") == {"new": error.name}
    assert (made.topics.get("new") is not None) == is_made


def test_groups_that_wait_for_a_topic_learn_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator is notified, and resolves subscriptions again."""
    made = broker()
    told: list[list[str]] = []
    monkeypatch.setattr(made.coordinator, "topics_created", told.append)
    ask(made, "new", "bad name")
    ask(made, "new")
    assert told == [["new"]]


# ---------------------------------------------------------------- internal topics


CHANGELOG = InternalTopic("app-store-changelog", 3, -1, (("cleanup.policy", "compact"),))
REPARTITION = InternalTopic("app-by-key-repartition", 2, 1)


def asked(coordinator: GroupCoordinator, *topics: InternalTopic, principal: str = "User:app") -> dict[str, str]:
    """Create topics; return the errors."""
    answer = coordinator._host.answer(CreateInternalTopics(0, "app", topics, principal))
    assert isinstance(answer, InternalTopicsCreated)
    return dict(answer.errors)


def test_topics_are_made_with_their_settings() -> None:
    """They have the partitions and configs of the topology, and all coordinators are notified."""
    server = broker()
    version = server.coordinator._environments.topics.version
    assert asked(server.coordinator, CHANGELOG, REPARTITION) == {}
    changelog, repartition = server.topics.get(CHANGELOG.name), server.topics.get(REPARTITION.name)
    assert changelog is not None
    assert repartition is not None
    assert (changelog.partition_count, changelog.configs) == (3, {"cleanup.policy": "compact"})
    assert (repartition.partition_count, repartition.configs) == (2, {})
    assert server.coordinator._environments.topics.version == version + 1


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (InternalTopic("t", 1, 3), "Unable to replicate the partition 3 time(s)"),
        (InternalTopic("t", 20_000, -1), "Excessively large number of partitions"),
        (InternalTopic("t", 1, -1, (("no.such.setting", "1"),)), "no.such.setting"),
    ],
)
def test_what_is_wrong_with_one_is_told(topic: InternalTopic, reason: str) -> None:
    """A topic that can't be made has its reason; the others are there, unless all together are too many."""
    server = broker()
    errors = asked(server.coordinator, topic, REPARTITION)
    assert reason in errors["t"]
    assert (REPARTITION.name in errors) == (server.topics.get(REPARTITION.name) is None)


def test_a_topic_that_is_there_meanwhile() -> None:
    """It stays unchanged, and the requester gets the error."""
    server = broker()
    assert asked(server.coordinator, REPARTITION) == {}
    assert "already exists" in asked(server.coordinator, REPARTITION)[REPARTITION.name]


def test_topics_are_made_for_the_member() -> None:
    """Topics that the member's principal may not create are not created."""

    def authorize(principal: object, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.CREATE or (principal, resource) == (
            "User:app",
            Resource(ResourceType.TOPIC, CHANGELOG.name),
        )

    server = make_broker(config=Config(), clock=ManualClock(0), log_store=MemoryLogStore(), authorize=authorize)
    assert asked(server.coordinator, CHANGELOG, REPARTITION) == {REPARTITION.name: "Authorization failed."}
    assert server.topics.get(CHANGELOG.name) is not None
    assert asked(server.coordinator, CHANGELOG, principal="User:other") == {CHANGELOG.name: "Authorization failed."}


def test_a_coordinator_without_a_host_makes_none() -> None:
    """Members get the error that the embedding program must create the topics."""
    assert asked(GroupCoordinator(), CHANGELOG) == {CHANGELOG.name: "this coordinator creates no topics"}


def test_a_topic_that_was_deleted_comes_back_a_moment_later() -> None:
    """Until then it is requested once, as from Kafka's controller; errors are reported afterwards."""
    clock = ManualClock(0)
    server = make_broker(config=Config(), clock=clock, log_store=MemoryLogStore())
    asked(server.coordinator, CHANGELOG)
    with server.topics.edit() as edit:
        edit.delete(CHANGELOG.name)
    assert server.coordinator._host.answer(CreateInternalTopics(0, "app", (CHANGELOG,), "User:app")) is None
    assert server.nearer_deadline_ms() is not None
    clock.advance(CREATION_MS - 1)
    server.tick()
    assert server.topics.get(CHANGELOG.name) is None
    clock.advance(1)
    assert server.next_deadline_ms() == clock.now_ms()
    server.tick()
    assert server.topics.get(CHANGELOG.name) is not None
