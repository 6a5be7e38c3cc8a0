"""Bugs that somebody could make in consumer groups (KIP-848), as :mod:`tests.mutants.catalogue` has them of the rest.

They come from what is hard to get right: epochs, who may have what and when, static members that pause, answers that
were lost, timers while a write is in flight, expressions, and groups that change their kind.
"""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

CONSUMER_GROUP_MUTANTS = (
    # ---------------------------------------------------------------- epochs
    Mutant(
        "a lost answer fences its member",
        "modern/identity.py",
        "if epoch != previous_epoch or not lost_nothing(member):",
        "if True:",
    ),
    Mutant(
        "any earlier epoch will do",
        "modern/identity.py",
        "if epoch != previous_epoch or not lost_nothing(member):",
        "if not lost_nothing(member):",
    ),
    Mutant(
        "who missed an answer may say nothing of its partitions",
        "consumer/identity.py",
        "return owned is not None and all(",
        "return owned is None or all(",
    ),
    Mutant(
        "who missed an answer may have what was taken from it",
        "modern/identity.py",
        "if epoch != previous_epoch or not lost_nothing(member):",
        "if epoch != previous_epoch:",
    ),
    Mutant(
        "who knows an epoch is a member",
        "modern/identity.py",
        "if joins and instance_id is None and member_id not in state.members:",
        "if instance_id is None and member_id not in state.members:",
    ),
    Mutant(
        "a change of names is no new epoch",
        "consumer/heartbeat.py",
        "        names_changed\n        or regex_change is",
        "        regex_change is",
    ),
    Mutant(
        "a resolved expression is no new epoch",
        "consumer/heartbeat.py",
        "        or regex_change is RegexChange.CHANGED_AND_RESOLVED\n",
        "",
    ),
    Mutant(
        "an expression that nobody has resolved is a new epoch",
        "consumer/heartbeat.py",
        "or regex_change is RegexChange.CHANGED_AND_RESOLVED",
        "or regex_change is not RegexChange.NONE",
    ),
    Mutant(
        "another assignor is no new epoch",
        "consumer/heartbeat.py",
        "            and assignor != (preferred_assignor(draft.base.votes) or environment.default_assignor)\n",
        "            and False\n",
    ),
    Mutant(
        "names in another order are others",
        "consumer/heartbeat.py",
        "else tuple(sorted(set(names))),",
        "else names,",
    ),
    Mutant(
        "the epoch grows though the topics are the same",
        "consumer/heartbeat.py",
        "if reason is not None or metadata_hash != state.metadata_hash:",
        "if True:",
    ),
    Mutant("a group begins with epoch 0", "modern/state.py", "FIRST_EPOCH = 1\n", "FIRST_EPOCH = 0\n"),
    # ---------------------------------------------------------------- targets
    Mutant(
        "the target is one epoch behind",
        "consumer/heartbeat.py",
        "ConsumerGroupTargetAssignmentMetadataRecord(state.group_id, state.epoch, now_ms),",
        "ConsumerGroupTargetAssignmentMetadataRecord(state.group_id, state.epoch - 1, now_ms),",
    ),
    Mutant(
        "the assignment interval is kept by nobody",
        "modern/state.py",
        "return not (last_ms and interval_ms and now_ms < last_ms + interval_ms)",
        "return True",
    ),
    Mutant(
        "the assignment interval is a moment longer",
        "modern/state.py",
        "now_ms < last_ms + interval_ms",
        "now_ms <= last_ms + interval_ms",
    ),
    Mutant(
        "nobody knows when a target was made",
        "consumer/heartbeat.py",
        "ConsumerGroupTargetAssignmentMetadataRecord(state.group_id, state.epoch, now_ms),",
        "ConsumerGroupTargetAssignmentMetadataRecord(state.group_id, state.epoch, 0),",
    ),
    Mutant(
        "a newcomer without partitions has no target",
        "modern/target.py",
        "if old is None or not _are_equal(old, new):",
        "if not _are_equal(old or {}, new):",
    ),
    Mutant(
        "a vote of who has gone still counts",
        "consumer/votes.py",
        "        after[old_vote] -= 1\n        if not after[old_vote]:",
        "        if not after[old_vote]:",
    ),
    Mutant(
        "the first assignor wins whatever the votes",
        "consumer/votes.py",
        "return next((name for name in names if votes[name] == most), None)",
        "return next(iter(names), None)",
    ),
    # ---------------------------------------------------------------- reconciliation
    Mutant(
        "partitions are given before they are given back",
        "consumer/state.py",
        "return self.owner_epochs.get((topic_id, partition), FREE) == FREE",
        "return True",
    ),
    Mutant(
        "nobody waits until a member has given back",
        "consumer/reconciliation.py",
        "if revoked and self.may_have(revoked):\n            return self._moved(epoch_until",
        "if False:\n            return self._moved(epoch_until",
    ),
    Mutant(
        "an acknowledgement of a part is enough",
        "consumer/reconciliation.py",
        "        return any(\n            partition in revoked",
        "        return all(\n            partition in revoked",
    ),
    Mutant(
        "who says nothing has given back",
        "consumer/reconciliation.py",
        "        if self.owned is None:\n            return True\n",
        "        if self.owned is None:\n            return False\n",
    ),
    Mutant(
        "who has to give back keeps nothing meanwhile",
        "consumer/reconciliation.py",
        "return self._moved(epoch_until_revoked, MemberState.UNREVOKED_PARTITIONS, kept, revoked)",
        "return self._moved(epoch_until_revoked, MemberState.UNREVOKED_PARTITIONS, {}, revoked)",
    ),
    Mutant(
        "who has to give back is in the new epoch already",
        "consumer/reconciliation.py",
        "return self._moved(epoch_until_revoked, MemberState.UNREVOKED_PARTITIONS, kept, revoked)",
        "return self._moved(self.target_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)",
    ),
    Mutant(
        "partitions that are kept count as new",
        "consumer/reconciliation.py",
        "kept_here = {partition: epoch for partition, epoch in had.items() if partition in wanted}",
        "kept_here = {partition: self.target_epoch for partition, epoch in had.items() if partition in wanted}",
    ),
    Mutant(
        "who waits for partitions is called stable",
        "consumer/reconciliation.py",
        "state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE",
        "state = MemberState.STABLE",
    ),
    Mutant(
        "who waits for partitions never looks again",
        "consumer/reconciliation.py",
        "        case MemberState.UNRELEASED_PARTITIONS:\n",
        "        case MemberState.UNRELEASED_PARTITIONS if False:\n",
    ),
    Mutant(
        "partitions of topics that are gone are kept",
        "consumer/reconciliation.py",
        "self.target.get(topic_id, ()) if topic_id in self.subscribed else ()",
        "self.target.get(topic_id, ())",
    ),
    Mutant(
        "what nobody subscribes to is consumed until the next target",
        "consumer/reconciliation.py",
        "return step.without_unsubscribed() if has_subscription_changed else current",
        "return current",
    ),
    Mutant(
        "a state that a newer broker wrote is taken for settled",
        "consumer/reconciliation.py",
        "        case MemberState.UNKNOWN if owned is None or owned:\n",
        "        case MemberState.UNKNOWN if False:\n",
    ),
    Mutant(
        "an answer never shows the assignment again",
        "consumer/heartbeat.py",
        "shows_assignment = _is_full(request) or assignment.assigned != member.assignment.assigned",
        "shows_assignment = assignment.assigned != member.assignment.assigned",
    ),
    Mutant(
        "an answer always shows the assignment",
        "consumer/heartbeat.py",
        "shows_assignment = _is_full(request) or assignment.assigned != member.assignment.assigned",
        "shows_assignment = True",
    ),
    # ---------------------------------------------------------------- static members
    Mutant(
        "a static member takes a living one's place",
        "modern/identity.py",
        "if not may_be_replaced(member):",
        "if False:",
    ),
    Mutant(
        "a static member comes back to nothing",
        "consumer/identity.py",
        "target = draft.state.targets.get(member.member_id, {})",
        "target: dict = {}",
    ),
    Mutant(
        "the old id of a static member stays",
        "modern/identity.py",
        "        *draft.state.member_tombstones(member.member_id),\n        replacement.metadata,",
        "        replacement.metadata,",
    ),
    Mutant(
        "a static member comes back with its old epoch",
        "modern/identity.py",
        "member_epoch=JOIN_GROUP_MEMBER_EPOCH, previous_member_epoch=JOIN_GROUP_MEMBER_EPOCH",
        "previous_member_epoch=JOIN_GROUP_MEMBER_EPOCH",
    ),
    Mutant(
        "another member id is no reason to fence",
        "modern/identity.py",
        "    if known_id != member_id:\n        raise",
        "    if False:\n        raise",
    ),
    Mutant(
        "a static member that pauses is gone",
        "consumer/leaving.py",
        "if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:",
        "if False:",
    ),
    Mutant(
        "a static member that pauses still has to give back",
        "consumer/leaving.py",
        "member_epoch=LEFT_MEMBER_EPOCH, assigned=assigned, pending_revocation={})",
        "member_epoch=LEFT_MEMBER_EPOCH, assigned=assigned)",
    ),
    Mutant(
        "a static member that comes back finds the group full",
        "consumer/heartbeat.py",
        " or (instance_id is not None and instance_id in state.static_members)",
        "",
    ),
    Mutant(
        "groups have room for one more",
        "consumer/heartbeat.py",
        "error_code = check_group_size(len(state.members) + 1, max_size)",
        "error_code = check_group_size(len(state.members), max_size)",
    ),
    # ---------------------------------------------------------------- timers
    Mutant(
        "a heartbeat does not renew the session",
        "consumer/membership.py",
        "        if step.member.member_id in group.state.members:\n"
        "            self._member_timers.start_session(group, step.member, now_ms)\n",
        "",
    ),
    Mutant(
        "a steady heartbeat does not renew the session",
        "modern/membership.py",
        "        context.timers.arm(steady.session_timer, now_ms + steady.session_timeout_ms)\n",
        "",
    ),
    Mutant(
        "who is about to be put out is told that all is well",
        "modern/membership.py",
        "            or (group.writing is not None and request.member_id not in group.writing.state.members)\n",
        "",
    ),
    Mutant(
        "a heartbeat that waits does not renew the session",
        "modern/membership.py",
        "            self._renew_waiting_session(group, request, now_ms)\n",
        "",
    ),
    Mutant(
        "nobody is fenced who gives nothing back",
        "consumer/member_timers.py",
        "            self.await_revocation(group, member, member.metadata.rebalance_timeout_ms, now_ms)\n",
        "            pass\n",
    ),
    Mutant(
        "who could not be removed stays for ever",
        "modern/member_timers.py",
        "                self._timers.arm(timer, now_ms + FENCING_RETRY_MS)\n",
        "                pass\n",
    ),
    Mutant(
        "a timer that fires during a write is forgotten",
        "modern/membership.py",
        "            group.overdue.append(key)\n            return",
        "            return",
    ),
    Mutant(
        "timers of who is gone go on",
        "modern/member_timers.py",
        "                for timer in group.drop_timers(member_id):\n                    self._timers.cancel(timer)",
        "                list(group.drop_timers(member_id))",
    ),
    Mutant(
        "classic members have the group's session",
        "consumer/member_timers.py",
        "        if classic is not None:\n            timeout_ms = classic.session_timeout_ms\n",
        "",
    ),
    Mutant(
        "a classic member may take for ever to join again",
        "consumer/member_timers.py",
        "        if timer.deadline_ms is None:\n            self._timers.arm(timer, now_ms + member",
        "        if False:\n            self._timers.arm(timer, now_ms + member",
    ),
    # ---------------------------------------------------------------- one write in flight
    Mutant(
        "two writes are in flight",
        "modern/membership.py",
        "        if group.writing is not None:\n            self._renew_waiting",
        "        if False:\n            self._renew_waiting",
    ),
    Mutant(
        "what was refused is built upon",
        "modern/membership.py",
        "        group.writing = None\n        group.is_topics_look_due = True\n",
        "        group.state, group.writing = group.writing.state, None\n        group.is_topics_look_due = True\n",
    ),
    Mutant(
        "topics are not looked at again after a refusal",
        "modern/membership.py",
        "        group.writing = None\n        group.is_topics_look_due = True\n",
        "        group.writing = None\n",
    ),
    Mutant(
        "who waits in vain is never told",
        "modern/membership.py",
        "        waiting, written.group.waiting = written.group.waiting, []\n",
        "        waiting: list = []\n",
    ),
    Mutant(
        "a half of a refused heartbeat is written",
        "modern/membership.py",
        "            draft.roll_back()\n",
        "",
    ),
    Mutant(
        "an old answer is given though the group has moved on",
        "modern/membership.py",
        "            or group.writes != steady.writes\n",
        "",
    ),
    Mutant(
        "an old answer is given though expressions are to be matched",
        "modern/membership.py",
        "            or now_ms > steady.until_ms\n",
        "",
    ),
    # ---------------------------------------------------------------- regular expressions and topics
    Mutant(
        "topics of an expression that nobody uses are kept",
        "consumer/regexes.py",
        "    if old and stored.regex_subscribers.get(old) == 1:\n",
        "    if False:\n",
    ),
    Mutant(
        "expressions are matched again a moment too soon",
        "consumer/regexes.py",
        "    if now_ms <= refreshed_ms + REFRESH_PAUSE_MS:\n",
        "    if now_ms < refreshed_ms + REFRESH_PAUSE_MS:\n",
    ),
    Mutant(
        "the refresh interval of expressions ends a moment too soon",
        "consumer/regexes.py",
        "        or now_ms > refreshed_ms + environment.config",
        "        or now_ms >= refreshed_ms + environment.config",
    ),
    Mutant(
        "new topics are never matched",
        "consumer/regexes.py",
        "        or version < environment.topics.version\n        or now_ms",
        "        or now_ms",
    ),
    Mutant(
        "an expression is matched for who has gone",
        "consumer/regexes.py",
        "        if regex not in stored.regex_subscribers:\n            continue\n",
        "",
    ),
    Mutant(
        "topics of an expression stay when its members go",
        "consumer/leaving.py",
        "            if regex not in state.regex_subscribers\n",
        "            if False\n",
    ),
    Mutant(
        "an answer that comes during a write is lost",
        "modern/membership.py",
        "            group.answers.append(answer)\n            return",
        "            return",
    ),
    Mutant(
        "topics that change are no news",
        "modern/group.py",
        "        if any(map(self.newest_state.has_subscribers, names)):\n",
        "        if False:\n",
    ),
    Mutant(
        "only names tell which topics matter",
        "consumer/state.py",
        "return topic in self.name_subscribers or any(topic in record.topics for record in self.resolved.values())",
        "return topic in self.name_subscribers",
    ),
    Mutant(
        "a topic's hash forgets its partitions",
        "modern/metadata_hash.py",
        "    parts.append(_INT.pack(topic.partition_count))\n",
        "",
    ),
    Mutant(
        "the order of topics is in the hash of a group",
        "modern/metadata_hash.py",
        "    names = sorted(topic_hashes, key=string_sort_key)\n",
        "    names = list(topic_hashes)\n",
    ),
    # ---------------------------------------------------------------- commits and fetches
    Mutant(
        "an old epoch may commit nothing",
        "modern/committing.py",
        "                if since is None or epoch < since:",
        "                if True:",
    ),
    Mutant(
        "an old epoch may commit what came later",
        "modern/committing.py",
        "                if since is None or epoch < since:",
        "                if since is None:",
    ),
    Mutant(
        "an old epoch may commit what is another's",
        "modern/committing.py",
        "                if since is None or epoch < since:",
        "                if since is not None and epoch < since:",
    ),
    Mutant(
        "an epoch of the future may commit",
        "modern/committing.py",
        "        if epoch > member_epoch:\n            return self._stale(member)\n",
        "",
    ),
    Mutant(
        "a fetch may have any epoch",
        "modern/committing.py",
        "if wanted.member_epoch == member.member_epoch else self._stale(member)",
        "if wanted.member_epoch <= member.member_epoch else self._stale(member)",
    ),
    Mutant(
        "offsets of topics that a consumer group subscribes to expire",
        "modern/committing.py",
        "return None if self.uses_topic(commit.topic) else commit.commit_timestamp_ms",
        "return commit.commit_timestamp_ms",
    ),
    # ---------------------------------------------------------------- migration
    Mutant(
        "every policy allows an upgrade",
        "consumer/upgrade.py",
        "if not environment.config.group_consumer_migration_policy.allows_upgrade:",
        "if False:",
    ),
    Mutant(
        "every policy allows a downgrade",
        "consumer/downgrade.py",
        "        and environment.config.group_consumer_migration_policy.allows_downgrade\n",
        "",
    ),
    Mutant(
        "a group goes back with members of the new protocol",
        "consumer/downgrade.py",
        "        and classic_left == left\n",
        "        and classic_left > 0\n",
    ),
    Mutant(
        "an upgrade starts with epoch 0",
        "consumer/upgrade.py",
        "    epoch, members = group.generation_id, ",
        "    epoch, members = 1, ",
    ),
    Mutant(
        "upgraded members have nothing",
        "consumer/upgrade.py",
        "return metadata, MemberAssignment(epoch, epoch, assigned=assigned)",
        "return metadata, MemberAssignment(epoch, epoch)",
    ),
    Mutant(
        "classic members go back to what they have, not to what they should have",
        "consumer/downgrade.py",
        "in_hash_order(state.targets.get(member.member_id, {}))",
        "in_hash_order(member.assignment.assigned)",
    ),
    Mutant(
        "classic consumers may always join",
        "consumer/classic_members.py",
        "if environment.config.group_consumer_migration_policy is MigrationPolicy.DISABLED:",
        "if False:",
    ),
    Mutant(
        "classic members need not share a protocol",
        "consumer/classic_members.py",
        "if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not _is_supported(state, request.protocols):",
        "if request.protocol_type != CONSUMER_PROTOCOL_TYPE:",
    ),
    Mutant(
        "classic members are not told to join again",
        "consumer/classic_members.py",
        "        assignment.member_epoch < state.assignment_epoch\n        or assignment.state",
        "        assignment.state",
    ),
    Mutant(
        "a classic group is upgraded while it writes",
        "consumer/conversion.py",
        "            if self._is_written(group):\n",
        "            if False:\n",
    ),
    Mutant(
        "who waits in a classic group is forgotten when it is upgraded",
        "consumer/conversion.py",
        "                context.effects.replies += group.refuse_waiting(ErrorCode.REBALANCE_IN_PROGRESS)\n",
        "",
    ),
    Mutant(
        "a group that went back does not rebalance",
        "classic/kind.py",
        "        if trigger is not None:\n",
        "        if False:\n",
    ),
    # ---------------------------------------------------------------- the log
    Mutant(
        "the targets of a group outlive it",
        "consumer/state.py",
        "for member_id in {**self.members, **self.targets}",
        "for member_id in ()",
    ),
    Mutant(
        "the tombstone of a group comes first",
        "consumer/state.py",
        "    return [GroupTombstone(self.group_id, key) for key in keys]\n",
        "    return [GroupTombstone(self.group_id, key) for key in (keys[-1], *keys[:-1])]\n",
    ),
    Mutant(
        "a member's tombstones come in another order",
        "consumer/state.py",
        "        ConsumerGroupCurrentMemberAssignmentRecord,\n        ConsumerGroupTargetAssignmentMemberRecord,\n",
        "        ConsumerGroupTargetAssignmentMemberRecord,\n        ConsumerGroupCurrentMemberAssignmentRecord,\n",
    ),
    Mutant(
        "a member whose assignment is read first is lost",
        "modern/state.py",
        "        metadata = self.no_metadata(record.member_id) if before is None else before.metadata\n",
        "        if before is None:\n            return\n        metadata = before.metadata\n",
    ),
    Mutant(
        "a member goes with the first of its tombstones",
        "modern/state.py",
        "            has_assignment = before.assignment != self.NEW_ASSIGNMENT\n",
        "            has_assignment = False\n",
    ),
    Mutant(
        "a copy of a state shares its members",
        "modern/state.py",
        '        self._own("members")\n        if after is not None:\n',
        "        if after is not None:\n",
    ),
)
