"""Random consumer groups and their stories, in the form of the recorded ones, for comparison with Java; from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from groupcoord.core.groups.base.assignor import Assignor
from groupcoord.core.groups.consumer.assignors import RangeAssignor, UniformAssignor
from groupcoord.core.groups.share.simple_assignor import SimpleAssignor

from .recorded import Record, group_of, kafka_uuid_text, shape_of

ASSIGNORS: dict[str, Assignor] = {
    "range": RangeAssignor(),
    "uniform": UniformAssignor(),
    "simple": SimpleAssignor(),  # of share groups
}


class Story:
    """One group and what happens to it."""

    def __init__(self, assignor: str, seed: int) -> None:
        self._assignor = assignor
        self._chance = random.Random(f"{assignor}/{seed}")
        self._name = f"{assignor}-{seed}"
        self._are_equal = self._chance.random() < 0.5
        self._partitions_max = self._chance.choice((3, 8, 20, 70))
        self._id_style = self._chance.randrange(5)
        self._topics: dict[str, dict[str, Any]] = {}
        self._members: dict[str, Record] = {}
        for _ in range(self._chance.choice((1, 1, 2, 3, 5, 8))):
            self._new_topic()
        self._common = self._some_topics()
        self._join(self._chance.choice((1, 2, 3, 4, 6, 9, 13, 20, 40)))

    def rounds(self) -> Iterator[Record]:
        """Yield the rounds; the answer of one is what members have in the next."""
        for number in range(self._chance.choice((1, 2, 3, 5))):
            order = self._chance.sample(list(self._members), len(self._members))
            members = [dict(self._members[member_id]) for member_id in order]
            are_equal = len({frozenset(member["topics"]) for member in members}) == 1
            record: Record = {
                "id": f"{self._name}.{number}",
                "assignor": self._assignor,
                "subscription_type": "homogeneous" if are_equal else "heterogeneous",
                "topics": {name: dict(topic) for name, topic in self._topics.items()},
                "members": members,
            }
            if self._assignor == "simple":
                record["assignable"] = {name: self._some_partitions(name) for name in self._existing()}
            yield record
            answer = shape_of(record, ASSIGNORS[self._assignor].assign(group_of(record)))
            for member_id, member in self._members.items():
                member["assigned"] = dict(answer.get(member_id, []))
            for _ in range(self._chance.choice((0, 1, 1, 2, 3))):
                self._something_happens()

    def _something_happens(self) -> None:
        chance = self._chance
        match chance.choice(("join", "join", "leave", "resubscribe", "grow", "new topic", "delete")):
            case "join":
                self._join(chance.choice((1, 1, 3)))
            case "leave":
                for member_id in chance.sample(list(self._members), chance.choice((1, 1, len(self._members) // 2))):
                    if len(self._members) > 1:
                        del self._members[member_id]
            case "resubscribe":
                if self._are_equal:
                    self._common = self._some_topics()
                    for member in self._members.values():
                        member["topics"] = self._common
                else:
                    self._members[chance.choice(list(self._members))]["topics"] = self._some_topics()
            case "grow":
                self._topics[chance.choice(self._existing())]["partitions"] += chance.randint(1, 5)
            case "new topic":
                if len(self._topics) < 10:
                    self._new_topic()
            case "delete" if len(self._existing()) > 1:
                self._topics[chance.choice(self._existing())]["gone"] = True

    def _join(self, count: int) -> None:
        chance = self._chance
        for _ in range(count):
            member_id = self._new_id()
            self._members[member_id] = {
                "member_id": member_id,
                "instance_id": f"i-{member_id}" if chance.random() < 0.3 else None,
                "rack": None,
                "topics": self._common if self._are_equal else self._some_topics(),
                "assigned": {},
            }

    def _new_id(self) -> str:
        chance = self._chance
        return (
            f"consumer-g-{chance.randrange(99)}-{UUID(int=chance.getrandbits(128))}",
            "".join(chance.choices(("Aa", "BB"), k=2)) + str(chance.randrange(200)),
            chance.choice("é日\N{GRINNING FACE}\N{FULLWIDTH LATIN SMALL LETTER F}\ue000") + str(chance.randrange(300)),
            f"m{chance.randrange(1_000):03d}",
            kafka_uuid_text(UUID(int=chance.getrandbits(128))),
        )[self._id_style]

    def _new_topic(self) -> None:
        chance = self._chance
        name = chance.choice(("t%d", "topic-%d", "AaBB%d", "BBAa%d")) % len(self._topics)
        count = chance.choice((1, 2, 3, chance.randint(1, self._partitions_max), self._partitions_max))
        # Some ids collide in Java's tables, so that the order of names shows.
        bits = chance.getrandbits(128) if chance.random() < 0.7 else chance.getrandbits(64) << 64 | chance.randrange(4)
        self._topics[name] = {"id": kafka_uuid_text(UUID(int=bits)), "partitions": count}

    def _some_partitions(self, name: str) -> list[int]:
        chance, count = self._chance, int(self._topics[name]["partitions"])
        every = list(range(count))
        return every if chance.random() < 0.7 else sorted(chance.sample(every, chance.randint(0, count)))

    def _existing(self) -> list[str]:
        return [name for name, topic in self._topics.items() if "gone" not in topic]

    def _some_topics(self) -> list[str]:
        names = self._existing()
        some = self._chance.sample(names, self._chance.choice((1, len(names), self._chance.randint(0, len(names)))))
        return sorted([*some, *["missing"][: self._chance.random() < 0.05]])
