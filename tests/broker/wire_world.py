"""A broker on a clock turned by hand, asked in real bytes: kio writes the requests and reads the answers.

Ids are not random, so that tests can name them: the three members of group ``g`` are the leader ``client-1``, the
follower ``client-2`` and the static member ``i-3`` with the instance id ``i``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.parts import anonymous
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.router.authorization import Authorize
from tests.broker.driving import KioClient

LEADER, FOLLOWER, STATIC = "client-1", "client-2", "i-3"
TOPIC_ID, U_ID, OTHER_ID, NO_ID = UUID(int=1), UUID(int=2), UUID(int=99), UUID(int=0)
PARTITION_COUNT = 3
RANGE = ({"name": "range", "metadata": bytes.fromhex("0000 00000001 0001 74 ffffffff")},)

Body = dict[str, Any]

JOIN: Body = {
    "group_id": "g",
    "session_timeout": 30_000,
    "rebalance_timeout": 60_000,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": RANGE,
    "reason": None,
}
SYNC: Body = {
    "group_id": "g",
    "generation_id": 1,
    "member_id": LEADER,
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "assignments": (),
}
HEARTBEAT: Body = {"group_id": "g", "generation_id": 1, "member_id": LEADER, "group_instance_id": None}


def offset(partition_index: int, committed_offset: int = 7, metadata: str = "") -> Body:
    return {
        "partition_index": partition_index,
        "committed_offset": committed_offset,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }


COMMIT: Body = {
    "group_id": "g",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "retention_time": -1,
    "topics": ({"name": "t", "topic_id": TOPIC_ID, "partitions": (offset(0),)},),
}


class WireWorld:
    """Broker with a new connection for each request. ``authorize`` and ``principal_of`` are the broker's; ``config``
    has its settings.
    """

    def __init__(
        self,
        *,
        authorize: Authorize | None = None,
        principal_of: Callable[[str], object] = anonymous,
        **config: int,
    ) -> None:
        self.clock = ManualClock(1_000_000)
        settings = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 5} | config
        topics = TopicRegistry(new_id=iter(UUID(int=number) for number in range(1, 20)).__next__)
        with topics.edit() as edit:
            edit.create("t", PARTITION_COUNT)
            edit.create("u", 1)
        self.broker = make_broker(
            config=Config(**settings),
            clock=self.clock,
            log_store=MemoryLogStore(),
            topics=topics,
            new_member_id=self._new_member_id,
            authorize=authorize,
            principal_of=principal_of,
        )
        self._ids: Counter[str] = Counter()

    def _new_member_id(self, prefix: str) -> str:
        self._ids["all"] += 1
        return f"{prefix}-{self._ids['all']}"

    def send(self, api_key: int, version: int, body: Body) -> KioClient:
        """Send a request on a new connection; return its client."""
        client = KioClient(self.broker.connect("/127.0.0.1"))
        client.send(api_key, version, body)
        return client

    def ask(self, api_key: int, version: int, body: Body) -> Body:
        """Return the answer, without its throttle time, of a request that is answered at once."""
        answer: Body | None = self.send(api_key, version, body).receive()
        assert answer is not None, "it is not answered at once"
        return answer

    def tick(self, milliseconds: int = 0) -> None:
        self.clock.advance(milliseconds)
        self.broker.tick()

    def start_producer(self, transactional_id: str = "x") -> Body:
        body = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
        answer = self.ask(22, 4, body | {"producer_id": -1, "producer_epoch": -1})
        assert answer.pop("error_code") == 0
        return {"transactional_id": transactional_id} | answer

    # ------------------------------------------------------------ states

    def reach(self, state: str) -> None:
        """Bring group ``g``, or the coordinator, into a state."""
        {
            "absent": lambda: None,
            "stable": self._sync_all,
            "loading": lambda: self._reload(finish=False),
            "not owned": self._unload,
            "closed": self.broker.coordinator.close,
        }[state]()

    def _join_all(self) -> None:
        joining = []
        for member_id in (LEADER, FOLLOWER):
            assert self.ask(11, 9, JOIN)["member_id"] == member_id
            joining.append(self.send(11, 9, JOIN | {"member_id": member_id}))
        joining.append(self.send(11, 9, JOIN | {"group_instance_id": "i"}))
        self.tick()
        answers = [sent.receive() or {} for sent in joining]
        assert [answer["member_id"] for answer in answers] == [LEADER, FOLLOWER, STATIC]
        assert {(answer["error_code"], answer["generation_id"], answer["leader"]) for answer in answers} == {
            (0, 1, LEADER)
        }

    def _sync_all(self) -> None:
        self._join_all()
        for member_id in (LEADER, FOLLOWER, STATIC):
            assert self.ask(14, 5, SYNC | {"member_id": member_id})["error_code"] == 0

    def _unload(self) -> None:
        for partition in range(self.broker.config.offsets_topic_num_partitions):
            self.broker.coordinator.unload(partition)

    def _reload(self, *, finish: bool) -> None:
        self._unload()
        for partition in range(self.broker.config.offsets_topic_num_partitions):
            assert self.broker.coordinator.begin_load(partition, leader_epoch=1)
            assert not finish or self.broker.coordinator.continue_load(partition)
