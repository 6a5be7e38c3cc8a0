"""Random histories of streams groups (KIP-1071), with what can come between: other kinds, topics, loads, refusals."""

from __future__ import annotations

from typing import Any

from tests.beside_kafka.clients import Body, ClassicClient, ConsumerClient, RandomClient
from tests.beside_kafka.oracle import Oracle
from tests.beside_kafka.settings import OF_STREAMS, OF_STREAMS_GROUPS, drawn
from tests.beside_kafka.story import RandomStory
from tests.beside_kafka.streams_client import StreamsClient, draw_topology

STATES = ("Stable", "Empty", "not_ready", "NotReady", "Assigning", "reconciling")
INTERNAL_TOPICS = ("rp", "cl0", "cl1", "x1")


class StreamsStory(RandomStory):
    """Generator of one history, mostly of threads of Kafka Streams."""

    settings_of_groups = OF_STREAMS_GROUPS

    def __init__(self, oracle: Oracle, seed: int) -> None:
        super().__init__(oracle, seed)
        self._acts[self._make_internal_topics] = 4

    def _draw_config(self) -> dict[str, str]:
        return super()._draw_config() | drawn(self.draw, OF_STREAMS)

    def _draw_clients(self) -> list[RandomClient]:
        draw = self.draw
        static, topology = draw.choice([0, 0.3, 0.7]), draw_topology(draw)
        clients: list[RandomClient] = []
        for number in range(draw.choice([2, 3, 3, 4, 5])):
            group_id, instance_id = draw.choice(self._groups), f"i{number}" if draw.random() < static else None
            if draw.random() < 0.05:
                kind = draw.choice([ClassicClient, ConsumerClient])
                clients.append(kind(self, number, group_id, instance_id))
            else:
                clients.append(StreamsClient(self, number, group_id, instance_id, topology))
        return clients

    def _commit_version(self, client: RandomClient | None) -> int:
        version = super()._commit_version(client)
        return max(version, 9) if isinstance(client, StreamsClient) and self.draw.random() < 0.9 else version

    def _make_internal_topics(self) -> None:
        """Create what the groups want, or something else under its name; or let it go."""
        draw, name = self.draw, self.draw.choice(INTERNAL_TOPICS)
        if name in self.topics:
            change: dict[str, Any] = {"create": {}, "delete": [name], "grow": {}}
            if draw.random() < 0.7:
                return
            del self.topics[name]
        else:
            wanted = self.recording.wanted.get(name, {}).get("partitions", 2)
            count = wanted if draw.random() < 0.9 else draw.randint(1, 4)
            change = {"create": {name: count}, "delete": [], "grow": {}}
            self.topics[name] = count
        self._do({"do": "topics", **change})

    def _load_again(self) -> None:
        """Load the log as it is, or what a cleaner may have left of it with Kafka."""
        draw = self.draw
        if draw.random() < 0.5:
            super()._load_again()
            return
        drops, end = draw.random() < 0.5, self.recording.log_end
        begin, end = sorted((0 if drops else draw.randint(0, end), draw.choice([end, draw.randint(0, end)])))
        compact = {"from": begin, "up_to": end, "drop_tombstones": drops, "drop_markers": False}
        self._do({"do": "reload", "compact": compact})

    def _looks(self, group_id: str) -> list[tuple[str, int, Body]]:
        draw = self.draw
        described = {"group_ids": self._groups, "include_authorized_operations": draw.random() < 0.2}
        states = draw.sample(STATES, draw.choice([0, 0, 2]))
        listed = {"states_filter": states, "types_filter": draw.sample(["Streams", "classic"], draw.choice([0, 0, 1]))}
        return [
            ("StreamsGroupDescribe", 0, described),
            ("StreamsGroupDescribe", 1, {**described, "include_topology_description": draw.random() < 0.5}),
            ("ListGroups", 5, listed),
            *super()._looks(group_id),
        ]
