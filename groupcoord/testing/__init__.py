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

from typing import TYPE_CHECKING

from groupcoord.lazy import attach

if TYPE_CHECKING:
    from groupcoord.testing.asserting.groups import (
        CommittedOffset as CommittedOffset,
        GroupDescription as GroupDescription,
        MemberDescription as MemberDescription,
        Task as Task,
    )
    from groupcoord.testing.asserting.records import (
        ConsumerRecord as ConsumerRecord,
        ProducerRecord as ProducerRecord,
        RecordsRefusedError as RecordsRefusedError,
        TopicDescription as TopicDescription,
    )
    from groupcoord.testing.asserting.requests import ReceivedRequest as ReceivedRequest, Requests as Requests
    from groupcoord.testing.contracts.assignor import check_assignor as check_assignor
    from groupcoord.testing.contracts.faulty_store import FaultyLogStore as FaultyLogStore
    from groupcoord.testing.contracts.logs_and_clocks import (
        check_clock as check_clock,
        check_log_store as check_log_store,
        check_slot_log as check_slot_log,
    )
    from groupcoord.testing.exams.as_tests import exam as exam
    from groupcoord.testing.exploring.exploration import Exploration as Exploration, explore as explore
    from groupcoord.testing.exploring.scope import Process as Process, Scope as Scope, Trace as Trace
    from groupcoord.testing.exploring.stage import play as play
    from groupcoord.testing.group_strategies import (
        alter_share_group_offsets_requests as alter_share_group_offsets_requests,
        delete_share_group_offsets_requests as delete_share_group_offsets_requests,
        describe_share_group_offsets_requests as describe_share_group_offsets_requests,
        requests as requests,
        share_acknowledge_requests as share_acknowledge_requests,
        share_fetch_requests as share_fetch_requests,
        share_group_describe_requests as share_group_describe_requests,
        share_group_heartbeats as share_group_heartbeats,
        streams_group_describe_requests as streams_group_describe_requests,
        streams_group_heartbeats as streams_group_heartbeats,
        topologies as topologies,
    )
    from groupcoord.testing.history import Exchange as Exchange, History as History, histories as histories
    from groupcoord.testing.logs import assignments as assignments, subscriptions as subscriptions
    from groupcoord.testing.machine.state_machine import CoordinatorMachine as CoordinatorMachine
    from groupcoord.testing.server import ServerThread as ServerThread
    from groupcoord.testing.strategies import (
        client_ids as client_ids,
        commit_requests as commit_requests,
        consumer_group_describe_requests as consumer_group_describe_requests,
        consumer_group_heartbeats as consumer_group_heartbeats,
        delete_requests as delete_requests,
        describe_requests as describe_requests,
        fetch_requests as fetch_requests,
        find_coordinator_requests as find_coordinator_requests,
        generation_ids as generation_ids,
        group_ids as group_ids,
        heartbeats as heartbeats,
        instance_ids as instance_ids,
        join_requests as join_requests,
        leave_requests as leave_requests,
        list_requests as list_requests,
        member_ids as member_ids,
        offset_delete_requests as offset_delete_requests,
        protocols as protocols,
        sync_requests as sync_requests,
        topic_names as topic_names,
        transactional_commit_requests as transactional_commit_requests,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".asserting.groups": "CommittedOffset GroupDescription MemberDescription Task",
            ".asserting.records": "ConsumerRecord ProducerRecord RecordsRefusedError TopicDescription",
            ".asserting.requests": "ReceivedRequest Requests",
            ".contracts.assignor": "check_assignor",
            ".contracts.faulty_store": "FaultyLogStore",
            ".contracts.logs_and_clocks": "check_clock check_log_store check_slot_log",
            ".exams.as_tests": "exam",
            ".exploring.exploration": "Exploration explore",
            ".exploring.scope": "Process Scope Trace",
            ".exploring.stage": "play",
            ".group_strategies": (
                "alter_share_group_offsets_requests delete_share_group_offsets_requests topologies "
                "describe_share_group_offsets_requests requests share_acknowledge_requests share_fetch_requests "
                "share_group_describe_requests share_group_heartbeats streams_group_describe_requests "
                "streams_group_heartbeats"
            ),
            ".history": "Exchange History histories",
            ".logs": "assignments subscriptions",
            ".machine.state_machine": "CoordinatorMachine",
            ".server": "ServerThread",
            ".strategies": (
                "client_ids commit_requests consumer_group_describe_requests consumer_group_heartbeats delete_requests "
                "describe_requests fetch_requests find_coordinator_requests generation_ids group_ids heartbeats "
                "instance_ids join_requests leave_requests list_requests member_ids offset_delete_requests protocols "
                "sync_requests topic_names transactional_commit_requests"
            ),
        },
    )
