"""Random histories: what clients of both protocols, administrators and the log itself may do to one or two groups."""

from __future__ import annotations

import random
from typing import Any

from tests.beside_kafka.clients import NOBODY, Body, ClassicClient, ConsumerClient, RandomClient, long_id
from tests.beside_kafka.ids import JavaRandom
from tests.beside_kafka.offsets import commit_body, deletion_body, fetch_body
from tests.beside_kafka.oracle import Oracle, Recording
from tests.beside_kafka.settings import ALWAYS, CHOICES, OF_GROUPS, drawn

TOPICS = {"t4": 4, "u2": 2, "v3": 3}
NEW_TOPICS = ("x1", "x2", "t5")
REFUSALS = ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR", "MESSAGE_TOO_LARGE")
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "reconciling")
ACTS = 60
NO_MEMBER = {"member_id": "", "generation_id": -1}
STRANGE_MEMBER = {"member_id": "", "generation_id": 3}


class RandomStory:
    """Makes one history."""

    settings_of_groups = OF_GROUPS

    def __init__(self, oracle: Oracle, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.config = self._draw_config()
        self.topics = dict(TOPICS)
        self.recording = Recording(oracle, f"chance_{seed}", config=self.config, topics=TOPICS, seed=seed)
        self._ids = JavaRandom(~seed)
        self._token = 0
        self._asked: dict[int, tuple[RandomClient, str, Body]] = {}
        self._transactions: set[tuple[int, str]] = set()
        self._groups = draw.choice([["g"], ["g"], ["g", "h"]])
        self._clients = self._draw_clients()
        self._silent: set[RandomClient] = set()
        self._mischief = draw.choice([0.02, 0.1, 0.25])
        self._acts = {
            self._let_live: 60,
            self._administrate: draw.choice([6, 12]),
            self._end_transaction: 3,
            self._fall_silent: 2,
            self._change_topics: draw.choice([0, 3]),
            self._configure_group: draw.choice([0, 0, 2]),
            self._refuse_appends: draw.choice([0, 0, 3]),
            self._load_again: draw.choice([0, 0, 2]),
        }

    def _draw_config(self) -> dict[str, str]:
        return ALWAYS | drawn(self.draw, CHOICES)

    def _draw_clients(self) -> list[RandomClient]:
        draw = self.draw
        classic, static = draw.choice([0, 0.4, 0.6, 1]), draw.choice([0, 0.3, 0.7])
        clients: list[RandomClient] = []
        for number in range(draw.choice([2, 3, 3, 4, 5])):
            kind = ClassicClient if draw.random() < classic else ConsumerClient
            instance_id = f"i{number}" if draw.random() < static else None
            clients.append(kind(self, number, draw.choice(self._groups), instance_id))
        return clients

    def run(self) -> dict[str, Any]:
        for _ in range(ACTS):
            self._let_time_pass()
            (act,) = self.draw.choices(list(self._acts), list(self._acts.values()))
            act()
        for group_id in self._groups:
            self._look(group_id)
        return self.recording.history

    # ------------------------------------------------------------ what clients need

    def ask(self, api: str, version: int, body: Body, client: RandomClient | None = None) -> None:
        """Send a request; its sender receives the response when it comes."""
        self._token += 1
        command = {"do": "request", "api": api, "version": version, "body": body, "token": self._token}
        if client is not None:
            self._asked[self._token] = client, api, body
        self._do({**command, "client_id": "admin" if client is None else f"c{client.number}"})

    def topic_id(self, name: str) -> str:
        return long_id(self.recording.topic_ids[name])

    def new_id(self) -> str:
        return self._ids.kafka_uuid()

    def commit(self, client: RandomClient | None, group_id: str = "", **identity: Any) -> None:
        """Commit offsets as a client, or without a member."""
        group_id = group_id or client.group_id if client is not None else group_id
        version = self._commit_version(client)
        self.ask("OffsetCommit", version, commit_body(self, version, group_id, identity), client)

    def _commit_version(self, client: RandomClient | None) -> int:
        version = self.draw.choice([10, self.draw.randint(2, 10)])
        if isinstance(client, ConsumerClient) and self.draw.random() < 0.9:
            version = max(version, 9)
        return version

    def commit_in_transaction(self, client: RandomClient | None, group_id: str = "", **identity: Any) -> None:
        group_id = group_id or client.group_id if client is not None else group_id
        producer_id = 1_000 + self.draw.randrange(2)
        version = self.draw.choice([5, self.draw.randint(0, 5)])
        body = commit_body(self, version, group_id, identity, producer_id)
        self._transactions.add((producer_id, group_id))
        self.ask("TxnOffsetCommit", version, body, client)

    def fetch(self, client: RandomClient | None, member_id: str | None, member_epoch: int) -> None:
        """Fetch offsets as a client, or without a member."""
        groups = [client.group_id] if client is not None else self._groups
        version = self.draw.choice([10, 9, self.draw.randint(1, 10)])
        if len(groups) > 1:
            version = max(version, 8)
        self.ask("OffsetFetch", version, fetch_body(self, version, groups, member_id, member_epoch), client)

    def _do(self, command: dict[str, Any]) -> None:
        for event in self.recording.do(command):
            asked = self._asked.pop(event.get("reply", 0), None)
            if asked is not None:
                client, api, body = asked
                client.hear(api, body, event["body"])

    # ------------------------------------------------------------ clients and administrators

    def _let_live(self) -> None:
        client = self.draw.choice([client for client in self._clients if client not in self._silent] or self._clients)
        if self.draw.random() < self._mischief:
            client.misbehave()
        elif client.awaited is None or self.draw.random() < 0.1:
            client.live()
        else:
            others = [other for other in self._clients if other.awaited is None and other not in self._silent]
            if others:
                self.draw.choice(others).live()
            else:
                self._wait_for_a_timer()

    def _fall_silent(self) -> None:
        self._silent ^= {self.draw.choice(self._clients)}

    def _administrate(self) -> None:
        draw, group_id = self.draw, self.draw.choice(self._groups)
        acts = {
            lambda: self._look(group_id): 6,
            lambda: self.fetch(None, *draw.choice([(None, -1), (None, -1), (NOBODY, 3)])): 2,
            lambda: self.commit(None, group_id, **draw.choice([NO_MEMBER, NO_MEMBER, STRANGE_MEMBER])): 2,
            lambda: self.commit_in_transaction(None, group_id, **NO_MEMBER): 1,
            lambda: self.ask("OffsetDelete", 0, deletion_body(self, group_id)): 1.5,
            lambda: self.ask("DeleteGroups", draw.randint(0, 2), {"groups_names": [group_id]}): 1.5,
        }
        draw.choices(list(acts), list(acts.values()))[0]()

    def _look(self, group_id: str) -> None:
        self.ask(*self.draw.choice(self._looks(group_id)))

    def _looks(self, group_id: str) -> list[tuple[str, int, Body]]:
        draw = self.draw
        states = draw.sample(STATES, draw.choice([0, 0, 2]))
        types = draw.sample(["classic", "Consumer", "share"], draw.choice([0, 0, 1]))
        with_operations = draw.random() < 0.2
        described = {"group_ids": self._groups, "include_authorized_operations": with_operations}
        of_classic = {"groups": [group_id], "include_authorized_operations": with_operations}
        return [
            ("ConsumerGroupDescribe", draw.randint(0, 1), described),
            ("DescribeGroups", draw.randint(3, 6), of_classic),
            ("ListGroups", 5, {"states_filter": states, "types_filter": types}),
        ]

    def _end_transaction(self) -> None:
        if not self._transactions:
            self.commit_in_transaction(None, self.draw.choice(self._groups), **NO_MEMBER)
            return
        producer_id, group_id = self.draw.choice(sorted(self._transactions))
        self._transactions.discard((producer_id, group_id))
        self._token += 1
        end = {"group": group_id, "producer_id": producer_id, "producer_epoch": 0, "commit": self.draw.random() < 0.6}
        self._do({"do": "request", "api": "CompleteTransaction", **end, "token": self._token})

    def _configure_group(self) -> None:
        own = drawn(self.draw, self.settings_of_groups)
        self._do({"do": "group_config", "group": self.draw.choice(self._groups), "config": own})

    # ------------------------------------------------------------ the world around

    def _let_time_pass(self) -> None:
        chance = self.draw.random()
        if chance < 0.02:
            return
        if chance < 0.85:
            self._wait(self.draw.randint(1, 60))
        elif chance < 0.94:
            self._wait(self.draw.randint(1, 2_000))
        elif chance < 0.98:
            self._wait_for_a_timer()
        else:
            self._wait(self.draw.choice([5_000, 11_000, 50_000, 130_000]))

    def _wait_for_a_timer(self) -> None:
        timers = sorted(at_ms - self.recording.now_ms for at_ms in self.recording.timers.values())
        near = [left_ms for left_ms in timers[:4] if left_ms < 200_000] or [1_000]
        self._wait(max(1, self.draw.choice(near) + self.draw.choice([-1, 0, 1])))

    def _wait(self, ms: int) -> None:
        """Advance the clock, timer by timer while the log refuses appends: each may change the next one."""
        end_ms = self.recording.now_ms + ms
        while self.recording.refuses and (due_ms := self.recording.next_timer_ms()) < end_ms:
            self._do({"do": "advance", "ms": max(1, due_ms - self.recording.now_ms)})
        if end_ms > self.recording.now_ms:
            self._do({"do": "advance", "ms": end_ms - self.recording.now_ms})

    def _change_topics(self) -> None:
        draw = self.draw
        there = [name for name in NEW_TOPICS if name in self.topics]
        missing = [name for name in NEW_TOPICS if name not in self.topics]
        change: dict[str, Any] = {"create": {}, "delete": [], "grow": {}}
        what = draw.choice(["create", "grow", "delete"])
        if missing and (what == "create" or not there):
            change["create"] = {draw.choice(missing): draw.randint(1, 3)}
        elif what == "delete":
            change["delete"] = [draw.choice(there)]
        else:
            name = draw.choice(there)
            change["grow"] = {name: self.topics[name] + draw.randint(1, 2)}
        self.topics.update({**change["create"], **change["grow"]})
        for name in change["delete"]:
            del self.topics[name]
        self._do({"do": "topics", **change})

    def _refuse_appends(self) -> None:
        self._do({"do": "log", "refuse": self.draw.randint(1, 2), "error": self.draw.choice(REFUSALS)})

    def _load_again(self) -> None:
        if self.draw.random() < 0.5:
            self._do({"do": "reload"})
            return
        self._do({"do": "unload", "partition": 0})
        self._let_live()
        self._do({"do": "load", "partition": 0, "hold": True})
        self._let_live()
        self._administrate()
        self._do({"do": "loaded"})
        self._do({"do": "load", "partition": 0, "hold": False})
