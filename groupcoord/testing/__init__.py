"""For users' own tests: strategies, a state machine, contract checkers, and a server in this process.

Names are loaded when they are asked for, so that nobody pays for Hypothesis or for the server who uses neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupcoord.testing.asserting.groups import CommittedOffset, GroupDescription, MemberDescription, Task
    from groupcoord.testing.asserting.records import ConsumerRecord, ProducerRecord, RecordsRefusedError
    from groupcoord.testing.asserting.requests import ReceivedRequest, Requests
    from groupcoord.testing.asserting.topics import TopicDescription
    from groupcoord.testing.assignor_contract import check_assignor
    from groupcoord.testing.clock_contract import check_clock
    from groupcoord.testing.every_request import requests
    from groupcoord.testing.exams.as_tests import exam
    from groupcoord.testing.exploring.exploration import Exploration, explore
    from groupcoord.testing.exploring.playing import play
    from groupcoord.testing.exploring.scope import Process, Scope, Trace
    from groupcoord.testing.faulty_store import FaultyLogStore
    from groupcoord.testing.history import Exchange, History, histories
    from groupcoord.testing.log_store_contract import check_log_store
    from groupcoord.testing.machine import CoordinatorMachine
    from groupcoord.testing.server import ServerThread
    from groupcoord.testing.share_strategies import (
        alter_share_group_offsets_requests,
        delete_share_group_offsets_requests,
        describe_share_group_offsets_requests,
        share_acknowledge_requests,
        share_fetch_requests,
        share_group_describe_requests,
        share_group_heartbeats,
    )
    from groupcoord.testing.slot_log_contract import check_slot_log
    from groupcoord.testing.strategies import (
        assignments,
        client_ids,
        commit_requests,
        consumer_group_describe_requests,
        consumer_group_heartbeats,
        delete_requests,
        describe_requests,
        fetch_requests,
        find_coordinator_requests,
        generation_ids,
        group_ids,
        heartbeats,
        instance_ids,
        join_requests,
        leave_requests,
        list_requests,
        member_ids,
        offset_delete_requests,
        protocols,
        subscriptions,
        sync_requests,
        topic_names,
        transactional_commit_requests,
    )
    from groupcoord.testing.streams_strategies import (
        streams_group_describe_requests,
        streams_group_heartbeats,
        topologies,
    )

__all__ = [
    "CommittedOffset",
    "ConsumerRecord",
    "CoordinatorMachine",
    "Exchange",
    "Exploration",
    "FaultyLogStore",
    "GroupDescription",
    "History",
    "MemberDescription",
    "Process",
    "ProducerRecord",
    "ReceivedRequest",
    "RecordsRefusedError",
    "Requests",
    "Scope",
    "ServerThread",
    "Task",
    "TopicDescription",
    "Trace",
    "alter_share_group_offsets_requests",
    "assignments",
    "check_assignor",
    "check_clock",
    "check_log_store",
    "check_slot_log",
    "client_ids",
    "commit_requests",
    "consumer_group_describe_requests",
    "consumer_group_heartbeats",
    "delete_requests",
    "delete_share_group_offsets_requests",
    "describe_requests",
    "describe_share_group_offsets_requests",
    "exam",
    "explore",
    "fetch_requests",
    "find_coordinator_requests",
    "generation_ids",
    "group_ids",
    "heartbeats",
    "histories",
    "instance_ids",
    "join_requests",
    "leave_requests",
    "list_requests",
    "member_ids",
    "offset_delete_requests",
    "play",
    "protocols",
    "requests",
    "share_acknowledge_requests",
    "share_fetch_requests",
    "share_group_describe_requests",
    "share_group_heartbeats",
    "streams_group_describe_requests",
    "streams_group_heartbeats",
    "subscriptions",
    "sync_requests",
    "topic_names",
    "topologies",
    "transactional_commit_requests",
]

_ELSEWHERE = {
    "CommittedOffset": "asserting.groups",
    "ConsumerRecord": "asserting.records",
    "CoordinatorMachine": "machine",
    "Exchange": "history",
    "Exploration": "exploring.exploration",
    "FaultyLogStore": "faulty_store",
    "GroupDescription": "asserting.groups",
    "History": "history",
    "MemberDescription": "asserting.groups",
    "Task": "asserting.groups",
    "Process": "exploring.scope",
    "ProducerRecord": "asserting.records",
    "ReceivedRequest": "asserting.requests",
    "RecordsRefusedError": "asserting.records",
    "Requests": "asserting.requests",
    "Scope": "exploring.scope",
    "ServerThread": "server",
    "TopicDescription": "asserting.topics",
    "Trace": "exploring.scope",
    "check_assignor": "assignor_contract",
    "check_clock": "clock_contract",
    "check_log_store": "log_store_contract",
    "check_slot_log": "slot_log_contract",
    "exam": "exams.as_tests",
    "explore": "exploring.exploration",
    "histories": "history",
    "alter_share_group_offsets_requests": "share_strategies",
    "delete_share_group_offsets_requests": "share_strategies",
    "describe_share_group_offsets_requests": "share_strategies",
    "requests": "every_request",
    "share_acknowledge_requests": "share_strategies",
    "share_fetch_requests": "share_strategies",
    "share_group_describe_requests": "share_strategies",
    "share_group_heartbeats": "share_strategies",
    "play": "exploring.playing",
    "streams_group_describe_requests": "streams_strategies",
    "streams_group_heartbeats": "streams_strategies",
    "topologies": "streams_strategies",
}
"""Which module of this package has a name; the strategies have all others."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'strategies')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
