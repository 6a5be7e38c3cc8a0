"""How long the assignors take for a large group.

    python -m tests.bench.assignors [--members 2000] [--partitions 20000] [--topics 100] [--json]

Members get ids as a coordinator makes them, and subscriptions as a leader reads them from bytes. Three kinds of groups:
all members want all topics; each wants half of them, not the same half; all want all, and members and replicas are in
racks. Each is assigned from nothing, then again with what the members have after one of them left. Figures are CPU
time, the best of a few rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Callable

from attrs import evolve

from groupcoord.core.consumer_protocol import Subscription, decode_subscription, encode_subscription
from groupcoord.core.fast_construct import collector_paused
from groupcoord.member.assignors import ASSIGNORS, Assignor, Cluster, ClusterTopic

ROUNDS = 3
RACKS = ("rack-a", "rack-b", "rack-c")
Seconds = dict[str, dict[str, float]]


def cluster_with(partition_count: int, topic_count: int, chance: random.Random | None) -> Cluster:
    """Return topics with about as many partitions each, in racks if there is chance to choose them by."""
    topics = {}
    for topic in range(topic_count):
        count = partition_count * (topic + 1) // topic_count - partition_count * topic // topic_count
        racks = None if chance is None else tuple(tuple(chance.sample(RACKS, 2)) for _ in range(count))
        topics[f"topic-{topic:04d}"] = ClusterTopic(count, racks)
    return Cluster(topics)


def subscriptions_with(cluster: Cluster, member_count: int, kind: str) -> dict[str, Subscription]:
    """Return the members' first subscriptions."""
    chance = random.Random(member_count)
    names = sorted(cluster.topics)
    subscriptions = {}
    for member in range(member_count):
        wanted = tuple(sorted(chance.sample(names, (len(names) + 1) // 2))) if kind == "different" else tuple(names)
        rack = chance.choice(RACKS) if kind == "racks" else None
        subscriptions[f"consumer-{member}-{chance.getrandbits(128):032x}"] = Subscription(wanted, rack_id=rack)
    return subscriptions


def as_the_leader_reads_them(subscriptions: dict[str, Subscription]) -> dict[str, Subscription]:
    """Return the subscriptions after they were bytes: then no two share their texts."""
    return {member_id: decode_subscription(encode_subscription(s)) for member_id, s in subscriptions.items()}


def rejoining(
    assignor: Assignor, cluster: Cluster, subscriptions: dict[str, Subscription], make: Callable[[], Assignor]
) -> dict[str, Subscription]:
    """Return the subscriptions after one member left and the others were assigned what the assignor says."""
    found = {}
    for member_id, assignment in list(assignor.assign(cluster, subscriptions).items())[1:]:
        own = make()
        own.on_assignment(assignment, 1)
        user_data = own.subscription_user_data(subscriptions[member_id].topics)
        owned = assignment.partitions if own.name == "cooperative-sticky" else ()
        found[member_id] = evolve(
            subscriptions[member_id], user_data=user_data, owned_partitions=owned, generation_id=1
        )
    return found


def best_s(assignor: Assignor, cluster: Cluster, subscriptions: dict[str, Subscription]) -> float:
    """Return the CPU seconds that an assignment takes, in the best of the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        read = as_the_leader_reads_them(subscriptions)
        with collector_paused():
            started_s = time.process_time()
            assignments = assignor.assign(cluster, read)
            best = min(best, time.process_time() - started_s)
        if len(assignments) != len(subscriptions):
            raise SystemExit("a member has no assignment")
    return best


def measure(member_count: int, partition_count: int, topic_count: int) -> Seconds:
    """Return the seconds of the first and the second assignment, by assignor and kind of group."""
    found: Seconds = {}
    for kind in ("equal", "different", "racks"):
        cluster = cluster_with(partition_count, topic_count, random.Random(7) if kind == "racks" else None)
        subscriptions = subscriptions_with(cluster, member_count, kind)
        for name, make in ASSIGNORS.items():
            later = rejoining(make(), cluster, subscriptions, make)
            found[f"{name}, {kind}"] = {
                "first": best_s(make(), cluster, subscriptions),
                "one left": best_s(make(), cluster, later),
            }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Seconds that the assignors take.")
    parser.add_argument("--members", type=int, default=2_000, help="members of the group (default: 2000)")
    parser.add_argument("--partitions", type=int, default=20_000, help="partitions in all (default: 20000)")
    parser.add_argument("--topics", type=int, default=100, help="topics they belong to (default: 100)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    found = measure(arguments.members, arguments.partitions, arguments.topics)
    if arguments.json:
        print(json.dumps({name: {k: round(s, 4) for k, s in seconds.items()} for name, seconds in found.items()}))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}", file=sys.stderr)
    for name, seconds in found.items():
        print(f"{name:32}{seconds['first']:8.3f} s first {seconds['one left']:8.3f} s after one left")


if __name__ == "__main__":
    main()
