"""What a request costs the broker from the bytes that come to the bytes that leave, without sockets.

    python -m tests.bench.broker_requests [--beside FOLDER] [--rounds 7] [--requests 4000]

400 groups of one member, whose log partitions are files; heartbeats, and commits and fetches of ten partitions without
metadata, with metadata of 40 characters, and of the newest versions, with topic ids. Each figure is CPU time of the
process, the best of the rounds. With ``--beside`` the same is measured of the source tree in FOLDER, in turn, and the
ratios are printed: only those of one run mean anything.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from groupcoord import Config, SystemClock
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.conformance.entities import encode_request
from groupcoord.messages import JoinGroup, JoinProtocol, SyncGroup
from groupcoord.storage.stores.segments import SegmentLogStore

GROUPS, PARTITIONS, TOPIC = 400, 10, "orders"
METADATA = "AjQwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw"
"""40 characters, as Kafka Streams writes them: a version and a time, in base 64."""

Member = tuple[str, str, int]
"""Group, member id and generation."""


def start(directory: Path) -> Broker:
    """Return a broker with its log in ``directory``, and one topic."""
    topics = TopicRegistry()
    with topics.edit() as edit:
        edit.create(TOPIC, 100)
    config = Config(group_initial_rebalance_delay_ms=0)
    return make_broker(config=config, clock=SystemClock(), log_store=SegmentLogStore(directory), topics=topics)


def join(broker: Broker) -> list[Member]:
    coordinator, found = broker.coordinator, []
    for number in range(GROUPS):
        group_id = f"commit0-{number}"
        coordinator.submit(JoinGroup(group_id, protocols=(JoinProtocol("range", b""),), requires_known_member_id=False))
        coordinator.tick()
        (reply,) = coordinator.take_replies()
        joined: Any = reply.response
        coordinator.call(SyncGroup(group_id, joined.generation_id, joined.member_id))
        found.append((group_id, joined.member_id, joined.generation_id))
    return found


MEASURED = {
    "heartbeat": ("Heartbeat", 4, ""),
    "commit of 10": ("OffsetCommit", 7, ""),
    "fetch of 10": ("OffsetFetch", 5, ""),
    "commit of 10 with metadata": ("OffsetCommit", 7, METADATA),
    "fetch of 10 with metadata": ("OffsetFetch", 5, ""),
    "newest commit of 10": ("OffsetCommit", 10, ""),
    "newest fetch of 10": ("OffsetFetch", 10, ""),
    "newest commit of 10 with metadata": ("OffsetCommit", 10, METADATA),
    "newest fetch of 10 with metadata": ("OffsetFetch", 10, ""),
}
"""API, version and metadata, in an order in which each fetch finds what the commit before it left."""


def frames(what: str, topic_id: str, members: list[Member]) -> list[bytes]:
    api, version, metadata = MEASURED[what]
    topic: dict[str, Any] = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
    draw = random.Random(1)
    found = []
    for group_id, member_id, generation_id in members:
        body: dict[str, Any] = {"group_id": group_id, "member_id": member_id}
        if api == "Heartbeat":
            body |= {"generation_id": generation_id}
        elif api == "OffsetCommit":
            partitions = [
                {
                    "partition_index": index,
                    "committed_offset": draw.randrange(2**40),
                    "committed_leader_epoch": 3,
                    "committed_metadata": metadata,
                }
                for index in range(PARTITIONS)
            ]
            topics = [topic | {"partitions": partitions}]
            body |= {"generation_id_or_member_epoch": generation_id, "topics": topics}
        else:
            wanted = {"group_id": group_id, "topics": [topic | {"partition_indexes": list(range(PARTITIONS))}]}
            body = {"groups": [wanted], "require_stable": False} if version >= 8 else wanted
        frame = encode_request(api, version, 7, "bench", body)
        found.append(len(frame).to_bytes(4, "big") + frame)
    return found


def send(broker: Broker, connection: Connection, requests: list[bytes]) -> float:
    begin_s = time.process_time()
    for request in requests:
        connection.receive_data(request)
        broker.take_dirty()
        connection.take_output()
        broker.run_turn()
    return time.process_time() - begin_s


def serve_measurements() -> None:
    """Print the microseconds of one request for each line of standard input: a kind of request and a count, as JSON."""
    with tempfile.TemporaryDirectory(prefix="groupcoord-requests-") as name:
        broker = start(Path(name))
        members = join(broker)
        connection = broker.connect("/127.0.0.1")
        gc.collect()
        gc.freeze()
        for line in sys.stdin:
            what, count = json.loads(line)
            requests = list(islice(cycle(frames(what, str(broker.topics.topic_id(TOPIC)), members)), count))
            send(broker, connection, requests[:GROUPS])
            print(send(broker, connection, requests) / count * 1e6, flush=True)
        broker.close()


class Measured:
    """Process that runs this script on the source tree in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"},
            cwd=folder,
        )

    def cost_us(self, what: str, count: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([what, count]), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.broker_requests", description=__doc__)
    parser.add_argument("--beside", type=Path, help="another source tree, measured in turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=4_000, help="in each round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_measurements()
        return
    here = Path(__file__).resolve().parents[2]
    measured = [Measured(folder) for folder in (here, options.beside) if folder is not None]
    best = {what: [float("inf")] * len(measured) for what in MEASURED}
    for _ in range(options.rounds):
        for what, least_us in best.items():
            for place, process in enumerate(measured):
                least_us[place] = min(least_us[place], process.cost_us(what, options.requests))
    for process in measured:
        process.end()
    for what, (cost_us, *beside) in best.items():
        print(f"{what:36}{cost_us:8.2f} µs", *[f"beside {us:8.2f} µs: {cost_us / us:5.2f}" for us in beside])


if __name__ == "__main__":
    main()
