"""Attacks on share groups: endless waits, renewals and acknowledgements, impossible states, and hostile batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from groupcoord.records.batches import encode_batch
from groupcoord.records.compression import Compression, compress
from tests.attack.amplify import exchange
from tests.attack.rig import TOPICS, Attack, Result, Server
from tests.client import Request
from tests.topic_logs.batches import claiming
from tests.topic_logs.hostile_batches import BATCHES, RECORD

GROUP, WIDE, NARROW = "hoard", "wide", "bills"
PRODUCE, METADATA, ALTER_CONFIGS, SHARE_FETCH, SHARE_ACKNOWLEDGE, INITIALIZE, WRITE = 0, 3, 44, 78, 79, 83, 85
VERSIONS = {PRODUCE: 9, METADATA: 12, ALTER_CONFIGS: 1, SHARE_FETCH: 2, SHARE_ACKNOWLEDGE: 2, INITIALIZE: 0, WRITE: 1}
PATIENCE_S = 60.0
PATIENCE_MS = 10_000
SESSIONS, APPENDS = 40, 300
RECORDS, RENEWALS = 500, 2_000
GIVEN_UP = 12
GROUP_RESOURCE = 32
DEAD = "dlq.wide"
NEVER_ENOUGH = 2**31 - 1
RENEW, ACCEPT, RELEASE, REJECT = 4, 1, 2, 3


SETTINGS: dict[str, str | int] = {"errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": 3}
MILLIONS = 8_000_000


BLOWN_UP: dict[int, Callable[[], bytes]] = {
    4: lambda: claiming(MILLIONS, compress(Compression.ZSTD, RECORD * MILLIONS), attributes=Compression.ZSTD),
    10: BATCHES["gzip, zeros"],
    16: BATCHES["zstd, zeros"],
    22: BATCHES["zstd, windows"],
    28: BATCHES["67 bytes of 2^31-1 records, compressed"],
}
"""By the number of a partition, the batch in it."""


class Peer:
    """Connection with a share session on it."""

    def __init__(self, server: Server, member_id: str = "peer") -> None:
        self.member_id = member_id
        self.epoch = 0
        self.client = server.connect(PATIENCE_S)

    def ask(self, api_key: int, values: dict[str, Any]) -> Any:
        return self.client.ask(Request(api_key, VERSIONS[api_key], values))

    def topic_id(self, name: str) -> UUID:
        asked = {
            "topics": [{"topic_id": None, "name": name}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        (topic,) = self.ask(METADATA, asked)["topics"]
        found: UUID = topic["topic_id"]
        return found

    def begin(self, topic_id: UUID, count: int) -> None:
        partitions = [{"partition": index, "state_epoch": 0, "start_offset": 0} for index in range(count)]
        topics = [{"topic_id": topic_id, "partitions": partitions}]
        self.ask(INITIALIZE, {"group_id": GROUP, "topics": topics})

    def append(self, topic: str, partition: int, count: int, batch: bytes | None = None) -> None:
        batch = encode_batch(0, [(None, b"value", 0)] * count) if batch is None else batch
        partitions = [{"index": partition, "records": batch}]
        topics = [{"name": topic, "partition_data": partitions}]
        self.ask(PRODUCE, {"transactional_id": None, "acks": -1, "timeout_ms": 10_000, "topic_data": topics})

    def fetching(self, topic_id: UUID, count: int, **changes: Any) -> dict[str, Any]:
        """Return the next fetch of the session, which names partitions if it is the first."""
        partitions = [{"partition_index": index, "acknowledgement_batches": []} for index in range(count)]
        self.epoch += 1
        return {
            "group_id": GROUP,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch - 1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 2**20,
            "max_records": RECORDS,
            "batch_size": RECORDS,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [{"topic_id": topic_id, "partitions": partitions}] if self.epoch == 1 else [],
            "forgotten_topics_data": [],
            **changes,
        }

    def acknowledging(self, topic_id: UUID, *batches: tuple[int, int, list[int]], index: int = 0) -> dict[str, Any]:
        named = [{"first_offset": a, "last_offset": z, "acknowledge_types": types} for a, z, types in batches]
        partitions = [{"partition_index": index, "acknowledgement_batches": named}]
        self.epoch += 1
        return {
            "group_id": GROUP,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch - 1,
            "is_renew_ack": any(RENEW in types for _, _, types in batches),
            "topics": [{"topic_id": topic_id, "partitions": partitions}],
        }

    def close(self) -> None:
        self.client.close()


def never_satisfied(server: Server, result: Result) -> None:
    """Sessions of 2,000 partitions each wait for more bytes than there will be, while records come in."""
    producer = Peer(server)
    topic_id, count = producer.topic_id(WIDE), TOPICS[WIDE]
    producer.begin(topic_id, count)
    peers = [Peer(server, f"peer-{number}") for number in range(SESSIONS)]
    for peer in peers:
        fetching = peer.fetching(topic_id, count, max_wait_ms=int(PATIENCE_S) * 1_000, min_bytes=NEVER_ENOUGH)
        peer.client.socket.sendall(Request(SHARE_FETCH, VERSIONS[SHARE_FETCH], fetching).encode())
    for number in range(APPENDS):
        producer.append(WIDE, number % count, 1)
    result.count("sessions", len(peers))
    result.count("appends", APPENDS)
    for peer in (*peers, producer):
        peer.close()


def renewed_without_end(server: Server, result: Result) -> None:
    """A member renews the locks of 500 records one by one, repeatedly, and releases them at last."""
    peer = Peer(server)
    topic_id = peer.topic_id(NARROW)
    peer.begin(topic_id, 1)
    peer.append(NARROW, 0, RECORDS)
    peer.ask(SHARE_FETCH, peer.fetching(topic_id, 1, max_wait_ms=PATIENCE_MS))
    for _ in range(RENEWALS):
        peer.ask(SHARE_ACKNOWLEDGE, peer.acknowledging(topic_id, (0, RECORDS - 1, [RENEW] * RECORDS)))
    answer = peer.ask(SHARE_ACKNOWLEDGE, peer.acknowledging(topic_id, (0, RECORDS - 1, [RELEASE])))
    result.count("locks renewed", RENEWALS * RECORDS)
    if answer["responses"][0]["partitions"][0]["error_code"] != 0:
        result.fault(f"the last acknowledgement is answered {answer}")
    peer.close()


def acknowledged_at_length(server: Server, result: Result) -> None:
    """Acknowledgements of a record by the hundred thousand, and one with a million types."""
    peer = Peer(server)
    topic_id = peer.topic_id(NARROW)
    peer.begin(topic_id, 1)
    peer.append(NARROW, 0, RECORDS)
    peer.ask(SHARE_FETCH, peer.fetching(topic_id, 1, max_wait_ms=PATIENCE_MS))
    for batches in (
        [(5, 5, [RENEW])] * 100_000,
        [(number, number, [RENEW]) for number in range(RECORDS)] * 30,
        [(0, 999_999, [ACCEPT] * 1_000_000)],
        [(0, 2**63 - 1, [ACCEPT])],
    ):
        request = Request(SHARE_ACKNOWLEDGE, 2, peer.acknowledging(topic_id, *batches)).encode()[4:]
        answered, is_whole = exchange(server, request, PATIENCE_S)  # on another connection, in the same session
        result.count("bytes asked", len(request))
        if is_whole is False:
            result.fault(f"no whole answer ({answered} bytes) to {len(batches)} acknowledgements")
    peer.close()


def states_of_others(server: Server, result: Result) -> None:
    """States are written that no leader writes: of records that there will never be, in states that there aren't."""
    peer = Peer(server)
    topic_id = peer.topic_id(NARROW)
    peer.append(NARROW, 0, RECORDS)
    for number, state in enumerate(
        [(0, 2**62, 0, 1), (2**62, 2**63 - 1, 0, 32_767), (0, 9, 77, 1), (0, 2**63 - 1, 1, -1)]
    ):
        peer.begin(topic_id, 1)
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        partition = {
            "partition": 0,
            "state_epoch": 0,
            "leader_epoch": 0,
            "start_offset": 0,
            "delivery_complete_count": 0,
            "state_batches": [dict(zip(names, state, strict=True))],
        }
        peer.ask(WRITE, {"group_id": GROUP, "topics": [{"topic_id": topic_id, "partitions": [partition]}]})
        reader = Peer(server, f"reader-{number}")
        for most in (1, 100, 2**31 - 1):
            reader.ask(SHARE_FETCH, reader.fetching(topic_id, 1, max_records=most, share_acquire_mode=1))
        reader.close()
        time.sleep(0.1)  # its session ends with the connection, and what is known of the partition with that
    result.count("states", 4)
    peer.close()


def given_up_at_length(server: Server, result: Result) -> None:
    """Members give up records of batches that are millions, or one of many bytes, or can't be read."""
    peer = Peer(server)
    settings = {"topic.name": DEAD, "copy.record.enable": "true"}
    configs = [
        {"name": f"errors.deadletterqueue.{name}", "config_operation": 0, "value": value}
        for name, value in settings.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": GROUP, "configs": configs}
    peer.ask(ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
    topic_id, count = peer.topic_id(WIDE), max(BLOWN_UP) + 1
    peer.begin(topic_id, count)
    for index, make in BLOWN_UP.items():
        peer.append(WIDE, index, 1, make())
    for _ in range(GIVEN_UP):
        answer = peer.ask(
            SHARE_FETCH, peer.fetching(topic_id, count, max_records=1, batch_size=1, share_acquire_mode=1)
        )
        for partition in answer["responses"][0]["partitions"]:
            for each in partition["acquired_records"]:
                first, index = each["first_offset"], partition["partition_index"]
                rejection = peer.acknowledging(topic_id, (first, first, [REJECT]), index=index)
                (told,) = peer.ask(SHARE_ACKNOWLEDGE, rejection)["responses"][0]["partitions"]
                result.count("records given up", int(not told["error_code"]))
    peer.close()


SHARING = [
    Attack(name, act, SETTINGS)
    for name, act in {
        "sessions that are never satisfied": never_satisfied,
        "locks that are renewed without end": renewed_without_end,
        "acknowledgements by the hundred thousand": acknowledged_at_length,
        "states that nobody can have written": states_of_others,
        "records given up that are much": given_up_at_length,
    }.items()
]
