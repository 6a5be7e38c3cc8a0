"""Every refusal of what the host answers itself (reading, topics, transactions) for want of a permission, as recorded
from Apache Kafka 4.4 with its StandardAuthorizer.

Topics: ``t`` and ``u`` exist, ``nope`` does not.
"""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, Operation, Resource
from groupcoord.core.router.authorization import CLUSTER
from tests.broker.data_world import batch
from tests.broker.rules import (
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    ID_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION,
    UNKNOWN,
    Rules,
    errors,
)
from tests.broker.wire_world import NO_ID, OTHER_ID, TOPIC_ID, U_ID, Body, WireWorld

TOPIC_MESSAGE = "Topic authorization failed."


# ---------------------------------------------------------------- ListOffsets, Fetch, Produce


@pytest.mark.parametrize("version", [1, 7, 11])
def test_list_offsets(world: WireWorld, rules: Rules, version: int) -> None:
    """Topics without DESCRIBE come last; each of their partitions is answered, however often it is named."""
    rules.deny("DESCRIBE", TOPIC, "t", "nope")
    partitions = tuple({"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in (0, 9, 9))
    topics = tuple({"name": name, "partitions": partitions} for name in ("t", "nope", "u"))
    answer = world.ask(2, version, {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 0})
    denied = [(0, TOPIC_DENIED), (9, TOPIC_DENIED), (9, TOPIC_DENIED)]
    assert errors(answer["topics"]) == [
        ("u", [(0, "NONE"), (9, "INVALID_REQUEST")]),
        ("t", denied),
        ("nope", denied),
    ]
    assert {partition["offset"] for topic in answer["topics"][1:] for partition in topic["partitions"]} == {-1}


def fetch_body(*topics: str | object, replica_id: int = -1, max_wait: int = 0) -> Body:
    partitions = tuple(
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1_000,
        }
        for index in (0, 9)
    )
    asked = [{"topic": topic, "topic_id": topic, "partitions": partitions} for topic in topics]
    return {
        "cluster_id": None,
        "replica_id": replica_id,
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": (),
        "rack_id": "",
        "topics": tuple(asked),
    }


def test_fetch_by_name(world: WireWorld, rules: Rules) -> None:
    """What can be read comes first, then the errors in the order of the request; without READ existence is not told."""
    rules.deny("READ", TOPIC, "t", "secret")
    answer = world.ask(1, 12, fetch_body("t", "u", "secret", "nope"))
    denied = [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]
    assert errors(answer["responses"]) == [
        ("u", [(0, "NONE")]),
        ("t", denied),
        ("u", [(9, UNKNOWN)]),
        ("secret", denied),
        ("nope", [(0, UNKNOWN), (9, UNKNOWN)]),
    ]
    assert answer["responses"][1]["partitions"][0]["high_watermark"] == -1


def test_fetch_by_id(world: WireWorld, rules: Rules) -> None:
    """Unknown ids come before all other errors."""
    rules.deny("READ", TOPIC, "t")
    answer = world.ask(1, 16, fetch_body(U_ID, TOPIC_ID, OTHER_ID))
    assert errors(answer["responses"]) == [
        (U_ID, [(0, "NONE")]),
        (OTHER_ID, [(0, "UNKNOWN_TOPIC_ID"), (9, "UNKNOWN_TOPIC_ID")]),
        (U_ID, [(9, UNKNOWN)]),
        (TOPIC_ID, [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]),
    ]


def test_a_fetch_that_is_refused_does_not_wait(world: WireWorld, rules: Rules) -> None:
    """Only partitions that can be read are worth waiting for."""
    rules.deny("READ", TOPIC, "t")
    assert world.send(1, 12, fetch_body("t", max_wait=500)).answer() is not None
    assert world.send(1, 12, fetch_body("t", "u", max_wait=500)).answer() is None


def test_fetch_of_a_follower(world: WireWorld, rules: Rules) -> None:
    """A follower needs CLUSTER_ACTION in place of READ: without it, every topic is refused."""
    rules.deny("READ", TOPIC, "t")
    answer = world.ask(1, 12, fetch_body("t", "nope", replica_id=2))
    assert errors(answer["responses"])[0] == ("t", [(0, "NOT_LEADER_OR_FOLLOWER"), (9, UNKNOWN)])
    rules.deny("CLUSTER_ACTION", CLUSTER)
    answer = world.ask(1, 12, fetch_body("t", "nope", replica_id=2))
    denied = [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]
    assert errors(answer["responses"]) == [("t", denied), ("nope", denied)]


def test_ends_of_epochs(world: WireWorld, rules: Rules) -> None:
    """Consumers need DESCRIBE for them (KIP-320), brokers CLUSTER_ACTION and nothing else."""
    partitions = ({"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},)
    body = {"replica_id": -2, "topics": ({"topic": "t", "partitions": partitions},)}

    def told() -> ErrorCode:
        (topic,) = world.ask(23, 4, body)["topics"]
        return ErrorCode(topic["partitions"][0]["error_code"])

    rules.deny("DESCRIBE", TOPIC, "t")
    assert told() is ErrorCode.NONE
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert told() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rules.denied.clear()
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert told() is ErrorCode.NONE


def produce_body(
    *topics: str | object, transactional_id: str | None = None, acks: int = 1, records: bytes = b""
) -> Body:
    data = tuple({"index": index, "records": records} for index in (0, 9))
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 1_000,
        "topic_data": tuple({"name": topic, "topic_id": topic, "partition_data": data} for topic in topics),
    }


@pytest.mark.parametrize("acks", [1, 7])
def test_produce(world: WireWorld, rules: Rules, acks: int) -> None:
    """WRITE is asked for before anything else but an unknown id."""
    rules.deny("WRITE", TOPIC, "t", "secret")
    answer = world.ask(0, 9, produce_body("t", "secret", "nope", acks=acks))
    denied = [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]
    assert errors(answer["responses"], partitions="partition_responses") == [
        ("t", denied),
        ("secret", denied),
        ("nope", [(0, UNKNOWN), (9, UNKNOWN)]),
    ]
    answer = world.ask(0, 13, produce_body(TOPIC_ID, OTHER_ID, acks=acks))
    assert errors(answer["responses"], partitions="partition_responses") == [
        (TOPIC_ID, denied),
        (OTHER_ID, [(0, "UNKNOWN_TOPIC_ID"), (9, "UNKNOWN_TOPIC_ID")]),
    ]


def test_produce_in_a_transaction(world: WireWorld, rules: Rules) -> None:
    """Without WRITE on the transactional id all is refused, if any of it is transactional."""
    rules.deny("WRITE", TRANSACTION, "x")
    plain = world.ask(0, 9, produce_body("t", transactional_id="x", records=batch(b"v", at_ms=0)))
    assert errors(plain["responses"], partitions="partition_responses") == [
        ("t", [(0, "NONE"), (9, "UNKNOWN_TOPIC_OR_PARTITION")])
    ]
    records = batch(b"v", at_ms=0, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = world.ask(0, 9, produce_body("t", "nope", transactional_id="x", records=records))
    denied = [(0, ID_DENIED), (9, ID_DENIED)]
    assert errors(answer["responses"], partitions="partition_responses") == [("t", denied), ("nope", denied)]


def test_produce_without_an_answer(world: WireWorld, rules: Rules) -> None:
    """With acks=0 the closed connection tells of the refusal."""
    rules.deny("WRITE", TOPIC, "t")
    sent = world.send(0, 9, produce_body("t", acks=0))
    assert sent.connection.closing == "Produce with acks=0 failed: TOPIC_AUTHORIZATION_FAILED"


# ---------------------------------------------------------------- topics


def create_body(*names: str, validate_only: bool = False) -> Body:
    topics = tuple(
        {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()} for name in names
    )
    return {"topics": topics, "timeout": 1_000, "validate_only": validate_only}


def outcomes(topics: list[Body]) -> list[tuple[object, str, object]]:
    return [(topic["name"], ErrorCode(topic["error_code"]).name, topic["error_message"]) for topic in topics]


@pytest.mark.parametrize("version", [2, 7])
def test_create_topics(world: WireWorld, rules: Rules, version: int) -> None:
    """CREATE on the cluster is enough, else it is asked for each topic; the refused come last."""
    rules.deny("CREATE", TOPIC, "no", "t", "a b", "twice")
    assert outcomes(world.ask(19, version, create_body("no", validate_only=True))["topics"]) == [("no", "NONE", None)]
    rules.deny("CREATE", CLUSTER)
    names = ("no", "t", "a b", "twice", "twice", "__cluster_metadata", "yes", "u")
    denied = [(name, TOPIC_DENIED, "Authorization failed.") for name in ("no", "t", "a b")]
    assert outcomes(world.ask(19, version, create_body(*names))["topics"]) == [
        ("yes", "NONE", None),
        ("u", "TOPIC_ALREADY_EXISTS", "Topic 'u' already exists."),
        *denied,
        ("twice", "INVALID_REQUEST", "Duplicate topic name."),
        ("__cluster_metadata", "INVALID_REQUEST", "Creation of internal topic __cluster_metadata is prohibited."),
    ]
    assert world.broker.topics.get("no") is None


def test_create_topics_without_a_look_at_their_settings(world: WireWorld, rules: Rules) -> None:
    """Without DESCRIBE_CONFIGS the topic is created, but nothing is told of it."""
    rules.deny("DESCRIBE_CONFIGS", TOPIC, "new")
    untold, told = world.ask(19, 7, create_body("new", "other"))["topics"]
    assert (told["topic_config_error_code"], told["num_partitions"], told["replication_factor"]) == (0, 2, 1)
    assert (untold["topic_config_error_code"], untold["error_code"]) == (ErrorCode[TOPIC_DENIED], ErrorCode.NONE)
    assert (untold["num_partitions"], untold["replication_factor"], untold["configs"]) == (-1, -1, [])
    assert untold["topic_id"] is not None


def test_create_partitions(world: WireWorld, rules: Rules) -> None:
    """ALTER is asked for each topic; the refused come first and have no message."""
    rules.deny("ALTER", TOPIC, "t", "secret", "twice")
    topics = tuple({"name": name, "count": 9, "assignments": None} for name in ("u", "t", "twice", "secret", "twice"))
    answer = world.ask(37, 3, {"topics": topics, "timeout": 1_000, "validate_only": False})
    assert outcomes(answer["results"]) == [
        ("t", TOPIC_DENIED, None),
        ("twice", "INVALID_REQUEST", "Duplicate topic name."),
        ("secret", TOPIC_DENIED, None),
        ("u", "NONE", None),
    ]
    assert world.broker.topics.partition_count("t") == 3


def delete(world: WireWorld, *topics: str | object) -> dict[tuple[object, object], tuple[str, object]]:
    """Return errors and messages by the names and ids that are answered."""
    named = tuple(
        {"name": topic, "topic_id": NO_ID} if isinstance(topic, str) else {"name": None, "topic_id": topic}
        for topic in topics
    )
    answer = world.ask(20, 6, {"topics": named, "timeout": 1_000})
    return {
        (topic["name"], topic["topic_id"]): (ErrorCode(topic["error_code"]).name, topic["error_message"])
        for topic in answer["responses"]
    }


@pytest.fixture
def cautious(rules: Rules) -> Rules:
    rules.deny("DELETE", CLUSTER)
    return rules


def test_delete_topics_of_the_whole_cluster(world: WireWorld, rules: Rules) -> None:
    """With DELETE on the cluster topics need no permission of their own."""
    rules.deny("DELETE", TOPIC, "t")
    rules.deny("DESCRIBE", TOPIC, "t")
    assert delete(world, "t") == {("t", TOPIC_ID): ("NONE", None)}


def test_delete_topics_by_name(world: WireWorld, cautious: Rules) -> None:
    """DESCRIBE comes before whether a topic exists, DELETE after."""
    cautious.deny("DESCRIBE", TOPIC, "t", "secret")
    cautious.deny("DELETE", TOPIC, "u", "nope", "twice")
    assert delete(world, "t", "secret", "u", "nope", "twice", "twice") == {
        ("t", None): (TOPIC_DENIED, TOPIC_MESSAGE),
        ("secret", None): (TOPIC_DENIED, TOPIC_MESSAGE),
        ("u", None): (TOPIC_DENIED, TOPIC_MESSAGE),
        ("nope", None): (UNKNOWN, "This server does not host this topic-partition."),
        ("twice", None): ("INVALID_REQUEST", "Duplicate topic name."),
    }
    assert world.broker.topics.get("u") is not None


def test_delete_topics_by_id(world: WireWorld, cautious: Rules) -> None:
    """Who may not describe a topic is not told its name; DELETE is enough to delete it."""
    cautious.deny("DELETE", TOPIC, "t", "u")
    cautious.deny("DESCRIBE", TOPIC, "t")
    assert delete(world, TOPIC_ID, U_ID, OTHER_ID) == {
        (None, TOPIC_ID): (TOPIC_DENIED, TOPIC_MESSAGE),
        ("u", U_ID): (TOPIC_DENIED, TOPIC_MESSAGE),
        (None, OTHER_ID): ("UNKNOWN_TOPIC_ID", "This server does not host this topic ID."),
    }
    assert delete(world, U_ID, "u") == {
        ("u", U_ID): (TOPIC_DENIED, TOPIC_MESSAGE),
        ("u", None): (TOPIC_DENIED, TOPIC_MESSAGE),
    }
    cautious.denied.clear()
    cautious.deny("DELETE", CLUSTER)
    cautious.deny("DESCRIBE", TOPIC, "t")
    assert delete(world, TOPIC_ID) == {("t", TOPIC_ID): ("NONE", None)}


# ---------------------------------------------------------------- transactions

PRODUCER: Body = {"producer_id": 77, "producer_epoch": 0}
NOBODY: Body = {"producer_id": -1, "producer_epoch": -1}


@pytest.mark.parametrize("changes", [{}, {"transaction_timeout": 0}, {"producer_id": 5}])
def test_init_producer_id(world: WireWorld, rules: Rules, changes: Body) -> None:
    """WRITE on the transactional id is asked for before the request is looked at."""
    rules.deny("WRITE", TRANSACTION, "x")
    body = {"transactional_id": "x", "transaction_timeout": 60_000} | NOBODY | changes
    assert world.ask(22, 4, body) == {"error_code": ErrorCode[ID_DENIED]} | NOBODY


def test_init_producer_id_of_an_idempotent_producer(world: WireWorld, rules: Rules) -> None:
    """Either IDEMPOTENT_WRITE on the cluster or WRITE on some topic is enough."""
    body = {"transactional_id": None, "transaction_timeout": 60_000} | NOBODY
    rules.deny("IDEMPOTENT_WRITE", CLUSTER)
    assert world.ask(22, 4, body)["error_code"] == ErrorCode.NONE
    rules.deny("WRITE", TOPIC, "t", "u", "__consumer_offsets")
    assert world.ask(22, 4, body) == {"error_code": ErrorCode[CLUSTER_DENIED]} | NOBODY
    assert world.ask(22, 4, body | {"transactional_id": "x"})["error_code"] == ErrorCode.NONE
    rules.denied.remove((Operation.WRITE, Resource(TOPIC, "u")))
    assert world.ask(22, 4, body)["error_code"] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("api_key", "version", "body", "answer"),
    [
        pytest.param(25, 3, {"group_id": "g"}, {}, id="AddOffsetsToTxn"),
        pytest.param(26, 3, {"committed": True}, {}, id="EndTxn"),
        pytest.param(26, 5, {"committed": True}, NOBODY, id="EndTxn 5"),
    ],
)
def test_transactional_ids(
    world: WireWorld, rules: Rules, api_key: int, version: int, body: Body, answer: Body
) -> None:
    """WRITE on the transactional id comes before the permission on the group and before the producer."""
    rules.deny("WRITE", TRANSACTION, "x")
    rules.deny("READ", GROUP, "g")
    asked = {"transactional_id": "x"} | PRODUCER | body
    assert world.ask(api_key, version, asked) == {"error_code": ErrorCode[ID_DENIED]} | answer


def test_add_offsets_to_a_transaction(world: WireWorld, rules: Rules) -> None:
    """READ on the group comes before the producer and before an empty transactional id."""
    rules.deny("READ", GROUP, "g")
    for transactional_id in ("x", ""):
        body = {"transactional_id": transactional_id, "group_id": "g"} | PRODUCER
        assert world.ask(25, 3, body) == {"error_code": ErrorCode[GROUP_DENIED]}


def add_partitions(
    world: WireWorld, version: int, *topics: tuple[str, tuple[int, ...]], producer: Body = PRODUCER
) -> Body:
    wanted = {"transactional_id": "x", "topics": tuple({"name": t, "partitions": p} for t, p in topics)} | producer
    own = {f"v3_and_below_{key}": value for key, value in wanted.items()}
    return world.ask(24, version, own | {"transactions": (wanted | {"verify_only": False},)})


def added(answer: Body) -> object:
    return errors(answer["results_by_topic_v3_and_below"], "partition_error_code", "results_by_partition")


@pytest.mark.parametrize("version", [0, 3])
def test_add_partitions_to_a_transaction(world: WireWorld, rules: Rules, version: int) -> None:
    """Without WRITE on the id all is refused; a topic without WRITE, or without being, spoils the others."""
    rules.deny("WRITE", TOPIC, "u", "secret")
    topics = (("t", (0, 9)), ("u", (0,)), ("secret", (0,)), ("nope", (1,)))
    assert added(add_partitions(world, version, *topics)) == [
        ("t", [(0, "OPERATION_NOT_ATTEMPTED"), (9, UNKNOWN)]),
        ("u", [(0, TOPIC_DENIED)]),
        ("secret", [(0, TOPIC_DENIED)]),
        ("nope", [(1, UNKNOWN)]),
    ]
    rules.deny("WRITE", TRANSACTION, "x")
    assert added(add_partitions(world, version, *topics)) == [
        (name, [(index, ID_DENIED) for index in indexes]) for name, indexes in topics
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_as_a_broker(world: WireWorld, rules: Rules, version: int) -> None:
    """Brokers need CLUSTER_ACTION, and nothing else; without it the whole is refused."""
    rules.deny("WRITE", TRANSACTION, "x")
    rules.deny("WRITE", TOPIC, "t")
    (result,) = add_partitions(world, version, ("t", (0,)))["results_by_transaction"]
    assert errors(result["topic_results"], "partition_error_code", "results_by_partition") == [
        ("t", [(0, "INVALID_PRODUCER_ID_MAPPING")])
    ]
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert add_partitions(world, version, ("t", (0,))) == {
        "error_code": ErrorCode[CLUSTER_DENIED],
        "results_by_transaction": [],
    }


def test_write_markers(world: WireWorld, rules: Rules) -> None:
    """Either ALTER or CLUSTER_ACTION on the cluster is enough; without both every partition is refused."""
    topics = tuple({"name": name, "partition_indexes": (0, 9)} for name in ("t", "nope"))
    marker = {"producer_id": 77, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    body = {"markers": (marker | {"topics": topics},)}
    allowed = world.ask(27, 1, body)
    rules.deny("ALTER", CLUSTER)
    assert world.ask(27, 1, body) == allowed
    rules.denied.clear()
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert world.ask(27, 1, body) == allowed
    rules.deny("ALTER", CLUSTER)
    (written,) = world.ask(27, 1, body)["markers"]
    denied = [(0, CLUSTER_DENIED), (9, CLUSTER_DENIED)]
    assert (written["producer_id"], errors(written["topics"])) == (77, [("t", denied), ("nope", denied)])


def test_describe_transactions(world: WireWorld, rules: Rules) -> None:
    """DESCRIBE is asked for each id, and for each topic, which is left out without it."""
    body = {"transactional_id": "x", "transaction_timeout": 60_000} | NOBODY
    producer = world.ask(22, 4, body)
    assert producer.pop("error_code") == ErrorCode.NONE
    answer = add_partitions(world, 3, ("t", (0,)), ("u", (0,)), producer=producer)
    assert added(answer) == [("t", [(0, "NONE")]), ("u", [(0, "NONE")])]
    rules.deny("DESCRIBE", TOPIC, "u")
    rules.deny("DESCRIBE", TRANSACTION, "denied")
    states = world.ask(65, 0, {"transactional_ids": ("x", "denied", "absent")})["transaction_states"]
    assert [(state["transactional_id"], ErrorCode(state["error_code"]).name) for state in states] == [
        ("x", "NONE"),
        ("denied", ID_DENIED),
        ("absent", "TRANSACTIONAL_ID_NOT_FOUND"),
    ]
    assert states[0]["topics"] == [{"topic": "t", "partitions": [0]}]


def test_nothing_is_asked_without_a_hook() -> None:
    """Without authorize all is allowed, and authorized operations are all there are."""
    world = WireWorld()
    body = {"topics": None, "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = world.ask(3, 8, body | {"allow_auto_topic_creation": False})
    assert {topic["topic_authorized_operations"] for topic in answer["topics"]} == {3576}
    assert answer["cluster_authorized_operations"] == 8096
