"""Rules without effect: recorded conversations are unchanged on a server with them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from groupcoord.broker.broker import Broker
from groupcoord.clock import LeapingClock, SystemClock
from groupcoord.conformance import InProcessTarget, Transcript, load_transcripts, run
from groupcoord.conformance.in_process import InProcessServer
from groupcoord.conformance.targets import Settings
from groupcoord.conformance.transcript import PACKAGED
from groupcoord.errors import ErrorCode
from groupcoord.host.server import Server
from groupcoord.log_store import StorageError
from groupcoord.testing.faults import Rule, Rules
from groupcoord.testing.faults.log_faults import LogFaults
from groupcoord.wire.registry import APIS
from tests.broker.data_world import batch
from tests.broker.driving import drain, feed, wire_frame
from tests.broker.wire_world import COMMIT, HEARTBEAT, JOIN, SYNC, Body, WireWorld
from tests.tables import check_all
from tests.wire.kio_client import read_response

METADATA: Body = {
    "topics": ({"name": "t", "topic_id": None},),
    "allow_auto_topic_creation": True,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}
OFFSETS: Body = {
    "groups": ({"group_id": "g", "topics": ({"name": "t", "partition_indexes": (0,)},)},),
    "require_stable": False,
}
FETCH_T: Body = {
    "cluster_id": None,
    "replica_id": -1,
    "max_wait": 0,
    "min_bytes": 1,
    "max_bytes": 1_000,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "forgotten_topics_data": (),
    "rack_id": "",
    "topics": (
        {
            "topic": "t",
            "partitions": tuple(
                {
                    "partition": index,
                    "current_leader_epoch": -1,
                    "fetch_offset": 0,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": 1_000,
                }
                for index in (0, 9)
            ),
        },
    ),
}
CONSUMER_HEARTBEAT: Body = {
    "group_id": "modern",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": ("t", "nope"),
    "topic_partitions": (),
}
END_OF_T: Body = {"name": "t", "partitions": ({"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},)}


class RuledTarget(InProcessTarget):
    """A server with two rules for each API, which see all its requests and answers and let them go on.

    Args:
        is_idle: the rules are removed before the first request.
    """

    def __init__(self, *, is_idle: bool) -> None:
        super().__init__()
        self._is_idle = is_idle

    def start(self, settings: Settings) -> InProcessServer:
        server = super().start(settings)
        make_brokers = server._make_brokers

        def make_ruled_brokers() -> dict[int, Broker]:
            brokers, rules = make_brokers(), Rules()
            rules.follow(brokers[1])
            for api in APIS.values():
                for after in (False, True):
                    rules.add(Rule(api.name, lambda call: None, after=after))
            if self._is_idle:
                rules.clear()
            return brokers

        server._make_brokers, server._brokers = make_ruled_brokers, make_ruled_brokers()
        return server


def count_bytecodes(act: Callable[[], object]) -> int:
    count = 0

    def trace(called: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        called.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # finalizers of other tests' objects would count
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def bytecodes_by_request(world: WireWorld) -> dict[str, int]:
    """Run a consumer in both protocols; return the opcodes of each request, from its bytes to the response's. The
    second of two equal requests counts, where there can be two.
    """
    connection = world.broker.connect("/127.0.0.1")
    found: dict[str, int] = {}

    def ask(api_key: int, version: int, body: Body) -> Body:
        frame = wire_frame(api_key, version, body)

        def act() -> None:
            feed(connection, frame)
            world.tick()

        bytecodes = count_bytecodes(act)
        answer = read_response(api_key, version, drain(connection))
        assert answer.get("error_code") in (None, 0, ErrorCode.MEMBER_ID_REQUIRED)
        found[f"{APIS[api_key].name} v{version}"] = bytecodes
        return answer

    for _ in range(2):
        ask(18, 3, {"client_software_name": "test", "client_software_version": "1"})
        ask(3, 12, METADATA)
        ask(10, 4, {"key_type": 0, "coordinator_keys": ("g",)})
    member = {"member_id": ask(11, 9, JOIN)["member_id"]}
    ask(11, 9, JOIN | member)
    for _ in range(2):
        ask(14, 5, SYNC | {"assignments": ({**member, "assignment": b"all"},)})
        ask(12, 4, HEARTBEAT)
        ask(8, 9, COMMIT | member | {"generation_id_or_member_epoch": 1})
        ask(9, 9, OFFSETS)
        records = batch(b"coffee", at_ms=world.clock.now_ms())
        data = tuple({"index": index, "records": records} for index in (0, 9))
        topic = {"name": "t", "partition_data": data}
        ask(0, 9, {"transactional_id": None, "acks": 1, "timeout": 1_000, "topic_data": (topic,)})
        ask(2, 8, {"replica_id": -1, "isolation_level": 0, "topics": (END_OF_T,)})
        ask(1, 12, FETCH_T)
        ask(68, 1, CONSUMER_HEARTBEAT)
    ask(13, 5, {"group_id": "g", "members": ({**member, "group_instance_id": None, "reason": None},)})
    return found


def ruled_world(names: Iterable[str]) -> tuple[WireWorld, Rules]:
    world, rules = WireWorld(), Rules()
    rules.follow(world.broker)
    for name in names:
        rules.add(Rule(name, lambda call: None))
    return world, rules


def test_idle_hooks_cost_nothing() -> None:
    """Requests take the same instructions after all faults were removed as on a server that never had any."""
    bytecodes_by_request(WireWorld())  # now everything that is kept for later is there
    plain = bytecodes_by_request(WireWorld())
    names = {name.split()[0] for name in plain}
    looking, _ = ruled_world(names)
    hooked, rules = ruled_world(names)
    rules.clear()
    faults = LogFaults({1: cast(Server, SimpleNamespace(broker=hooked.broker))})
    faults.fail_next(StorageError())
    faults.hold()
    faults.clear()

    assert bytecodes_by_request(hooked) == plain
    assert all(more > plain[name] for name, more in bytecodes_by_request(looking).items())


def test_a_clock_that_can_be_turned_costs_nothing() -> None:
    leapt = LeapingClock()
    leapt.advance(1_000)

    assert count_bytecodes(leapt.now_ms) == count_bytecodes(SystemClock().now_ms)


@pytest.mark.parametrize("is_idle", [False, True], ids=["looking", "idle"])
@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.slow)])
def test_rules_that_do_nothing_change_nothing(every: int, is_idle: bool) -> None:
    def check(transcript: Transcript) -> None:
        (outcome,) = run([transcript], RuledTarget(is_idle=is_idle)).outcomes
        assert outcome.failure is None, outcome.failure.describe()

    transcripts = load_transcripts(*sorted(PACKAGED.rglob("*.json"))[::every])
    check_all([(str(transcript), transcript) for transcript in transcripts if transcript.nodes == 1], check)
