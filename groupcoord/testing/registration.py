"""Entry point of Hypothesis: ``st.from_type(JoinGroup)`` and ``st.builds`` use the strategies of this package.

The strategies load when they are first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.core import messages

NAMES: dict[type, str] = {
    messages.DeleteGroups: "delete_requests",
    messages.ConsumerGroupDescribe: "consumer_group_describe_requests",
    messages.ConsumerGroupHeartbeat: "consumer_group_heartbeats",
    messages.DescribeGroups: "describe_requests",
    messages.FindCoordinator: "find_coordinator_requests",
    messages.Heartbeat: "heartbeats",
    messages.JoinGroup: "join_requests",
    messages.LeaveGroup: "leave_requests",
    messages.ListGroups: "list_requests",
    messages.OffsetCommit: "commit_requests",
    messages.OffsetDelete: "offset_delete_requests",
    messages.OffsetFetch: "fetch_requests",
    messages.AlterShareGroupOffsets: "alter_share_group_offsets_requests",
    messages.DeleteShareGroupOffsets: "delete_share_group_offsets_requests",
    messages.DescribeShareGroupOffsets: "describe_share_group_offsets_requests",
    messages.ShareGroupDescribe: "share_group_describe_requests",
    messages.ShareGroupHeartbeat: "share_group_heartbeats",
    messages.StreamsGroupDescribe: "streams_group_describe_requests",
    messages.StreamsGroupHeartbeat: "streams_group_heartbeats",
    messages.SyncGroup: "sync_requests",
    messages.TxnOffsetCommit: "transactional_commit_requests",
}


def register() -> None:
    """Register the strategies with Hypothesis."""
    from hypothesis import strategies as st

    for kind, name in NAMES.items():
        st.register_type_strategy(kind, _lazily(name))


def _lazily(name: str) -> Callable[[type], Any]:
    def strategy_of(kind: type) -> Any:
        from groupcoord import testing

        return getattr(testing, name)()

    return strategy_of
