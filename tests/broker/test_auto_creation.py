"""Topics that are created by asking for them, as far as settings, clients and permissions allow."""

from __future__ import annotations

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.router.authorization import Operation, Resource
from groupcoord.wire.broker_messages import Metadata, TopicReference
from tests.broker.data_world import FakeConnection

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
    connection = FakeConnection()
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
