"""Every request of the registry that holds an array: no step on it takes long, however many entries a peer sends."""

from __future__ import annotations

import copy
import functools
import itertools
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker import connection as connection_module
from groupcoord.broker.broker import make_broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.security.security import Security
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import ENTRIES_AT_ONCE, arrays_of, entry_limit, holds_more
from groupcoord.messages import ConsumerGroupHeartbeat, OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.wire import decode_request
from groupcoord.wire.registry import APIS
from tests.broker.driving import LateJobs, drain, feed
from tests.broker.effort import lines_of
from tests.broker.security.test_acl_conversations import ACLS
from tests.broker.security.world import PROPERTIES
from tests.samples import PARTS
from tests.wire.kio_client import NOT_IN_KIO, VERSIONS, read_response, request_frame, versions_of
from tests.wire.sample_frames import FRAMES
from tests.wire.sample_requests import BODIES

STEP_LINES_MAX = 5_000_000
"""Lines of Python that a server executes in some 0.2 seconds."""

ARRAY_MAX = 1_000_000
"""Entries that an array may have, as in Kafka."""

COUNTS = (1_100, 2_200)
"""More entries than a portion has anywhere."""

Body = dict[str, Any]
Path = tuple[Any, ...]

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
TOPIC_ID = UUID(int=1)
PARTITION = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
COMMITTED = [{"name": "orders", "topic_id": TOPIC_ID, "partitions": [PARTITION]}]
STATE = {
    "partition": 0,
    "start_offset": 0,
    "state_epoch": 9,
    "leader_epoch": 0,
    "delivery_complete_count": 0,
    "state_batches": [{"delivery_count": 1, "delivery_state": 0, "first_offset": 5, "last_offset": 6}],
}
STATES = {"group_id": "sg", "topics": [{"topic_id": TOPIC_ID, "partitions": [STATE]}]}
ACKNOWLEDGED = {"acknowledge_types": [1], "first_offset": 0, "last_offset": 0}
SESSION = {
    "group_id": "sg",
    "member_id": MEMBER,
    "is_renew_ack": False,
    "share_acquire_mode": 0,
    "max_wait": 0,
    "topics": [
        {"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0, "acknowledgement_batches": [ACKNOWLEDGED]}]}
    ],
    "forgotten_topics_data": [{"topic_id": TOPIC_ID, "partitions": [0]}],
}
CONFIG = {"config_operation": 0, "name": "consumer.session.timeout.ms", "value": "45000"}
CONFIGS = {
    "validate_only": False,
    "resources": [{"resource_type": 32, "resource_name": "g", "configs": [CONFIG]}],
}
CHANGELOG = {"name": "log", "partitions": 0, "replication_factor": 1, "topic_configs": [{"key": "a", "value": "b"}]}
SUBTOPOLOGY = {
    "subtopology_id": "0",
    "source_topics": ["orders"],
    "source_topic_regex": [],
    "repartition_sink_topics": ["rp"],
    "state_changelog_topics": [CHANGELOG],
    "repartition_source_topics": [CHANGELOG | {"name": "rp", "partitions": 3}],
    "copartition_groups": [{"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": []}],
}
TASK_OFFSET = {"subtopology_id": "0", "partition": 0, "offset": 1}

LIVE: dict[int, Body] = {
    0: {
        "transactional_id": None,
        "topic_data": [{"name": "orders", "topic_id": TOPIC_ID, "partition_data": [{"index": 0, "records": b""}]}],
    },
    8: {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None, "topics": COMMITTED},
    11: {"group_id": "j", "member_id": "", "group_instance_id": None, "rebalance_timeout": 60_000},
    13: {"group_id": "classic"},
    14: {"group_id": "classic", "generation_id": 1, "group_instance_id": None, "protocol_name": "range"},
    19: {
        "validate_only": False,
        "topics": [
            {
                "name": "new",
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": "retention.ms", "value": "1000"}],
            }
        ],
    },
    20: {"topics": [{"name": "bills", "topic_id": UUID(int=0)}]},
    24: {
        "transactions": [
            {
                "producer_epoch": 0,
                "producer_id": 0,
                "transactional_id": "w",
                "verify_only": False,
                "topics": [{"name": "orders", "partitions": [0]}],
            }
        ]
    },
    27: {
        "markers": [
            {
                "coordinator_epoch": 0,
                "producer_epoch": 0,
                "producer_id": 1,
                "transaction_result": True,
                "transaction_version": 0,
                "topics": [{"name": "__consumer_offsets", "partition_indexes": [0]}],
            }
        ]
    },
    28: {
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": COMMITTED,
    },
    33: CONFIGS,
    37: {"validate_only": False, "topics": [{"assignments": None, "count": 11, "name": "orders"}]},
    44: CONFIGS,
    49: {
        "validate_only": False,
        "entries": [
            {
                "entity": [{"entity_name": "u", "entity_type": "user"}],
                "ops": [{"key": "producer_byte_rate", "remove": False, "value": 1024.0}],
            }
        ],
    },
    51: {
        "deletions": [{"mechanism": 1, "name": "bob"}],
        "upsertions": [
            {"iterations": 4096, "mechanism": 1, "name": "u", "salt": b"0123456789abcdef", "salted_password": bytes(32)}
        ],
    },
    68: {
        "group_id": "c",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "subscribed_topic_names": ["orders"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    },
    76: {
        "group_id": "new",
        "member_id": MEMBER,
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": ["orders"],
    },
    78: SESSION | {"share_session_epoch": 1},
    79: SESSION | {"share_session_epoch": 1},
    **dict.fromkeys(range(83, 88), STATES),
    88: {
        "group_id": "st",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "shutdown_application": False,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "task_offsets": [TASK_OFFSET],
        "task_end_offsets": [TASK_OFFSET],
        "topology": {"epoch": 0, "subtopologies": [SUBTOPOLOGY]},
    },
    90: {"groups": [{"group_id": "empty", "topics": [{"topic_name": "orders", "partitions": [0]}]}]},
    91: {
        "group_id": "empty",
        "topics": [{"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": 1}]}],
    },
    92: {"group_id": "empty", "topics": [{"topic_name": "orders"}]},
}
"""What makes the sample requests ask for something that is done, by API key."""

JOINS = {
    "session_timeout": 30_000,
    "rebalance_timeout": 60_000,
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"\x00\x01"}],
}


class BoundedBroker:
    """A server that decides by ACLs, with topics, groups of all kinds and a share session."""

    def __init__(self) -> None:
        topics = TopicRegistry(new_id=map(UUID, map("{:032x}".format, itertools.count(1))).__next__)
        with topics.edit() as edit:
            edit.create("orders", 3_000)
            edit.create("bills", 3)
            for number in range(COUNTS[-1] // 4):
                edit.create(f"orders{number}", 1)
        clock = ManualClock(1_790_000_000_000)
        security = Security(clock, None, PROPERTIES | ACLS, {})
        self.broker = make_broker(
            config=Config(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0),
            clock=clock,
            log_store=MemoryLogStore(),
            topics=topics,
            security=security,
            new_member_id=lambda prefix: "member",
        )
        self.jobs = LateJobs(self.broker)
        joins = JOINS | {"group_id": "classic"}
        self.ask(11, joins | {"member_id": ""})
        self.send(11, joins | {"member_id": "member"})
        self.broker.tick()
        for group_id in ("sg", "empty"):
            self.ask(76, LIVE[76] | {"group_id": group_id})
        self.ask(76, LIVE[76] | {"group_id": "sg", "member_epoch": 1})
        self.ask(76, LIVE[76] | {"group_id": "empty", "member_epoch": -1})
        self.ask(78, SESSION | {"share_session_epoch": 0})
        self.ask(83, STATES)

    def connect(self) -> Connection:
        return self.broker.connect("/127.0.0.1", "PLAINTEXT")

    def send(self, api_key: int, body: Body) -> Connection:
        connection = self.connect()
        feed(connection, framed(api_key, BODIES[api_key] | body))
        while self.jobs.do_next():
            self.broker.handle_waiting()
        return connection

    def ask(self, api_key: int, body: Body) -> Body:
        return read_response(api_key, newest(api_key), drain(self.send(api_key, body)))

    def longest_step(self, frame: bytes) -> int:
        """Return how many lines the longest step on a request takes, where others have their turn wherever they may."""
        broker, connection = self.broker, self.connect()
        broker.now_s = broker.turns.now_s = itertools.count(1e9).__next__
        longest = lines_of(connection.receive_data, frame)
        while connection.is_waiting or broker.turns.waiting:
            longest = max(longest, lines_of(broker.run_turn))
            if not self.jobs.do_next() and connection.is_waiting and not broker.turns.waiting:
                break  # it waits for time to pass
            connection.take_output()
        return longest


def newest(api_key: int) -> int:
    return max(version for version in versions_of(api_key) if (api_key, version) not in NOT_IN_KIO)


def framed(api_key: int, body: Body) -> bytes:
    data = request_frame(api_key, newest(api_key), body)
    return struct.pack(">i", len(data)) + data


def arrays_in(body: Any, path: Path = ()) -> Iterator[Path]:
    """Yield where a request has arrays."""
    if isinstance(body, dict):
        for name, value in body.items():
            yield from arrays_in(value, (*path, name))
    elif isinstance(body, (list, tuple)) and body:
        yield path
        yield from arrays_in(body[0], (*path, 0))


def with_entries(body: Body, path: Path, count: int, *, distinct: bool) -> Body:
    """Return a request with a number of entries in its first array, or in the named ones."""
    body = copy.deepcopy(body)
    holder: Any = body
    for step in path[:-1]:
        holder = holder[step]
    first = holder[path[-1]][0]
    holder[path[-1]] = [renamed(first, number) if distinct else first for number in range(count)]
    return body


def renamed(entry: Any, number: int) -> Any:
    """Return an entry that is about something else."""
    if isinstance(entry, str):
        return f"{entry}{number}"
    if isinstance(entry, UUID):
        return UUID(int=number + 3)
    if isinstance(entry, dict):
        name = next((name for name in NAMES if name in entry), None)
        return entry if name is None or entry[name] is None else entry | {name: renamed(entry[name], number)}
    return number if type(entry) is int else entry


NAMES = (
    *("topic_id", "name", "topic", "topic_name", "group_id", "resource_name", "member_id", "transactional_id"),
    *("partition_index", "index", "partition", "producer_id", "subtopology_id", "entity", "principal", "path", "key"),
)


@functools.cache
def in_portions() -> frozenset[type]:
    return frozenset(BoundedBroker().broker._handlers_in_steps)


CASES = [
    (api_key, path)
    for api_key in sorted(VERSIONS)
    if set(versions_of(api_key)) - {version for key, version in NOT_IN_KIO if key == api_key}
    for path in arrays_in(BODIES[api_key] | LIVE.get(api_key, {}))
]


OWN_BOUNDS = {30: 10_000, 85: 10_000}
"""The most entries that anything is done with, where a request is refused for more: new ACLs, batches of a state."""


API_KEYS = sorted({api_key for api_key, _ in CASES})


@pytest.mark.parametrize(
    "api_key",
    [pytest.param(key, marks=pytest.mark.slow if at % PARTS else pytest.mark.ci) for at, key in enumerate(API_KEYS)],
    ids=[APIS[key].name for key in API_KEYS],
)
def test_no_step_takes_long(api_key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that a step handles are few, or so cheap that as many as a request may hold take a fraction of a second.

    Duplicates count as others do. What a step takes grows with the entries at most up to the request's bound.
    """
    monkeypatch.setattr(connection_module, "LARGE_REQUEST_BYTES", 1)  # so that no step decodes the request
    body = BODIES[api_key] | LIVE.get(api_key, {})
    for path, distinct in itertools.product([path for key, path in CASES if key == api_key], (False, True)):
        try:
            frames = [framed(api_key, with_entries(body, path, count, distinct=distinct)) for count in COUNTS]
        except struct.error:
            continue  # numbers of one byte can't be distinct
        few, many = (BoundedBroker().longest_step(frame) for frame in frames)
        requests = [decode_request(frame[4:], "/127.0.0.1")[1] for frame in frames]
        entries_max = entry_limit(type(requests[0]), in_portions()) or OWN_BOUNDS.get(api_key, ARRAY_MAX)
        entries = [sum(map(len, arrays_of(request))) for request in requests]
        if entries[0] == entries[1]:
            continue  # the newest version, or what is made of it, has no such array
        lines_per_entry = max(many - few, 0) / (entries[1] - entries[0])
        assert few + lines_per_entry * entries_max < STEP_LINES_MAX, (path, few, many, distinct)


def test_missing_topics_are_created_in_portions() -> None:
    """The longest step of a Metadata request does not grow with the topics that it creates."""
    few, many = (
        BoundedBroker().longest_step(
            framed(3, BODIES[3] | {"topics": tuple({"topic_id": None, "name": f"new-{n}"} for n in range(count))})
        )
        for count in (300, 600)
    )
    assert many < 1.1 * few


def test_requests_that_are_handled_in_one_step_are_bounded() -> None:
    frames = {api_key: frame for (api_key, _), frame in FRAMES.items()}
    assert frames.keys() == APIS.keys()
    for frame in frames.values():
        request = type(decode_request(frame, "/127.0.0.1")[1])
        assert request in in_portions() or entry_limit(request, in_portions())
    assert entry_limit(ConsumerGroupHeartbeat, in_portions()) is not None


def test_nested_entries_and_duplicates_count() -> None:
    """Each entry of each array, at any depth; columns count once."""
    offsets = (TopicToCommit("t", (OffsetToCommit(0, 1),) * 3),) * 2
    request = OffsetCommit("g", offsets)
    assert not holds_more(request, 8)
    assert holds_more(request, 7)


def test_too_many_entries_are_invalid() -> None:
    """One entry above the bound fails with INVALID_REQUEST and no effect; the connection stays open."""
    world = BoundedBroker()
    names = ["t"] * (ENTRIES_AT_ONCE + 1)
    assert world.ask(76, LIVE[76] | {"subscribed_topic_names": names})["error_code"] == 42
    assert world.ask(77, {"group_ids": ["new"]})["groups"][0]["error_code"] == 69
    assert world.ask(76, LIVE[76] | {"subscribed_topic_names": names[1:]})["error_code"] == 0
