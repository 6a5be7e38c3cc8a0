"""The Hypothesis strategy for requests of every kind."""

from __future__ import annotations

from hypothesis import strategies as st

from groupcoord.core.messages import Request
from groupcoord.testing import share_strategies as share
from groupcoord.testing import strategies as common
from groupcoord.testing import streams_strategies as streams

__all__ = ["requests"]


def requests(
    *, group_ids: common.Strategy[str] | None = None, topic_names: common.Strategy[str] | None = None
) -> common.Strategy[Request]:
    """Return requests of every kind that a client sends to a group's coordinator.

    Args:
        group_ids: by default what each kind of request may have.
        topic_names: all of :func:`~groupcoord.testing.topic_names` by default.
    """
    return st.one_of(
        common.join_requests(group_ids=group_ids),
        common.sync_requests(group_ids=group_ids),
        common.heartbeats(group_ids=group_ids),
        common.consumer_group_heartbeats(group_ids=group_ids, topic_names=topic_names),
        share.share_group_heartbeats(group_ids=group_ids, topic_names=topic_names),
        streams.streams_group_heartbeats(group_ids=group_ids, topic_names=topic_names),
        common.leave_requests(group_ids=group_ids),
        common.commit_requests(group_ids=group_ids, topic_names=topic_names),
        common.transactional_commit_requests(group_ids=group_ids, topic_names=topic_names),
        common.fetch_requests(group_ids=group_ids, topic_names=topic_names),
        common.offset_delete_requests(group_ids=group_ids, topic_names=topic_names),
        common.describe_requests(group_ids=group_ids),
        common.consumer_group_describe_requests(group_ids=group_ids),
        share.share_group_describe_requests(group_ids=group_ids),
        streams.streams_group_describe_requests(group_ids=group_ids),
        common.delete_requests(group_ids=group_ids),
        common.list_requests(),
        common.find_coordinator_requests(group_ids=group_ids),
    )
