"""Subscriptions by regular expression: who uses which, and when they have to be matched against the topics again.

Matching is not done here, but by the host, which is asked for it (see ``ResolveRegexes`` in the effects). Sources:
``GroupMetadataManager.maybeUpdateRegularExpressions`` and ``handleRegularExpressionsResult`` of Apache Kafka 4.4;
KIP-848.
"""

from __future__ import annotations

from enum import Enum

from groupcoord.core.events import Cause, Trigger
from groupcoord.core.fast_construct import plain_members
from groupcoord.core.groups.consumer.group import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.records import ConsumerGroupRegularExpressionRecord
from groupcoord.core.groups.consumer.state import ConsumerDraft, ConsumerState
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import ResolvedRegexes, ResolveRegexes
from groupcoord.core.javacompat.hashing import timeline_map_order
from groupcoord.core.log.records import GroupTombstone
from groupcoord.core.router.authorization import Principal

REFRESH_PAUSE_MS = 10_000
"""Expressions of a group are not matched more often than that."""

NEVER_MS, FOREVER_MS = -(2**63), 2**63 - 1


@plain_members
class RegexChange(Enum):
    """What a heartbeat changed in the expression of its member."""

    NONE = "none"
    CHANGED = "changed"
    """Which topics match is not known yet."""
    CHANGED_AND_RESOLVED = "changed and resolved"
    """It is known, or there is no expression any more: the assignment has to follow."""


def change_regex(draft: ConsumerDraft, old: str, new: str, environment: ConsumerGroupEnvironment) -> RegexChange:
    """Take over a member's new expression, and forget the old one's topics if nobody else uses it.

    Raises:
        RefusedError: INVALID_REGULAR_EXPRESSION, if nobody has used it before.
    """
    if old == new:
        return RegexChange.NONE
    stored = draft.base
    if new and new not in stored.regex_subscribers:
        environment.check_regex(new)
    if old and stored.regex_subscribers.get(old) == 1:
        draft.write(GroupTombstone(stored.group_id, ConsumerGroupRegularExpressionRecord.key_of(old)))
    if not new or (new in stored.regex_subscribers and new in stored.resolved):
        return RegexChange.CHANGED_AND_RESOLVED
    return RegexChange.CHANGED


def needs_resolution(
    stored: ConsumerState, state: ConsumerState, regex: str, environment: ConsumerGroupEnvironment, now_ms: int
) -> bool:
    """Tell whether a group's expressions must be matched against the topics.

    Args:
        stored: the group before this heartbeat.
        state: the group with it.
        regex: the expression of the member whose heartbeat it is; empty if it has none.
        environment: the topics.
        now_ms: the time.
    """
    if not state.regex_subscribers:
        return False
    refreshed_ms, version = _last_resolution(stored)
    if now_ms <= refreshed_ms + REFRESH_PAUSE_MS:
        return False
    return (
        (bool(regex) and regex not in stored.regex_subscribers)
        or len(state.regex_subscribers) != len(stored.resolved)
        or version < environment.topics.version
        or now_ms > refreshed_ms + environment.config.group_consumer_regex_refresh_interval_ms
    )


def next_resolution_ms(state: ConsumerState, environment: ConsumerGroupEnvironment) -> int:
    """Return until when a group's expressions need not be matched again, unless they or the topics change."""
    if not state.regex_subscribers:
        return FOREVER_MS
    refreshed_ms, version = _last_resolution(state)
    if len(state.regex_subscribers) != len(state.resolved) or version < environment.topics.version:
        return refreshed_ms + REFRESH_PAUSE_MS
    return refreshed_ms + environment.config.group_consumer_regex_refresh_interval_ms


def _last_resolution(state: ConsumerState) -> tuple[int, int]:
    """Return when a group's expressions were matched last, and against which version of the topics.

    They are matched together, but where a member's change was refused by the log after all, its old expression was not.
    Kafka looks at the first in a hash map (``ConsumerGroup.lastResolvedRegularExpressionRefreshTimeMs``).
    """
    moments = {(record.timestamp_ms, record.version) for record in state.resolved.values()}
    if len(moments) <= 1:
        return moments.pop() if moments else (NEVER_MS, 0)
    first = state.resolved[timeline_map_order(sorted(state.resolved))[0]]
    return first.timestamp_ms, first.version


def question(
    context: HandlerContext,
    state: ConsumerState,
    environment: ConsumerGroupEnvironment,
    principal: Principal,
    now_ms: int,
) -> ResolveRegexes:
    """Return what the host is asked of a group's expressions.

    Args:
        context: of the group's log partition.
        state: the group.
        environment: the topics.
        principal: whose request this follows from: it must not learn of topics that it may not describe.
        now_ms: the time.
    """
    regexes = tuple(sorted(state.regex_subscribers))
    return ResolveRegexes(context.partition, state.group_id, regexes, principal, environment.topics.version, now_ms)


def take_resolution(draft: ConsumerDraft, resolved: ResolvedRegexes, environment: ConsumerGroupEnvironment) -> bool:
    """Write which topics expressions match now; if that changes what the group subscribes to, its epoch grows.

    Returns:
        True if it grew, and the subscribed topics were looked at for that.
    """
    stored, group_id, question = draft.base, draft.base.group_id, resolved.question
    has_changed = False
    for regex, names in sorted(resolved.topics.items()):
        if regex not in stored.regex_subscribers:
            continue
        topics = tuple(sorted(names))
        before = stored.resolved.get(regex)
        has_changed = has_changed or topics != (() if before is None else tuple(sorted(before.topics)))
        draft.write(ConsumerGroupRegularExpressionRecord(group_id, regex, topics, question.version, question.asked_ms))
    metadata_hash = environment.topics.metadata_hash(draft.state.subscribed_topics())
    if not has_changed and metadata_hash == stored.metadata_hash:
        return False
    draft.begin_epoch(metadata_hash, Trigger(Cause.REGEX_CHANGE if has_changed else Cause.TOPIC_CHANGE))
    return True
