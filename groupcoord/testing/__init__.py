"""Test support for programs that use Kafka's group coordination, and for parts built around the coordinator.

- :mod:`~groupcoord.testing.server`: a broker in the test's process; the pytest fixture ``groupcoord_server``.
- :mod:`~groupcoord.testing.faults`: requests, sessions, appends and nodes that fail on purpose.
- :mod:`~groupcoord.testing.asserting`: queries, waits and assertions of that broker.
- :mod:`~groupcoord.testing.strategies`: Hypothesis strategies for requests, conversations (``history``) and ``logs``.
- :mod:`~groupcoord.testing.contracts`: checks for log stores, clocks and assignors.
- :mod:`~groupcoord.testing.machine`: a Hypothesis state machine around a coordinator.
- :mod:`~groupcoord.testing.exams`: an exam for consumer programs in any language.
- :mod:`~groupcoord.testing.exploring`: every history in a small scope.
- :mod:`~groupcoord.testing.museum`: real bugs, planted and replayed.

Names load on first use, so that neither Hypothesis nor the server is imported without need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupcoord.testing.asserting.groups import CommittedOffset, GroupDescription, MemberDescription, Task
    from groupcoord.testing.asserting.records import (
        ConsumerRecord,
        ProducerRecord,
        RecordsRefusedError,
        TopicDescription,
    )
    from groupcoord.testing.asserting.requests import ReceivedRequest, Requests
    from groupcoord.testing.contracts.assignor import check_assignor
    from groupcoord.testing.contracts.faulty_store import FaultyLogStore
    from groupcoord.testing.contracts.logs_and_clocks import check_clock, check_log_store, check_slot_log
    from groupcoord.testing.exams.as_tests import exam
    from groupcoord.testing.exploring.exploration import Exploration, explore
    from groupcoord.testing.exploring.scope import Process, Scope, Trace
    from groupcoord.testing.exploring.stage import play
    from groupcoord.testing.group_strategies import (
        alter_share_group_offsets_requests,
        delete_share_group_offsets_requests,
        describe_share_group_offsets_requests,
        requests,
        share_acknowledge_requests,
        share_fetch_requests,
        share_group_describe_requests,
        share_group_heartbeats,
        streams_group_describe_requests,
        streams_group_heartbeats,
        topologies,
    )
    from groupcoord.testing.history import Exchange, History, histories
    from groupcoord.testing.logs import assignments, subscriptions
    from groupcoord.testing.machine.state_machine import CoordinatorMachine
    from groupcoord.testing.server import ServerThread
    from groupcoord.testing.strategies import (
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
        sync_requests,
        topic_names,
        transactional_commit_requests,
    )

__all__ = ["CommittedOffset", "GroupDescription", "MemberDescription", "Task"]
__all__ += ["ConsumerRecord", "ProducerRecord", "RecordsRefusedError", "TopicDescription"]
__all__ += ["ReceivedRequest", "Requests"]
__all__ += ["check_assignor"]
__all__ += ["FaultyLogStore"]
__all__ += ["check_clock", "check_log_store", "check_slot_log"]
__all__ += ["exam"]
__all__ += ["Exploration", "explore"]
__all__ += ["Process", "Scope", "Trace"]
__all__ += ["play"]
__all__ += ["alter_share_group_offsets_requests", "delete_share_group_offsets_requests"]
__all__ += ["describe_share_group_offsets_requests", "requests", "share_acknowledge_requests", "share_fetch_requests"]
__all__ += ["share_group_describe_requests", "share_group_heartbeats", "streams_group_describe_requests"]
__all__ += ["streams_group_heartbeats", "topologies"]
__all__ += ["Exchange", "History", "histories"]
__all__ += ["CoordinatorMachine"]
__all__ += ["ServerThread"]
__all__ += ["assignments", "client_ids", "commit_requests", "consumer_group_describe_requests"]
__all__ += ["consumer_group_heartbeats", "delete_requests", "describe_requests", "fetch_requests"]
__all__ += ["find_coordinator_requests", "generation_ids", "group_ids", "heartbeats", "instance_ids", "join_requests"]
__all__ += ["leave_requests", "list_requests", "member_ids", "offset_delete_requests", "protocols", "subscriptions"]
__all__ += ["sync_requests", "topic_names", "transactional_commit_requests"]

_MODULES = {
    "asserting.groups": "CommittedOffset GroupDescription MemberDescription Task",
    "asserting.records": "ConsumerRecord ProducerRecord RecordsRefusedError TopicDescription",
    "asserting.requests": "ReceivedRequest Requests",
    "contracts.assignor": "check_assignor",
    "contracts.faulty_store": "FaultyLogStore",
    "contracts.logs_and_clocks": "check_clock check_log_store check_slot_log",
    "exams.as_tests": "exam",
    "exploring.exploration": "Exploration explore",
    "exploring.scope": "Process Scope Trace",
    "exploring.stage": "play",
    "group_strategies": (
        "alter_share_group_offsets_requests delete_share_group_offsets_requests "
        "describe_share_group_offsets_requests requests share_acknowledge_requests share_fetch_requests "
        "share_group_describe_requests share_group_heartbeats streams_group_describe_requests "
        "streams_group_heartbeats topologies "
    ),
    "history": "Exchange History histories",
    "logs": "assignments subscriptions",
    "machine.state_machine": "CoordinatorMachine",
    "server": "ServerThread",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'strategies')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
