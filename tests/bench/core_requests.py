"""How long the coordinator takes for the requests that there are most of.

    python -m tests.bench.core_requests [--members 100] [--seconds 1] [--json]

One group with many members, a log in memory that answers at once, and a clock that stands still. Each figure is the
best of several rounds: the time that the code takes when nothing else happens on the machine. Sessions, timers,
validation, records and replies are all in it; bytes and sockets are not.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock
from groupcoord.messages import (
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Request,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
    TopicToFetch,
)

GROUP, TOPIC, PARTITIONS = "bench", "orders", 10
METADATA = "AjQwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw"
"""40 characters, as Kafka Streams writes them beside each offset."""
ROUNDS = 7


def stable_group(member_count: int) -> tuple[GroupCoordinator, list[str], int]:
    clock = ManualClock(1_700_000_000_000)
    coordinator = GroupCoordinator(config=Config(group_initial_rebalance_delay_ms=0), clock=clock)
    coordinator.load_all()
    protocols = (JoinProtocol("range", b"\x00" * 64),)
    for number in range(member_count):
        join = JoinGroup(GROUP, protocols=protocols, client_id=f"client-{number}", requires_known_member_id=False)
        coordinator.submit(join, number)
    coordinator.tick()
    joined = [reply.response for reply in coordinator.take_replies()]
    responses = [response for response in joined if isinstance(response, JoinGroupResponse)]
    assignments = tuple(SyncAssignment(response.member_id, b"\x00" * 64) for response in responses)
    for response in responses:
        is_leader = response.leader == response.member_id
        sync = SyncGroup(
            GROUP, response.generation_id, response.member_id, assignments=assignments if is_leader else ()
        )
        coordinator.submit(sync)
    coordinator.take_replies()
    return coordinator, [response.member_id for response in responses], responses[0].generation_id


def requests(member_ids: list[str], generation_id: int) -> dict[str, list[Request]]:
    plain, noted = (
        (TopicToCommit(TOPIC, [OffsetToCommit(index, 1_000 + index, -1, metadata) for index in range(PARTITIONS)]),)
        for metadata in ("", METADATA)
    )
    wanted = (GroupToFetch(GROUP, (TopicToFetch(TOPIC, tuple(range(PARTITIONS))),)),)
    return {
        "heartbeat": [Heartbeat(GROUP, generation_id, member_id) for member_id in member_ids],
        f"commit of {PARTITIONS} offsets": [
            OffsetCommit(GROUP, plain, generation_id, member_id) for member_id in member_ids
        ],
        f"commit of {PARTITIONS} with metadata": [
            OffsetCommit(GROUP, noted, generation_id, member_id) for member_id in member_ids
        ],
        f"fetch of {PARTITIONS} offsets": [OffsetFetch(wanted) for _ in member_ids],
        f"fetch of {PARTITIONS} with metadata": [OffsetFetch(wanted) for _ in member_ids],
    }


def best_us(do: Callable[[], None], count: int, seconds: float) -> float:
    """Return the microseconds that one of the ``count`` things that ``do`` does takes, in the best of the rounds."""
    best_s = float("inf")
    for _ in range(ROUNDS):
        rounds, started_s = 0, time.perf_counter()
        while (passed_s := time.perf_counter() - started_s) < seconds / ROUNDS or not rounds:
            do()
            rounds += 1
        best_s = min(best_s, passed_s / rounds)
    return best_s / count * 1e6


def measure(member_count: int, seconds: float) -> dict[str, float]:
    """Return the microseconds per request, by name.

    Args:
        member_count: how large the group is.
        seconds: how long to measure each kind of request.
    """
    found = {}
    for index in range(5):
        # A coordinator for each: the log in memory grows with every commit, and no figure shall pay for another.
        coordinator, member_ids, generation_id = stable_group(member_count)
        name, of_members = list(requests(member_ids, generation_id).items())[index]
        prepare(coordinator, member_ids, generation_id, " with metadata" if "metadata" in name else " offsets")
        check_answers(coordinator, of_members)
        gc.collect()
        gc.freeze()
        found[name] = best_us(partial(send, coordinator, of_members), len(of_members), seconds)
    return found


def prepare(coordinator: GroupCoordinator, member_ids: list[str], generation_id: int, what: str) -> None:
    commit = requests(member_ids[:1], generation_id)[f"commit of {PARTITIONS}{what}"]
    send(coordinator, commit)


def send(coordinator: GroupCoordinator, of_members: list[Request]) -> None:
    for request in of_members:
        coordinator.submit(request)
        coordinator.take_replies()


def check_answers(coordinator: GroupCoordinator, of_members: list[Request]) -> None:
    """Make sure that the requests are answered without error: a refusal would be quick, and mean nothing."""
    for request in of_members:
        if f"error_code={ErrorCode.NONE!r}" not in repr(coordinator.call(request)):
            raise SystemExit(f"refused: {request}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Microseconds per request inside the coordinator.")
    parser.add_argument("--members", type=int, default=100, help="members of the group (default: 100)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    found = measure(arguments.members, arguments.seconds)
    if arguments.json:
        print(json.dumps({name: round(us, 3) for name, us in found.items()}))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}, a group of {arguments.members}", file=sys.stderr)
    for name, us in found.items():
        print(f"{name:28}{us:8.2f} µs {1e6 / us:12,.0f} per second")


if __name__ == "__main__":
    main()
