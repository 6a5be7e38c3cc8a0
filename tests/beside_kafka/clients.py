"""Clients of both protocols that mostly behave like real ones, and sometimes wrongly. A client sends requests through
its story and receives every response, also a late one. It trusts the responses.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from groupcoord.core.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

Body = dict[str, Any]

NONE, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID = 0, 25, 27, 79, 82
FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID = 110, 111
FORGETTING = (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID)

PROTOCOLS = ("range", "roundrobin", "cooperative-sticky", "zeta")
REGEXES = ("t.*", "[tux]\\d", ".*", "nomatch", "v3|u2", "x.*")
WRONG_REGEXES = ("[", "(", "a{2,1}", "")
MALFORMED: tuple[Body, ...] = ({"rack_id": " "}, {"instance_id": ""}, {"subscribed_topic_names": None})
NOBODY = "nobody"


class RandomClient(ABC):
    """A client of either protocol."""

    def __init__(self, story: Any, number: int, group_id: str, instance_id: str | None) -> None:
        self.story = story
        self.number = number
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = 0
        self.awaited: str | None = None
        self.rebalance_timeout_ms = story.draw.choice([400, 3_000, 8_000, 30_000]) + 17 * number
        self.session_timeout_ms = story.draw.choice([700, 3_000, 6_000, 10_000]) + 31 * number

    @property
    @abstractmethod
    def is_at_home(self) -> bool:
        """True if it believes to be in its group."""

    @abstractmethod
    def live(self) -> None:
        """Do what such a client does next."""

    @abstractmethod
    def misbehave(self) -> None:
        """Do what no client should."""

    @abstractmethod
    def hear(self, api: str, asked: Body, answer: Body) -> None:
        """Take the answer to a request."""

    def _topics(self) -> list[str]:
        draw, names = self.story.draw, sorted(self.story.topics)
        chosen = draw.sample(names, min(len(names), draw.choice([1, 1, 2, 3])))
        return chosen + (["missing"] if draw.random() < 0.1 else [])

    def _choose_one(self, acts: Sequence[Callable[[], None]]) -> None:
        self.story.draw.choice(acts)()

    def _choose(self, weights: dict[str, float]) -> str:
        return self.story.draw.choices(list(weights), list(weights.values()))[0]


class ConsumerClient(RandomClient):
    """A client of the consumer protocol (KIP-848)."""

    def __init__(self, story: Any, number: int, group_id: str, instance_id: str | None) -> None:
        super().__init__(story, number, group_id, instance_id)
        self._rack_id = story.draw.choice([None, None, "r1"])
        self._subscribe()
        self._begin_life()

    @property
    def is_at_home(self) -> bool:
        return self.epoch > 0

    def _begin_life(self) -> None:
        self.member_id = self.story.new_id() if self.story.draw.random() < 0.95 else ""
        self._lose_place()

    def _lose_place(self) -> None:
        self.epoch = 0
        self._owned: dict[str, list[int]] = {}
        self._target: dict[str, list[int]] = {}
        self._has_news = False

    def _subscribe(self) -> None:
        draw = self.story.draw
        self._names: list[str] | None = self._topics()
        self._regex: str | None = None
        if draw.random() < 0.3:
            self._regex = draw.choice(REGEXES)
            if draw.random() < 0.7:
                self._names = None
        self._assignor = draw.choice([None, None, "range", "uniform"])

    def hear(self, api: str, asked: Body, answer: Body) -> None:
        if api != "ConsumerGroupHeartbeat":
            return
        error_code = answer["errorCode"]
        if error_code == NONE and asked["member_epoch"] >= 0:
            self.member_id, self.epoch = answer["memberId"] or self.member_id, answer["memberEpoch"]
            if answer["assignment"] is not None:
                partitions = answer["assignment"]["topicPartitions"]
                self._target = {entry["topicId"]: entry["partitions"] for entry in partitions}
                self._has_news = True
        elif error_code in (FENCED_MEMBER_EPOCH, *FORGETTING):
            self._lose_place()
        elif error_code == UNRELEASED_INSTANCE_ID and self.story.draw.random() < 0.3:
            self._beat(member_epoch=-2, instance_id=self.instance_id)
        elif error_code not in (NONE, UNRELEASED_INSTANCE_ID) and self.story.draw.random() < 0.3:
            self._subscribe()

    # ------------------------------------------------------------ heartbeats

    def _beat(self, **fields: Any) -> None:
        body: Body = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **fields,
        }
        version = 0 if body["subscribed_topic_regex"] is None and self.story.draw.random() < 0.2 else 1
        if version == 0:
            del body["subscribed_topic_regex"]
        elif not body["member_id"]:
            body["member_id"] = self.member_id = self.story.new_id()
        self.story.ask("ConsumerGroupHeartbeat", version, body, self)

    def _everything(self) -> Body:
        return {
            "instance_id": self.instance_id,
            "rack_id": self._rack_id,
            "rebalance_timeout": self.rebalance_timeout_ms,
            "subscribed_topic_names": self._names,
            "subscribed_topic_regex": self._regex,
            "server_assignor": self._assignor,
            "topic_partitions": self._partitions(self._owned),
        }

    def _join(self, **fields: Any) -> None:
        owned = self._owned if self.story.draw.random() < 0.1 else {}
        self._beat(**{**self._everything(), "member_epoch": 0, "topic_partitions": self._partitions(owned), **fields})

    def _partitions(self, owned: dict[str, list[int]]) -> list[Body]:
        return [
            {"topic_id": long_id(topic_id), "partitions": list(indexes)} for topic_id, indexes in sorted(owned.items())
        ]

    def live(self) -> None:
        if not self.is_at_home:
            self._join()
            return
        if self._has_news and self.story.draw.random() < 0.8:
            self._has_news = False
            self._owned = dict(self._target)
            self._beat(topic_partitions=self._partitions(self._owned))
            return
        weights = {"beat": 7, "say all": 1.5, "keep": 0.7, "change": 1.5, "leave": 0.8, "commit": 3, "transact": 1.5}
        weights |= {"fetch": 1.5, "restart": 1.2 if self.instance_id else 0.3}
        what = self._choose(weights)
        if what == "beat":
            self._beat()
        elif what == "say all":
            self._beat(**self._everything())
        elif what == "keep":  # it gives back only a part of what it should
            part = {topic_id: indexes[: max(1, len(indexes) // 2)] for topic_id, indexes in self._owned.items()}
            self._beat(topic_partitions=self._partitions(part))
        elif what == "change":
            self._change()
        elif what == "leave":
            self._leave()
        elif what == "commit":
            self.story.commit(self, member_id=self.member_id, generation_id=self.epoch)
        elif what == "transact":
            self.story.commit_in_transaction(self, member_id=self.member_id, generation_id=self.epoch)
        elif what == "fetch":
            self.story.fetch(self, self.member_id, max(0, self.epoch + self.story.draw.choice([0, 0, 0, 1, -1])))
        else:
            self._restart()

    def _change(self) -> None:
        draw, had_regex = self.story.draw, self._regex is not None
        self._subscribe()
        fields: Body = {"subscribed_topic_names": self._names or []}
        if self._regex is not None or had_regex:
            fields["subscribed_topic_regex"] = self._regex or ""
        if draw.random() < 0.4:
            fields["server_assignor"] = self._assignor
        if draw.random() < 0.2:
            fields["rack_id"] = self._rack_id = draw.choice(["r1", "r2"])
            fields["rebalance_timeout"] = self.rebalance_timeout_ms
        self._beat(**fields)

    def _leave(self) -> None:
        epoch = -2 if self.instance_id and self.story.draw.random() < 0.5 else -1
        self._beat(member_epoch=epoch, instance_id=self.instance_id)
        self._lose_place()
        if self.story.draw.random() < 0.5:
            self._begin_life()

    def _restart(self) -> None:
        if self.instance_id and self.story.draw.random() < 0.6:
            self._beat(member_epoch=-2, instance_id=self.instance_id)
        if self.story.draw.random() < 0.8:
            self._begin_life()
        else:
            self._lose_place()
        self._join()

    def misbehave(self) -> None:
        draw = self.story.draw
        strange = [
            lambda: self._beat(
                member_epoch=max(0, self.epoch + draw.choice([-1, -1, 1, 5])),
                topic_partitions=draw.choice([None, self._partitions(self._owned)]),
            ),
            lambda: self._beat(member_id=NOBODY, member_epoch=draw.choice([1, -1, -2])),
            lambda: self._join(rebalance_timeout=draw.choice([-1, 1])),
            lambda: self._join(server_assignor=draw.choice(["nonsense", ""])),
            lambda: self._join(**draw.choice(MALFORMED)),
            lambda: self._join(subscribed_topic_names=None, subscribed_topic_regex=draw.choice(WRONG_REGEXES)),
            lambda: self._beat(subscribed_topic_regex=draw.choice(WRONG_REGEXES)),
            lambda: self._join(instance_id=f"i{draw.randrange(4)}", member_id=self.story.new_id()),
            lambda: self._beat(member_epoch=draw.choice([-3, -2]), instance_id=draw.choice([self.instance_id, "i0"])),
            lambda: self._beat(topic_partitions=[{"topic_id": self.story.topic_id("t4"), "partitions": [0, 1, 7]}]),
            lambda: self._join(group_id=draw.choice(["", "other"])),
            self._join,
            lambda: self.story.commit(
                self, member_id=draw.choice([self.member_id, NOBODY]), generation_id=self.epoch + draw.choice([-1, 1])
            ),
        ]
        self._choose_one(strange)


class ClassicClient(RandomClient):
    """A client of the classic protocol."""

    def __init__(self, story: Any, number: int, group_id: str, instance_id: str | None) -> None:
        super().__init__(story, number, group_id, instance_id)
        draw = story.draw
        versions = [9, 9, 8, 7, 6, 5] if instance_id else [9, 9, 7, 5, 4, 3, 2, 1, 0]
        self._join_version = draw.choice(versions)
        self._forget()
        self._subscribe()

    @property
    def is_at_home(self) -> bool:
        return self._phase == "stable"

    def _forget(self) -> None:
        self.member_id, self.epoch, self._phase = "", -1, "out"
        self._leads, self._members, self._protocol = False, list[str](), None
        self._owned: tuple[TopicPartition, ...] = ()

    def _subscribe(self) -> None:
        draw = self.story.draw
        self._names = self._topics()
        self._version = draw.randrange(4)
        self._offered = draw.sample(PROTOCOLS, draw.choice([0, 1, 2])) if draw.random() < 0.3 else []
        self._offered = [*dict.fromkeys([*self._offered, "range"])]
        draw.shuffle(self._offered)

    # ------------------------------------------------------------ answers

    def hear(self, api: str, asked: Body, answer: Body) -> None:
        if self.awaited == api:
            self.awaited = None
        if api == "JoinGroup":
            self._hear_join(answer)
        elif api == "SyncGroup":
            self._hear_sync(answer)
        elif api == "Heartbeat" and answer["errorCode"] != NONE:
            self._phase = "rejoin"
            if answer["errorCode"] in FORGETTING:
                self._forget()

    def _hear_join(self, answer: Body) -> None:
        error_code = answer["errorCode"]
        if error_code == NONE:
            self.member_id, self.epoch, self._phase = answer["memberId"], answer["generationId"], "joined"
            self._leads = answer["leader"] == self.member_id and not answer.get("skipAssignment", False)
            self._members = [member["memberId"] for member in answer["members"]]
            self._protocol = answer["protocolName"]
        elif error_code == MEMBER_ID_REQUIRED:
            self.member_id, self._phase = answer["memberId"], "rejoin"
        elif error_code in FORGETTING:
            self._forget()
        else:
            self._phase = "rejoin" if self.member_id else "out"
            if self.story.draw.random() < 0.3:
                self._subscribe()

    def _hear_sync(self, answer: Body) -> None:
        self._phase = "stable" if answer["errorCode"] == NONE else "rejoin"
        if answer["errorCode"] in FORGETTING:
            self._forget()
        elif answer["errorCode"] == NONE:
            try:
                self._owned = decode_assignment(base64.b64decode(answer["assignment"])).partitions
            except ConsumerProtocolError:
                self._owned = ()

    # ------------------------------------------------------------ requests

    def _identity(self) -> Body:
        return {
            "group_id": self.group_id,
            "generation_id": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    def _version_of(self, least: int, most: int, least_static: int) -> int:
        """Return a version of a request, mostly one that identifies its sender."""
        draw = self.story.draw
        if self.instance_id and draw.random() < 0.95:
            least = least_static
        return draw.choice([most, draw.randint(least, most)])

    def _join(self, **fields: Any) -> None:
        draw = self.story.draw
        owned = self._owned if self._version and draw.random() < 0.7 else ()
        metadata = encode_subscription(Subscription(tuple(self._names), None, owned, self.epoch), self._version)
        body: Body = {
            "group_id": self.group_id,
            "session_timeout": self.session_timeout_ms,
            "rebalance_timeout": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": {"hex": metadata.hex()}} for name in self._offered],
            "reason": draw.choice([None, "because"]),
            **fields,
        }
        version = self._join_version
        since = {"rebalance_timeout": 1, "group_instance_id": 5, "reason": 8}
        self.awaited = "JoinGroup"
        self.story.ask("JoinGroup", version, _known(body, since, version), self)

    def _sync(self, **fields: Any) -> None:
        version = self._version_of(0, 5, 3)
        body = {**self._identity(), "protocol_type": "consumer", "protocol_name": self._protocol}
        body["assignments"] = self._assignments() if self._leads or self.story.draw.random() < 0.05 else []
        since = {"group_instance_id": 3, "protocol_type": 5, "protocol_name": 5}
        self.awaited = "SyncGroup"
        self.story.ask("SyncGroup", version, _known({**body, **fields}, since, version), self)

    def _assignments(self) -> list[Body]:
        """Assign each partition to a member; a few leaders omit a member or assign a partition twice."""
        draw, owned = self.story.draw, dict[str, list[TopicPartition]]({member_id: [] for member_id in self._members})
        if owned:
            for name in self._names:
                for partition in range(self.story.topics.get(name, 0)):
                    for member_id in draw.sample(self._members, 1 if draw.random() < 0.995 else min(2, len(owned))):
                        owned[member_id].append(TopicPartition(name, partition))
        return [
            {"member_id": member_id, "assignment": {"hex": encode_assignment(Assignment(tuple(partitions))).hex()}}
            for member_id, partitions in owned.items()
            if draw.random() < 0.97
        ]

    def _heartbeat(self, **fields: Any) -> None:
        version = self._version_of(0, 4, 3)
        body = _known({**self._identity(), **fields}, {"group_instance_id": 3}, version)
        self.story.ask("Heartbeat", version, body, self)

    def _leave(self, *entries: Body) -> None:
        draw = self.story.draw
        mine = "" if self.instance_id and draw.random() < 0.4 else self.member_id
        members = list(entries) or [{"member_id": mine, "group_instance_id": self.instance_id}]
        version = draw.randint(3, 5) if self.instance_id or len(members) > 1 else draw.randint(0, 5)
        body: Body = {"group_id": self.group_id}
        if version < 3:
            body["member_id"] = members[0]["member_id"]
        else:
            body["members"] = [{**member, **({"reason": None} if version == 5 else {})} for member in members]
        self.story.ask("LeaveGroup", version, body, self)

    def live(self) -> None:
        if self._phase in ("out", "rejoin"):
            self._join()
        elif self._phase == "joined":
            self._sync()
        else:
            self._live_on()

    def _live_on(self) -> None:
        weights = {"beat": 6, "commit": 3, "fetch": 1.5, "rejoin": 0.7, "change": 0.8, "leave": 0.9, "sync": 0.4}
        what = self._choose({**weights, "transact": 1.5, "restart": 1.2 if self.instance_id else 0.2})
        identity = {name: self._identity()[name] for name in ("generation_id", "member_id", "group_instance_id")}
        if what == "beat":
            self._heartbeat()
        elif what == "commit":
            self.story.commit(self, **identity)
        elif what == "transact":
            self.story.commit_in_transaction(self, **identity)
        elif what == "fetch":
            named = self.story.draw.random() < 0.3
            self.story.fetch(self, self.member_id if named else None, self.epoch if named else -1)
        elif what == "rejoin":
            self._join()
        elif what == "change":
            self._subscribe()
            self._join()
        elif what == "leave":
            self._leave()
            self._forget()
        elif what == "sync":
            self._sync()
        else:
            self._forget()
            self._join()

    def misbehave(self) -> None:
        draw = self.story.draw
        stranger = draw.choice([NOBODY, NOBODY, ""])
        strange = [
            lambda: self._heartbeat(generation_id=self.epoch + draw.choice([-1, 1, 7])),
            lambda: self._heartbeat(member_id=stranger),
            lambda: self._heartbeat(group_instance_id=draw.choice([NOBODY, "i0"])),
            lambda: self._sync(generation_id=self.epoch + draw.choice([-1, 1])),
            lambda: self._sync(member_id=stranger),
            lambda: self._sync(**draw.choice([{"protocol_type": "other"}, {"protocol_name": "other"}])),
            lambda: self._join(member_id=NOBODY),
            lambda: self._join(protocol_type=draw.choice(["connect", ""])),
            lambda: self._join(protocols=[]),
            lambda: self._join(protocols=[{"name": "solo", "metadata": {"hex": "0001"}}]),
            lambda: self._join(session_timeout=draw.choice([1, 100_000_000])),
            lambda: self._join(group_instance_id=f"i{draw.randrange(4)}"),
            self._join,
            lambda: self._leave({"member_id": stranger, "group_instance_id": None}),
            lambda: self._leave(
                {"member_id": self.member_id, "group_instance_id": "i0"},
                {"member_id": "", "group_instance_id": draw.choice(["i1", NOBODY])},
                {"member_id": self.member_id, "group_instance_id": self.instance_id},
                {"member_id": self.member_id, "group_instance_id": None},
            ),
            lambda: self.story.commit(
                self,
                member_id=draw.choice([self.member_id, NOBODY]),
                generation_id=self.epoch + draw.choice([-1, 0, 1]),
            ),
        ]
        self._choose_one(strange)


def long_id(text: str) -> str:
    """Return the id that Kafka writes in 22 characters in its longer form."""
    return str(UUID(bytes=base64.urlsafe_b64decode(text + "==")))


def _known(body: Body, since: dict[str, int], version: int) -> Body:
    """Return a request without the fields that its version does not have yet."""
    return {name: value for name, value in body.items() if since.get(name, 0) <= version}
