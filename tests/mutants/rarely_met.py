"""Bugs in rules of consumer groups that members rarely meet: no test noticed them until each got one of its own."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

RARELY_MET_MUTANTS = (
    Mutant(
        "an expression that is in use is checked again",
        "consumer/regexes.py",
        "if new and new not in stored.regex_subscribers:",
        "if new:",
    ),
    Mutant(
        "an expression is forgotten while others use it",
        "consumer/regexes.py",
        "if old and stored.regex_subscribers.get(old) == 1:",
        "if old:",
    ),
    Mutant(
        "a producer that names only an instance is taken for no member's",
        "modern/committing.py",
        "and not request.member_id and request.group_instance_id is None:",
        "and not request.member_id:",
    ),
    Mutant(
        "metadata that are too long are asked of an older epoch",
        "modern/committing.py",
        "columns, _ = accept_metadata(topic.columns, limit)  # others are refused for that",
        "columns = topic.columns",
    ),
    Mutant(
        "an epoch of nobody's may fetch",
        "modern/committing.py",
        "return ErrorCode.NONE if wanted.member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR",
        "return ErrorCode.NONE",
    ),
    Mutant(
        "a fencing that failed ends a session that was renewed",
        "modern/member_timers.py",
        "if timer.deadline_ms is None and key.member_id in group.state.members:",
        "if key.member_id in group.state.members:",
    ),
    Mutant(
        "classic members have their own session time-outs after a load",
        "consumer/member_timers.py",
        "            if uses_own_timeouts:\n",
        "            if True:\n",
    ),
    Mutant(
        "who gives partitions back can't sync",
        "consumer/classic_members.py",
        "and assignment.state is not MemberState.UNREVOKED_PARTITIONS:\n        return Judgement(ErrorCode.REBALANCE",
        "and True:\n        return Judgement(ErrorCode.REBALANCE",
    ),
    Mutant(
        "a classic group that is just small enough is not upgraded",
        "consumer/upgrade.py",
        "check_group_size(len(group.members), environment.config.group_consumer_max_size)",
        "check_group_size(len(group.members) + 1, environment.config.group_consumer_max_size)",
    ),
    Mutant(
        "a consumer group that is just small enough is not downgraded",
        "consumer/downgrade.py",
        "and check_group_size(count, environment.config.group_max_size) is ErrorCode.NONE",
        "and check_group_size(count + 1, environment.config.group_max_size) is ErrorCode.NONE",
    ),
    Mutant(
        "an assignor is told of subscriptions that nobody looked at",
        "consumer/heartbeat.py",
        "subscriptions = draft.state.subscription_type() if looks else draft.base.last_seen_subscriptions()",
        "subscriptions = draft.state.subscription_type()",
    ),
    Mutant(
        "tied votes are a new epoch for classic members, too",
        "consumer/heartbeat.py",
        "            metadata.classic_member_metadata is None\n            and assignor !=",
        "            assignor !=",
    ),
    Mutant(
        "a rack that a classic member doesn't name is forgotten",
        "consumer/classic_members.py",
        "rack_id=metadata.rack_id if subscription.rack_id is None else subscription.rack_id,",
        "rack_id=subscription.rack_id,",
    ),
    Mutant(
        "partitions that are given back take no commits of an older epoch",
        "consumer/group.py",
        "return lambda partition: assigned.get(partition, pending.get(partition))",
        "return lambda partition: assigned.get(partition)",
    ),
)
