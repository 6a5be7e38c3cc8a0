"""A broker with a topic and a share group that reads it, without sockets and without the group's own protocol."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.configs.definitions import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import encode_batch
from tests.broker.driving import KioClient

START_MS = 1_700_000_000_000
PRODUCE, SHARE_FETCH, SHARE_ACKNOWLEDGE, INITIALIZE, WRITE = 0, 78, 79, 83, 85
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class ShareClient(KioClient):
    """Connection of a member of the group."""

    def __init__(self, world: SharingWorld, member_id: str) -> None:
        super().__init__(world.broker.connect("/127.0.0.1"))
        self.world = world
        self.member_id = member_id
        self.epoch = 0

    def receive(self) -> Any:
        self.world.broker.handle_waiting()
        return super().receive()

    def fetch(self, max_wait_ms: int = 0, acknowledged: Any = (), **changes: Any) -> Any:
        """Ask for records; return those of the partition as (first, last, count), or what else is answered."""
        self.send_fetch(max_wait_ms, acknowledged, **changes)
        return self.fetched()

    def send_fetch(self, max_wait_ms: int = 0, acknowledged: Any = (), **changes: Any) -> None:
        """Ask for records, and don't wait for the answer."""
        batches = [{"first_offset": a, "last_offset": z, "acknowledge_types": list(t)} for a, z, t in acknowledged]
        partitions = [{"partition_index": self.world.index, "acknowledgement_batches": batches}]
        topics = [{"topic_id": self.world.topic_id, "partitions": partitions}]
        body = {
            "group_id": "g",
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": 2**20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": topics if self.epoch == 0 or batches else [],
            "forgotten_topics_data": [],
            **changes,
        }
        self.send(SHARE_FETCH, 2, body)
        self.epoch += 1

    def fetched(self) -> Any:
        """Return what the fetch that was sent last has brought; None: it waits."""
        response = self.receive()
        if response is None:
            return None
        if response["error_code"] != ErrorCode.NONE:
            return ErrorCode(response["error_code"])
        for topic in response["responses"]:
            for partition in topic["partitions"]:
                for error_code in (partition["error_code"], partition["acknowledge_error_code"]):
                    if error_code != ErrorCode.NONE:
                        return ErrorCode(error_code)
                return [tuple(records.values()) for records in partition["acquired_records"]]
        return []

    def acknowledge(self, *acknowledged: Any, **changes: Any) -> ErrorCode:
        """Acknowledge records; return the error of the partition, or of the whole request."""
        self.send_acknowledgement(*acknowledged, **changes)
        return self.acknowledged()

    def acknowledged(self) -> ErrorCode:
        """Return what became of records: the error of the partition, or of the whole."""
        response = self.receive()
        for topic in response["responses"]:
            return ErrorCode(topic["partitions"][0]["error_code"])
        return ErrorCode(response["error_code"])

    def send_acknowledgement(self, *acknowledged: Any, **changes: Any) -> None:
        """Acknowledge records without waiting for the response."""
        batches = [{"first_offset": a, "last_offset": z, "acknowledge_types": list(t)} for a, z, t in acknowledged]
        partitions = [{"partition_index": self.world.index, "acknowledgement_batches": batches}]
        body = {
            "group_id": "g",
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": [{"topic_id": self.world.topic_id, "partitions": partitions}] if batches else [],
            **changes,
        }
        self.epoch += 1
        self.send(SHARE_ACKNOWLEDGE, 2, body)

    def close(self) -> None:
        """The client is gone."""
        self.connection.close()


class SharingWorld:
    """A broker with the topic ``jobs``, and the share group ``g``.

    Args:
        group: the group's own settings.
        index: the partition of the topic that the group reads, its last.
        settings: those of the broker.
    """

    def __init__(self, group: dict[str, str] | None = None, index: int = 0, **settings: Any) -> None:
        authorize = settings.pop("authorize", None)
        bounds = {"group_share_min_record_lock_duration_ms": 1_000}
        self.config = Config(share_coordinator_state_topic_num_partitions=2, **bounds, **settings)
        self.clock = ManualClock(START_MS)
        self.topics = TopicRegistry()
        self.index = index
        with self.topics.edit() as edit:
            self.topic_id: UUID = edit.create("jobs", index + 1).topic_id
        self.group_configs = GroupConfigs(self.config)
        self.group_configs.replace({"g": {"share.auto.offset.reset": "earliest", **(group or {})}})
        self.data = TopicData(self.config, self.clock, self.topics)
        self._authorize = authorize
        self.broker = self._start()
        self.initialize()

    def _start(self) -> Broker:
        return make_broker(
            config=self.config,
            clock=self.clock,
            log_store=MemoryLogStore(),
            topics=self.topics,
            data=self.data,
            group_configs=self.group_configs,
            authorize=self._authorize,
        )

    def restart(self) -> None:
        """Kill the broker, and start another one on the same logs."""
        self.broker = self._start()

    def client(self, member_id: str = "ann") -> ShareClient:
        """Return a new connection of a member."""
        return ShareClient(self, member_id)

    def initialize(self, state_epoch: int = 1, start_offset: int = -1, topic_id: UUID | None = None) -> None:
        """Initialize the group's state, perhaps again."""
        partition = {"partition": self.index, "state_epoch": state_epoch, "start_offset": start_offset}
        topics = [{"topic_id": topic_id or self.topic_id, "partitions": [partition]}]
        self.client().ask(INITIALIZE, 0, {"group_id": "g", "topics": topics})

    def produce(self, count: int, topic: str = "jobs") -> None:
        """Append a batch of a number of records."""
        log = self.log(topic)
        now_ms = self.clock.now_ms()
        batch = encode_batch(log.end_offset, [(b"k", b"v%d" % number, now_ms) for number in range(count)])
        log.append_encoded(batch, count, now_ms, self.data.settings_of(self.topics.get(topic)))

    def log(self, topic: str = "jobs", index: int | None = None) -> Any:
        """Return the log of the partition that the group reads, or of another."""
        return self.data.log(self.topics.get(topic), self.index if index is None else index)  # type: ignore[arg-type]

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.broker.tick()
        self.broker.handle_waiting()
