"""Random groups and their stories, in the form of the recorded ones, for comparison with Java; from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from attrs import define

from groupcoord.core.consumer_protocol import TopicPartition, partitions_by_topic
from groupcoord.member.assignors import ASSIGNORS, AssignmentError
from groupcoord.member.assignors.balancing import encode_generation, encode_sticky_user_data

from .recorded import Record, cluster_of, subscriptions_of


@define
class Member:
    """A member over several rounds: what it wants, and what it had last."""

    member_id: str
    instance_id: str | None
    rack: str | None
    topics: list[str]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


class Story:
    """One group and what happens to it.

    Args:
        assignor: the name of the assignor.
        seed: what everything is drawn from.
    """

    def __init__(self, assignor: str, seed: int) -> None:
        self._assignor = assignor
        self._chance = random.Random(f"{assignor}/{seed}")
        self._name = f"{assignor}-{seed}"
        chance = self._chance
        self._racks = [f"r{n}" for n in range(chance.choice((1, 2, 3, 5)))] if chance.random() < 0.55 else []
        self._are_equal = chance.random() < 0.45
        self._is_weird = chance.random() < 0.3
        self._id_style = chance.randrange(6)
        self._topics = self._new_topics(chance.choice((3, 6, 12, 30)))
        self._members: list[Member] = []
        self._add_members(chance.choice((1, 2, 3, 4, 6, 9, 13, 20, 40)))
        self._generation_id = chance.randrange(9)

    def rounds(self) -> Iterator[Record]:
        """Yield the rounds; the answer of one is what members claim in the next."""
        is_sticky = "sticky" in self._assignor
        for number in range(self._chance.choice((1, 2, 3, 5)) if is_sticky else 1):
            self._generation_id += 1
            self._chance.shuffle(self._members)
            members = [self._as_record(member) for member in self._members]
            record: Record = {
                "id": f"{self._name}.{number}",
                "assignor": self._assignor,
                "topics": dict(self._topics),
                "members": members,
            }
            yield record
            try:
                answer = ASSIGNORS[self._assignor]().assign(cluster_of(record), subscriptions_of(record))
            except AssignmentError:
                return
            for member in self._members:
                if self._chance.random() > (0.12 if self._is_weird else 0.02):  # else it missed this round
                    member.owned = answer[member.member_id].partitions
                    member.generation_id = self._generation_id
            for _ in range(self._chance.choice((0, 1, 1, 2, 3))):
                self._something_happens()

    def _new_topics(self, most: int) -> dict[str, Any]:
        chance = self._chance
        topics = {}
        for number in range(chance.choice((1, 1, 2, 3, 5, 8))):
            name = chance.choice(["t%d", "topic-%d", "AaBB%d", "BBAa%d", "%dx"]) % chance.choice((number, number + 70))
            count = chance.choice((0, 1, 2, 3, chance.randrange(1, most + 1), most))
            racks = [self._replica_racks() for _ in range(count)] if self._racks and chance.random() < 0.9 else None
            topics[name] = {"partitions": count, "replica_racks": racks}
        return topics

    def _replica_racks(self) -> list[str | None]:
        chance = self._chance
        return [None if chance.random() < 0.03 else chance.choice(self._racks) for _ in range(chance.choice((1, 2, 3)))]

    def _new_id(self) -> str:
        chance = self._chance
        return (
            f"c{chance.randrange(1_000)}",
            f"consumer-g-{chance.randrange(99)}-{chance.getrandbits(32):08x}-{chance.getrandbits(16):04x}",
            "".join(chance.choices(("Aa", "BB"), k=2)) + chance.choice(("", "x", str(chance.randrange(50)))),
            chance.choice("é日\N{GRINNING FACE}\N{FULLWIDTH LATIN SMALL LETTER F}\ue000") + str(chance.randrange(300)),
            f"m{chance.randrange(1_000):03d}",
            f"{chance.getrandbits(64):x}",
        )[self._id_style]

    def _add_members(self, count: int) -> None:
        chance = self._chance
        known = {member.member_id for member in self._members}
        for _ in range(count):
            member_id = self._new_id()
            if member_id not in known:
                known.add(member_id)
                instance_id = f"i{chance.randrange(40)}" if chance.random() < 0.3 else None
                rack = chance.choice([*self._racks, "elsewhere"]) if self._racks and chance.random() < 0.85 else None
                self._members.append(Member(member_id, instance_id, rack, self._wanted()))

    def _wanted(self) -> list[str]:
        names = sorted(self._topics)
        if self._are_equal:
            return names if self._chance.random() > 0.01 else []
        count = self._chance.choice((1, len(names), self._chance.randrange(len(names) + 1)))
        return sorted([*self._chance.sample(names, count), *["missing"][: self._chance.random() < 0.03]])

    def _as_record(self, member: Member) -> Record:
        chance = self._chance
        record: Record = {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "rack": member.rack,
            "topics": member.topics,
            "owned_partitions": {},
            "generation_id": member.generation_id,
            "user_data_hex": None,
        }
        if self._assignor == "sticky" and member.generation_id >= 0:
            user_data = encode_sticky_user_data(member.owned, member.generation_id)
            is_old = self._is_weird and chance.random() < 0.15
            record["user_data_hex"] = (user_data[:-4] if is_old else user_data).hex()
            if self._is_weird and chance.random() < 0.2:
                record["generation_id"] = chance.choice((-1, max(member.generation_id - 1, 0)))
        elif self._assignor == "cooperative-sticky":
            record["owned_partitions"] = partitions_by_topic(sorted(member.owned))
            record["user_data_hex"] = encode_generation(member.generation_id).hex()
            if self._is_weird and chance.random() < 0.2:
                record["generation_id"] = -1
                record["user_data_hex"] = chance.choice((None, "ff", "", record["user_data_hex"]))
        return record

    def _something_happens(self) -> None:
        chance = self._chance
        event = chance.choice((self._leave, self._join, self._resubscribe, self._grow, self._claim_wrongly))
        event()

    def _leave(self) -> None:
        for _ in range(self._chance.choice((1, 1, len(self._members) // 2))):
            if len(self._members) > 1:
                self._members.pop(self._chance.randrange(len(self._members)))

    def _join(self) -> None:
        self._add_members(self._chance.choice((1, 1, 3, len(self._members))))

    def _resubscribe(self) -> None:
        if not self._are_equal:
            self._chance.choice(self._members).topics = self._wanted()

    def _grow(self) -> None:
        """Add partitions to a topic; in a weird story remove some, as if it were created again."""
        name = self._chance.choice(sorted(self._topics))
        count, racks = self._topics[name]["partitions"], self._topics[name]["replica_racks"]
        more = self._chance.randrange(1, 6) if not self._is_weird or self._chance.random() < 0.5 else -(count // 2)
        if racks is not None:
            racks = (racks + [self._replica_racks() for _ in range(more)])[: count + more]
        self._topics[name] = {"partitions": count + more, "replica_racks": racks}

    def _claim_wrongly(self) -> None:
        if self._is_weird:
            member, other = self._chance.choice(self._members), self._chance.choice(self._members)
            member.owned = tuple(dict.fromkeys(member.owned + other.owned[:3]))
            member.generation_id = max(member.generation_id - self._chance.choice((0, 0, 1, 2)), -1)
