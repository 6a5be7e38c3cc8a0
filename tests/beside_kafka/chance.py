"""Random histories: what members of both protocols, administrators and the log itself may do to one or two groups."""

from __future__ import annotations

import random
from typing import Any

from attrs import define

from groupcoord.consumer_protocol import Subscription, encode_subscription
from tests.beside_kafka.ids import JavaRandom
from tests.beside_kafka.oracle import Oracle, Recording

TOPICS = {"t4": 4, "u2": 2, "v3": 3}
REGEXES = ("t.*", "[tu]\\d", ".*", "nomatch")
REFUSALS = ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR", "MESSAGE_TOO_LARGE")
STEPS = 60


@define(eq=False)
class Client:
    """A member, as it sees itself; time-outs are its own, so that no two timers fire at the same moment."""

    number: int
    group_id: str
    is_classic: bool
    instance_id: str | None
    member_id: str = ""
    epoch: int = 0

    @property
    def rebalance_ms(self) -> int:
        """How long it may take to give partitions back, or to join again."""
        return 4_000 + 17 * self.number

    @property
    def session_ms(self) -> int:
        """How long a classic member may be silent."""
        return 6_000 + 31 * self.number


class Chance:
    """Makes one history.

    Args:
        oracle: Kafka's own classes.
        seed: decides everything.
    """

    def __init__(self, oracle: Oracle, seed: int) -> None:
        self._random = draw = random.Random(seed)
        config = {
            "group.initial.rebalance.delay.ms": draw.choice([0, 313]),
            "group.consumer.assignment.interval.ms": draw.choice([0, 0, 1_000]),
            "group.consumer.assignor.offload.enable": "false",
            "group.consumer.migration.policy": draw.choice(["bidirectional", "upgrade", "downgrade", "disabled"]),
            "group.consumer.session.timeout.ms": 45_000,
            "offsets.retention.minutes": 1,
            "offsets.retention.check.interval.ms": 7_013,
        }
        self.recording = Recording(
            oracle, f"chance_{seed}", config={k: str(v) for k, v in config.items()}, topics=TOPICS, seed=seed
        )
        self._ids = JavaRandom(~seed)
        self._token = 0
        self._made = 0
        groups = draw.choice([["g"], ["g", "h"]])
        self._clients = [
            Client(number, draw.choice(groups), draw.random() < 0.4, draw.choice([None, f"i{number}"]))
            for number in range(draw.randint(2, 5))
        ]
        self._acts = {
            self._live: 30,
            self._wait: 12,
            self._commit: 5,
            self._commit_in_transaction: 3,
            self._leave: 3,
            self._look: 4,
            self._change_topics: 2,
            self._refuse: 2,
            self._reload: 1,
        }

    def run(self) -> dict[str, Any]:
        """Make the history."""
        while len(self.recording.history["steps"]) < STEPS:
            (act,) = self._random.choices(list(self._acts), list(self._acts.values()))
            act(self._random.choice(self._clients))
        return self.recording.history

    def _ask(self, api: str, version: int, body: dict[str, Any], client: Client | None = None) -> dict[str, Any] | None:
        """Send a request; return its answer unless it waits. Whoever is answered later learns it then."""
        self._token += 1
        client_id = "admin" if client is None else f"c{client.number}"
        command = {"do": "request", "api": api, "version": version, "body": body}
        events = self.recording.do({**command, "client_id": client_id, "token": self._token})
        return next((event["body"] for event in events if event.get("reply") == self._token), None)

    # ------------------------------------------------------------ members

    def _live(self, client: Client) -> None:
        if client.is_classic:
            self._join_classic(client)
        else:
            self._beat(client)

    def _beat(self, client: Client) -> None:
        body: dict[str, Any] = {"group_id": client.group_id, "member_epoch": client.epoch, "topic_partitions": None}
        if client.epoch == 0:
            client.member_id = client.member_id or self._ids.kafka_uuid()
            names = self._random.sample(sorted(TOPICS), self._random.randint(1, 3))
            body |= {
                "rebalance_timeout": client.rebalance_ms,
                "topic_partitions": [],
                "instance_id": client.instance_id,
            }
            body |= {"subscribed_topic_names": names, "subscribed_topic_regex": self._random.choice([None, *REGEXES])}
        elif self._random.random() < 0.5:
            body["topic_partitions"] = []
        answer = self._ask("ConsumerGroupHeartbeat", 1, {**body, "member_id": client.member_id}, client)
        if answer is not None:
            client.epoch = answer["memberEpoch"]

    def _join_classic(self, client: Client) -> None:
        if client.epoch > 0 and self._random.random() < 0.7:
            body = {"group_id": client.group_id, "generation_id": client.epoch, "member_id": client.member_id}
            body |= {"group_instance_id": client.instance_id, "protocol_type": None, "protocol_name": None}
            body["assignments"] = [{"member_id": client.member_id, "assignment": {"hex": ""}}]
            answer = self._ask("SyncGroup", 5, body, client)
        else:
            metadata = encode_subscription(Subscription(tuple(self._random.sample(sorted(TOPICS), 1))))
            protocols = [{"name": "range", "metadata": {"hex": metadata.hex()}}]
            body = {"group_id": client.group_id, "member_id": client.member_id, "protocol_type": "consumer"}
            body |= {"group_instance_id": client.instance_id, "protocols": protocols}
            body |= {"session_timeout": client.session_ms, "rebalance_timeout": client.rebalance_ms}
            answer = self._ask("JoinGroup", 7, body, client)
            if answer is not None:
                client.member_id, client.epoch = answer["memberId"] or "", answer["generationId"]
        if answer is not None and answer["errorCode"] not in (0, 27, 79):  # NONE, REBALANCE_IN_PROGRESS, an id first
            client.member_id, client.epoch = "", 0

    def _leave(self, client: Client) -> None:
        if client.is_classic:
            members = [{"member_id": client.member_id, "group_instance_id": client.instance_id}]
            self._ask("LeaveGroup", 4, {"group_id": client.group_id, "members": members}, client)
            client.member_id = ""
        elif client.member_id:
            epoch = -2 if client.instance_id and self._random.random() < 0.5 else -1
            body = {"group_id": client.group_id, "member_id": client.member_id, "member_epoch": epoch}
            body |= {"instance_id": client.instance_id, "topic_partitions": None}
            self._ask("ConsumerGroupHeartbeat", 1, body, client)
        client.epoch = 0

    # ------------------------------------------------------------ offsets and administrators

    def _topics_to_commit(self) -> list[dict[str, Any]]:
        partitions = [
            {"partition_index": index, "committed_offset": self._token, "committed_leader_epoch": -1}
            for index in self._random.sample(range(2), self._random.randint(1, 2))
        ]
        for partition in partitions:
            partition["committed_metadata"] = self._random.choice(["", "m", "x" * 5_000])
        return [{"name": self._random.choice(sorted(TOPICS)), "partitions": partitions}]

    def _commit(self, client: Client) -> None:
        body = {"group_id": client.group_id, "group_instance_id": None, "topics": self._topics_to_commit()}
        identity = self._random.choice([(client.member_id, client.epoch), ("", -1)])
        body |= {"member_id": identity[0], "generation_id_or_member_epoch": identity[1]}
        self._ask("OffsetCommit", 9, body, client)

    def _commit_in_transaction(self, client: Client) -> None:
        producer = {"producer_id": 1_000 + client.number, "producer_epoch": 0}
        body = {
            "group_id": client.group_id,
            "transactional_id": f"t{client.number}",
            "topics": self._topics_to_commit(),
        }
        body |= {**producer, "generation_id": -1, "member_id": "", "group_instance_id": None}
        self._ask("TxnOffsetCommit", 3, body, client)
        if self._random.random() < 0.6:
            self._token += 1
            end = {"group": client.group_id, "commit": self._random.random() < 0.5, **producer, "token": self._token}
            self.recording.do({"do": "request", "api": "CompleteTransaction", **end})

    def _look(self, client: Client) -> None:
        groups = [client.group_id]
        fetch = {"group_id": client.group_id, "topics": None, "member_id": None, "member_epoch": -1}
        apis: list[tuple[str, int, dict[str, Any]]] = [
            ("ConsumerGroupDescribe", 1, {"group_ids": groups, "include_authorized_operations": False}),
            ("DescribeGroups", 6, {"groups": groups, "include_authorized_operations": False}),
            ("ListGroups", 5, {"states_filter": [], "types_filter": []}),
            ("OffsetFetch", 9, {"groups": [fetch], "require_stable": False}),
            ("DeleteGroups", 2, {"groups_names": groups}),
        ]
        self._ask(*self._random.choice(apis))

    # ------------------------------------------------------------ the world around

    def _wait(self, client: Client) -> None:
        timers = sorted(at_ms - self.recording.now_ms for at_ms in self.recording.timers.values())
        near = [left_ms + self._random.choice([-1, 0, 1]) for left_ms in timers[:3]]
        self.recording.do({"do": "advance", "ms": max(1, self._random.choice([self._random.randint(1, 2_000), *near]))})

    def _change_topics(self, client: Client) -> None:
        change: dict[str, Any] = {"create": {}, "delete": [], "grow": {}}
        if self._made and self._random.random() < 0.5:
            name = f"x{self._made}"
            change["delete"], self._made = [name], 0 if self._made == 1 else self._made
            change["delete"] = [name] if name in self.recording.topic_ids else []
        else:
            self._made += 1
            change["create"] = {f"x{self._made}": self._random.randint(1, 3)}
        self.recording.do({"do": "topics", **change})

    def _refuse(self, client: Client) -> None:
        self.recording.do({"do": "log", "refuse": self._random.randint(1, 2), "error": self._random.choice(REFUSALS)})

    def _reload(self, client: Client) -> None:
        if self._random.random() < 0.5:
            self.recording.do({"do": "reload"})
            return
        self.recording.do({"do": "unload", "partition": 0})
        self._live(client)
        self.recording.do({"do": "load", "partition": 0, "hold": True})
        self._live(client)
        self.recording.do({"do": "loaded"})
        self.recording.do({"do": "load", "partition": 0, "hold": False})
