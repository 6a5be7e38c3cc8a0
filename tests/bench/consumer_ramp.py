"""What it costs the broker that many members join one consumer group, from bytes to bytes, without sockets.

    python -m tests.bench.consumer_ramp [--beside FOLDER] [--members 1000] [--rounds 7] [--profile FILE]

As many members as there are partitions join within ten seconds of a clock that is turned by hand, and live as clients
do: a heartbeat every five seconds, and one at once when there is something to confirm, until all have their share and
the same epoch. What they send is worked out once, and sent to a new broker in each round, whose log partitions are
files. The figure is CPU time of the process for each request, the best of the rounds. With ``--beside`` the same is
measured of the source tree in FOLDER, in turn; that the answers and the log are the same, to the byte, is made sure.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import hashlib
import heapq
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from groupcoord import Config, ManualClock
from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.conformance.entities import decode_response, encode_request
from groupcoord.core.fast_construct import collect_garbage_seldom
from groupcoord.storage.segment_store import SegmentLogStore

GROUP, TOPIC, TOPIC_ID = "ramp", "t", UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
API, VERSION = "ConsumerGroupHeartbeat", 1
START_MS, RAMP_MS = 1_700_000_000_000, 10_000
SIZE_BYTES = 4


class Sent(NamedTuple):
    """One request: when, by which member, and its bytes with their length."""

    at_ms: int
    member: int
    frame: bytes


class Ramp:
    """A broker with one topic, to which a connection of each member is open.

    Args:
        directory: where the log is.
        member_count: how many members there will be, and partitions.
    """

    def __init__(self, directory: Path, member_count: int) -> None:
        topics = TopicRegistry()
        with topics.edit() as edit:
            edit.create(TOPIC, member_count, TOPIC_ID)
        self._clock = ManualClock(START_MS)
        store = SegmentLogStore(directory, topic_id=TOPIC_ID)
        self.broker = Broker(config=Config(), clock=self._clock, log_store=store, topics=topics)
        self._connections = [self.broker.connect("/127.0.0.1") for _ in range(member_count)]

    def ask(self, request: Sent) -> bytes:
        """Send a request at its time, and return the answer."""
        broker = self.broker
        connection: Connection = self._connections[request.member]
        if request.at_ms > self._clock.now_ms():
            self._clock.advance_to(request.at_ms)
        connection.receive_data(request.frame)
        broker.take_dirty()
        answer = connection.take_output()
        broker.run_turn()
        return answer


def members(directory: Path, member_count: int) -> Iterator[Sent]:
    """Let members join and live until each has its share at the same epoch; yield what they send."""
    ramp = Ramp(directory, member_count)
    epochs, shares = [0] * member_count, [0] * member_count
    owned: list[Any] = [[] for _ in range(member_count)]
    due = [(START_MS + RAMP_MS * number // member_count, number) for number in range(member_count)]
    while 0 in epochs or len({*epochs}) > 1 or {*shares} != {1}:
        at_ms, number = heapq.heappop(due)
        request = Sent(at_ms, number, _heartbeat(number, epochs[number], owned[number]))
        yield request
        _, answer = decode_response(API, VERSION, ramp.ask(request)[SIZE_BYTES:])
        assert isinstance(answer, dict)
        told: Any = answer
        assert told["error_code"] in (0, "NONE"), answer
        epochs[number], owned[number] = told["member_epoch"], None
        pause_ms = told["heartbeat_interval"]
        if told["assignment"] is not None:
            owned[number], pause_ms = told["assignment"]["topic_partitions"], 1
            shares[number] = sum(len(topic["partitions"]) for topic in owned[number])
        heapq.heappush(due, (at_ms + pause_ms, number))
    ramp.broker.close()


def _heartbeat(number: int, epoch: int, owned: list[Any] | None) -> bytes:
    joins = epoch == 0
    body: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": f"benchmark-member-{number:05d}",
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 240_000 if joins else -1,
        "subscribed_topic_names": [TOPIC] if joins else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": owned,
    }
    frame = encode_request(API, VERSION, 7, "bench", body)
    return len(frame).to_bytes(SIZE_BYTES, "big") + frame


def send(requests: list[Sent], member_count: int, profile: cProfile.Profile | None = None) -> tuple[float, str]:
    """Send requests to a new broker; return the CPU seconds, and a digest of the answers and the log."""
    with tempfile.TemporaryDirectory(prefix="groupcoord-ramp-") as name:
        ramp = Ramp(Path(name), member_count)
        collect_garbage_seldom()  # as the server does
        gc.collect()
        gc.freeze()
        ask = ramp.ask
        if profile is not None:
            profile.enable()
        begin_s = time.process_time()
        answers = [ask(request) for request in requests]
        cpu_s = time.process_time() - begin_s
        if profile is not None:
            profile.disable()
        ramp.broker.close()
        digest = hashlib.sha256(b"".join(answers))
        for path in sorted(Path(name).rglob("*.log")):
            digest.update(path.read_bytes())
        return cpu_s, digest.hexdigest()


def serve_measurements() -> None:
    """Send all to a broker for each line of standard input, which says how many members there are.

    Printed are the microseconds for one request, how many there are, and the digest of what came of them.
    """
    scripts: dict[int, list[Sent]] = {}
    for line in sys.stdin:
        (member_count,) = json.loads(line)
        if member_count not in scripts:
            scripts[member_count] = worked_out(member_count)
        cpu_s, digest = send(scripts[member_count], member_count)
        print(cpu_s / len(scripts[member_count]) * 1e6, len(scripts[member_count]), digest, flush=True)


def worked_out(member_count: int) -> list[Sent]:
    """Return all requests of a ramp."""
    with tempfile.TemporaryDirectory(prefix="groupcoord-ramp-") as name:
        return list(members(Path(name), member_count))


def write_profile(member_count: int, file: Path) -> None:
    """Write where the time goes in one round."""
    profiler = cProfile.Profile()
    send(worked_out(member_count), member_count, profiler)
    profiler.dump_stats(file)


def compare(folders: list[Path], member_count: int, rounds: int) -> None:
    """Measure the trees in turn, and print."""
    from tests.bench.broker_requests import Measured  # which the processes that measure don't need, and may not find

    measured = [Measured(folder, script=Path(__file__)) for folder in folders]
    best_us = [float("inf")] * len(folders)
    ratios, found = [], set()
    for _ in range(rounds):
        costs_us = []
        for process in measured:
            cost_us, request_count, digest = process.ask(member_count).split()
            costs_us.append(float(cost_us))
            found.add((request_count, digest))
        best_us = list(map(min, best_us, costs_us))
        ratios.append(costs_us[0] / costs_us[-1])
    for process in measured:
        process.end()
    (request_count, _), *others = found
    cost_us, *beside = best_us
    print(f"{request_count} requests of {member_count} members: {cost_us:.2f} µs each", end="")
    for us in beside:
        print(
            f", beside {us:.2f} µs: {cost_us / us:.3f} (median of the rounds {statistics.median(ratios):.3f})", end=""
        )
    print()
    if others:
        raise SystemExit("answers or log differ")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.consumer_ramp", description=__doc__)
    parser.add_argument("--beside", type=Path, help="another source tree, measured in turn")
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", type=Path, metavar="FILE", help="write what cProfile finds in one round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_measurements()
        return
    if options.profile is not None:
        write_profile(options.members, options.profile)
        return
    here = Path(__file__).resolve().parents[2]
    compare([here, *filter(None, [options.beside])], options.members, options.rounds)


if __name__ == "__main__":
    main()
