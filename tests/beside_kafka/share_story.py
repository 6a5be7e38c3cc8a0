"""Random histories of share groups (KIP-932), with what can come between: other kinds, topics, loads, refusals."""

from __future__ import annotations

from typing import Any

from tests.beside_kafka.clients import NOBODY, Body, ClassicClient, ConsumerClient, RandomClient
from tests.beside_kafka.settings import OF_SHARE, OF_SHARE_GROUPS, drawn
from tests.beside_kafka.story import RandomStory

NONE, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH = 0, 25, 110
STATES = ("Stable", "Empty", "stable", "Dead")


class ShareClient(RandomClient):
    """A member of a share group."""

    def __init__(self, story: Any, number: int, group_id: str, instance_id: str | None) -> None:
        super().__init__(story, number, group_id, None)
        self._names = self._topics()
        self._begin_life()

    @property
    def is_at_home(self) -> bool:
        return self.epoch > 0

    def _begin_life(self) -> None:
        self.member_id, self.epoch = self.story.new_id(), 0

    def hear(self, api: str, asked: Body, answer: Body) -> None:
        if api != "ShareGroupHeartbeat":
            return
        if answer["errorCode"] == NONE and asked["member_epoch"] >= 0:
            self.epoch = answer["memberEpoch"]
        elif answer["errorCode"] in (UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH):
            self.epoch = 0

    def _beat(self, **fields: Any) -> None:
        body: Body = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rack_id": None,
            "subscribed_topic_names": None,
            **fields,
        }
        self.story.ask("ShareGroupHeartbeat", 1, body, self)

    def _join(self) -> None:
        self._beat(member_epoch=0, subscribed_topic_names=self._names, rack_id=self.story.draw.choice([None, "r1"]))

    def live(self) -> None:
        if not self.is_at_home:
            self._join()
            return
        weights = {"beat": 8, "say all": 1.5, "change": 1.5, "leave": 0.8, "restart": 0.4, "rack": 0.3}
        what = self._choose(weights)
        if what == "beat":
            self._beat()
        elif what == "say all":
            self._beat(subscribed_topic_names=self._names)
        elif what == "change":
            self._names = self._topics()
            self._beat(subscribed_topic_names=self._names)
        elif what == "leave":
            self._beat(member_epoch=-1)
            self.epoch = 0
            if self.story.draw.random() < 0.5:
                self._begin_life()
        elif what == "restart":
            self.epoch = 0
            self._join()
        else:
            self._beat(rack_id=self.story.draw.choice(["r1", "r2"]))

    def misbehave(self) -> None:
        draw = self.story.draw
        strange = [
            lambda: self._beat(member_epoch=max(0, self.epoch + draw.choice([-1, -1, 1, 5]))),
            lambda: self._beat(member_id=NOBODY, member_epoch=draw.choice([1, -1])),
            lambda: self._beat(member_epoch=0, subscribed_topic_names=draw.choice([None, []])),
            lambda: self._beat(member_epoch=draw.choice([-2, -5])),
            lambda: self._beat(member_id=draw.choice(["", " ", "x" * 37])),
            lambda: self._beat(rack_id=" "),
            lambda: self._beat(subscribed_topic_names=[]),
            lambda: self.story.commit(self, member_id=self.member_id, generation_id=self.epoch),
            lambda: self.story.commit_in_transaction(self, member_id=self.member_id, generation_id=self.epoch),
            lambda: self.story.fetch(self, self.member_id, self.epoch),
        ]
        self._choose_one(strange)


class ShareStory(RandomStory):
    """Generator of one history, mostly of members of share groups."""

    settings_of_groups = OF_SHARE_GROUPS

    def _draw_config(self) -> dict[str, str]:
        return super()._draw_config() | drawn(self.draw, OF_SHARE)

    def _draw_clients(self) -> list[RandomClient]:
        draw = self.draw
        clients: list[RandomClient] = []
        for number in range(draw.choice([2, 3, 3, 4, 6])):
            group_id = draw.choice(self._groups)
            if draw.random() < 0.05:
                clients.append(draw.choice([ClassicClient, ConsumerClient])(self, number, group_id, None))
            else:
                clients.append(ShareClient(self, number, group_id, None))
        return clients

    def _administrate(self) -> None:
        draw, group_id = self.draw, self.draw.choice(self._groups)
        acts = {super()._administrate: 5, lambda: self._alter(group_id): 1, lambda: self._forget(group_id): 1}
        draw.choices(list(acts), list(acts.values()))[0]()

    def _names(self) -> list[str]:
        names = [*sorted(self.topics), "missing"]
        return self.draw.sample(names, self.draw.choice([0, 1, 1, 2]))

    def _alter(self, group_id: str) -> None:
        topics = [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index, "start_offset": self.draw.choice([0, 5, -1])}
                    for index in self.draw.sample(range(5), self.draw.choice([1, 1, 2]))
                ],
            }
            for name in self._names()
        ]
        self.ask("AlterShareGroupOffsets", 0, {"group_id": group_id, "topics": topics})

    def _forget(self, group_id: str) -> None:
        topics = [{"topic_name": name} for name in self._names()]
        self.ask("DeleteShareGroupOffsets", 0, {"group_id": group_id, "topics": topics})

    def _looks(self, group_id: str) -> list[tuple[str, int, Body]]:
        draw = self.draw
        described = {"group_ids": self._groups, "include_authorized_operations": draw.random() < 0.2}
        states = draw.sample(STATES, draw.choice([0, 0, 2]))
        listed = {"states_filter": states, "types_filter": draw.sample(["Share", "classic"], draw.choice([0, 0, 1]))}
        return [
            ("ShareGroupDescribe", 1, described),
            ("ShareGroupDescribe", 1, described),
            ("ListGroups", 5, listed),
            *super()._looks(group_id),
        ]
