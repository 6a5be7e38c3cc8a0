"""Clients of the streams protocol (KIP-1071), and the topologies that they bring."""

from __future__ import annotations

import random
from typing import Any

from tests.beside_kafka.clients import FENCED_MEMBER_EPOCH, NOBODY, NONE, Body, RandomClient

FORGETTING = (FENCED_MEMBER_EPOCH, 25, 69, 82)
UNRELEASED_INSTANCE_ID = 111
KINDS = ("active_tasks", "standby_tasks", "warmup_tasks")
ANSWERED = {"active_tasks": "activeTasks", "standby_tasks": "standbyTasks", "warmup_tasks": "warmupTasks"}
SOURCES = ("t4", "u2", "v3", "x1")
MALFORMED: tuple[Body, ...] = (
    {"rack_id": " "},
    {"instance_id": ""},
    {"topology": None},
    {"active_tasks": None},
    {"warmup_tasks": [{"subtopology_id": "0", "partitions": [0]}]},
    {"client_tags": [{"key": "z", "value": "1"}, {"key": "z", "value": "2"}]},
)


def topic_info(draw: random.Random, name: str, partitions: int = 0) -> Body:
    configs = draw.choice([[], [{"key": "cleanup.policy", "value": "compact"}]])
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": configs}


def draw_topology(draw: random.Random, epoch: int = 0) -> Body:
    """Return a topology of one to three parts, which reads some topics and may keep state and repartition."""
    first = _part("0", draw.sample(SOURCES[: draw.choice([3, 3, 3, 4])], draw.choice([1, 1, 2])))
    parts = [first]
    if draw.random() < 0.4:
        first["state_changelog_topics"] = [topic_info(draw, "cl0")]
    if draw.random() < 0.4:
        first["repartition_sink_topics"] = ["rp"]
        second = _part("1", draw.sample(SOURCES[:3], draw.choice([0, 0, 1])))
        second["repartition_source_topics"] = [topic_info(draw, "rp", draw.choice([0, 0, 0, 3]))]
        if draw.random() < 0.5:
            second["state_changelog_topics"] = [topic_info(draw, "cl1")]
        if second["source_topics"] and draw.random() < 0.5:
            second["copartition_groups"] = [
                {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": [0]}
            ]
        parts.append(second)
    if draw.random() < 0.3:
        parts.append(_part("sub-2", draw.sample(SOURCES[:3], 1)))
    return {"epoch": epoch, "subtopologies": draw.sample(parts, len(parts))}


def _part(name: str, sources: list[str]) -> Body:
    lists = ("source_topic_regex", "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics")
    return {
        "subtopology_id": name,
        "source_topics": sources,
        **{field: [] for field in lists},
        "copartition_groups": [],
    }


class StreamsClient(RandomClient):
    """A thread of an application of Kafka Streams."""

    def __init__(self, story: Any, number: int, group_id: str, instance_id: str | None, topology: Body) -> None:
        super().__init__(story, number, group_id, instance_id)
        draw = story.draw
        self._topology = topology if draw.random() < 0.95 else draw_topology(draw, draw.choice([0, 1]))
        self._process_id = draw.choice(["p0", "p1", f"q{number}", f"q{number}"])
        self._rack_id = draw.choice([None, None, "r1"])
        self._tags = draw.choice([[], [], [{"key": "zone", "value": "a"}]])
        self._endpoint = draw.choice([None, None, {"host": f"h{number}", "port": 8_000 + number}])
        self._version = draw.choice([0, 1])
        self._endpoint_epoch = 0
        self._begin_life()

    @property
    def is_at_home(self) -> bool:
        return self.epoch > 0

    def _begin_life(self) -> None:
        self.member_id = self.story.new_id()
        self._lose_place()

    def _lose_place(self) -> None:
        self.epoch = 0
        self._owned: dict[str, list[Body]] = {kind: [] for kind in KINDS}
        self._told: dict[str, list[Body]] | None = None

    def hear(self, api: str, asked: Body, answer: Body) -> None:
        if api != "StreamsGroupHeartbeat":
            return
        error_code = answer["errorCode"]
        if error_code == NONE and asked["member_epoch"] >= 0:
            self.epoch, self._endpoint_epoch = answer["memberEpoch"], answer["endpointInformationEpoch"]
            if answer["activeTasks"] is not None:
                self._told = {
                    kind: [
                        {"subtopology_id": tasks["subtopologyId"], "partitions": tasks["partitions"]}
                        for tasks in answer[ANSWERED[kind]]
                    ]
                    for kind in KINDS
                }
        elif error_code in FORGETTING:
            self._lose_place()
        elif error_code == UNRELEASED_INSTANCE_ID and self.story.draw.random() < 0.3:
            self._beat(member_epoch=-2, instance_id=self.instance_id)

    # ------------------------------------------------------------ heartbeats

    def _beat(self, **fields: Any) -> None:
        body: Body = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": self._endpoint_epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "topology": None,
            **dict.fromkeys(KINDS),
            "process_id": None,
            "user_endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            "shutdown_application": False,
            **fields,
        }
        self.story.ask("StreamsGroupHeartbeat", self._version, body, self)

    def _join(self, **fields: Any) -> None:
        self._lose_place()
        self._beat(
            **{
                "instance_id": self.instance_id,
                "rack_id": self._rack_id,
                "rebalance_timeout": self.rebalance_timeout_ms,
                "topology": self._topology,
                **{kind: [] for kind in KINDS},
                "process_id": self._process_id,
                "user_endpoint": self._endpoint,
                "client_tags": self._tags,
                **fields,
            }
        )

    def live(self) -> None:
        draw = self.story.draw
        if not self.is_at_home:
            self._join()
            return
        if self._told is not None and draw.random() < 0.8:
            self._owned, self._told = self._told, None
            self._beat(**self._owned, **self._identity())
            return
        weights = {"beat": 7, "say all": 2, "keep": 0.7, "change": 1, "offsets": 1, "leave": 0.8, "commit": 3}
        weights |= {"transact": 1, "fetch": 1, "restart": 1.2 if self.instance_id else 0.3, "rejoin": 0.3}
        getattr(self, "_" + self._choose({**weights, "shut down": 0.1}).replace(" ", "_"))()

    def _identity(self) -> Body:
        return {"instance_id": self.instance_id} if self.story.draw.random() < 0.9 else {}

    def _say_all(self) -> None:
        self._beat(**self._owned, **self._identity())

    def _keep(self) -> None:
        """Give back only a part of what it should."""
        part = {kind: [{**ids, "partitions": ids["partitions"][:1]} for ids in self._owned[kind]] for kind in KINDS}
        self._beat(**part, **self._identity())

    def _change(self) -> None:
        draw, number = self.story.draw, self.number
        news: list[Body] = [
            {"process_id": draw.choice(["p0", "p1", f"q{number}"])},
            {"client_tags": draw.choice([[], [{"key": "zone", "value": "b"}, {"key": "az", "value": "1"}]])},
            {"rack_id": draw.choice(["r1", "r2"])},
            {"user_endpoint": {"host": f"h{number}", "port": draw.choice([8_000, 9_000])}},
            {"rebalance_timeout": self.rebalance_timeout_ms},
        ]
        self._beat(**{**draw.choice(news), **draw.choice(news)}, **self._identity())

    def _offsets(self) -> None:
        draw = self.story.draw
        fields: Body = {}
        for name in draw.choice([("task_offsets",), ("task_end_offsets",), ("task_offsets", "task_end_offsets")]):
            tasks = [
                (ids["subtopology_id"], partition)
                for kind in KINDS
                for ids in self._owned[kind]
                for partition in ids["partitions"]
            ]
            tasks = sorted({*tasks, ("0", draw.randrange(4))})
            fields[name] = [
                {"subtopology_id": subtopology_id, "partition": partition, "offset": draw.choice([0, 5, 100, 7_000])}
                for subtopology_id, partition in tasks
            ]
            if draw.random() < 0.05:
                fields[name] *= 2
        self._beat(**fields, **self._identity())

    def _leave(self) -> None:
        draw = self.story.draw
        epoch = -2 if self.instance_id and draw.random() < 0.5 else -1
        self._beat(member_epoch=epoch, instance_id=self.instance_id, shutdown_application=draw.random() < 0.03)
        self._lose_place()
        if draw.random() < 0.5:
            self._begin_life()

    def _restart(self) -> None:
        if self.instance_id and self.story.draw.random() < 0.6:
            self._beat(member_epoch=-2, instance_id=self.instance_id)
        if self.story.draw.random() < 0.8:
            self._begin_life()
        if self.story.draw.random() < 0.2:
            self._process_id = f"q{self.number}b"
        self._join()

    def _rejoin(self) -> None:
        self._join()

    def _shut_down(self) -> None:
        self._beat(shutdown_application=True)

    def _commit(self) -> None:
        self.story.commit(self, member_id=self.member_id, generation_id=self.epoch)

    def _transact(self) -> None:
        self.story.commit_in_transaction(self, member_id=self.member_id, generation_id=self.epoch)

    def _fetch(self) -> None:
        self.story.fetch(self, self.member_id, max(0, self.epoch + self.story.draw.choice([0, 0, 0, 1, -1])))

    def misbehave(self) -> None:
        draw = self.story.draw
        strange = [
            lambda: self._beat(
                member_epoch=max(0, self.epoch + draw.choice([-1, -1, 1, 5])), **draw.choice([{}, self._owned])
            ),
            lambda: self._beat(member_id=NOBODY, member_epoch=draw.choice([1, -1, -2])),
            lambda: self._join(rebalance_timeout=draw.choice([-1, 1])),
            lambda: self._join(**draw.choice(MALFORMED)),
            lambda: self._join(instance_id=f"i{draw.randrange(4)}", member_id=self.story.new_id()),
            lambda: self._beat(instance_id=f"i{draw.randrange(4)}", member_epoch=draw.choice([1, self.epoch, -1])),
            lambda: self._join(topology=draw_topology(draw, draw.choice([0, 1, 2, -1]))),
            lambda: self._beat(member_epoch=draw.choice([-3, -2]), instance_id=draw.choice([self.instance_id, "i0"])),
            lambda: self._beat(
                **{**self._owned, "active_tasks": [{"subtopology_id": draw.choice(["0", "9"]), "partitions": [0, 3]}]}
            ),
            lambda: self._beat(standby_tasks=[]),
            lambda: self._join(group_id=draw.choice(["", "other"])),
            self._join,
            lambda: self.story.commit(
                self, member_id=draw.choice([self.member_id, NOBODY]), generation_id=self.epoch + draw.choice([-1, 1])
            ),
        ]
        self._choose_one(strange)
