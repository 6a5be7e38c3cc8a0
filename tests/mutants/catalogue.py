"""Bugs that somebody could make in the core, one line each: the suite must notice every one.

They come from what is hard to get right: the order of checks, late answers of the log, timers, static members, the
delays of a first rebalance, offsets and transactions. A mutant replaces text that stands exactly once in its file.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A seeded bug: in ``file``, named from the folder of the core, ``old`` becomes ``new``."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    # ---------------------------------------------------------------- rebalances
    Mutant(
        "the size limit is not looked at",
        "classic/group.py",
        "is_counted, count = member is not None, len(self.members)",
        "is_counted, count = True, 0",
    ),
    Mutant(
        "a late acknowledgement of an older generation is taken",
        "classic/rebalance.py",
        "return group.state is GroupState.COMPLETING_REBALANCE and group.generation_id == written.generation_id",
        "return group.state is GroupState.COMPLETING_REBALANCE",
    ),
    Mutant(
        "a late acknowledgement is taken in any state",
        "classic/rebalance.py",
        "return group.state is GroupState.COMPLETING_REBALANCE and group.generation_id == written.generation_id",
        "return group.generation_id == written.generation_id",
    ),
    Mutant(
        "the generation does not grow when the group falls empty",
        "classic/rebalance.py",
        "        group.generation_id += 1\n        group.pending_sync.clear()\n",
        "        group.generation_id += bool(group.members)\n        group.pending_sync.clear()\n",
    ),
    Mutant(
        "silent members stay in the next generation",
        "classic/rebalance.py",
        "if not m.is_static and m.parked_join is None]",
        "if not m.is_static and m.parked_join is None and m.is_new]",
    ),
    Mutant(
        "static members that did not rejoin are dropped",
        "classic/rebalance.py",
        "if not m.is_static and m.parked_join is None]",
        "if m.parked_join is None]",
    ),
    Mutant(
        "the session of a dropped member goes on",
        "classic/rebalance.py",
        "        self._timers.cancel(member.session_timer)\n        group.remove(member)",
        "        group.remove(member)",
    ),
    Mutant(
        "sessions do not restart with a generation",
        "classic/rebalance.py",
        "                self._effects.reply(join.token, self.joined_response(group, member))\n"
        "            self.renew_session(member, now_ms)",
        "                self._effects.reply(join.token, self.joined_response(group, member))",
    ),
    Mutant(
        "followers see the members too",
        "classic/rebalance.py",
        "members=group.joined_members() if group.leader == member.member_id else (),",
        "members=group.joined_members(),",
    ),
    Mutant(
        "the first rebalance ends when all have joined",
        "classic/rebalance.py",
        "group.all_joined and not group.is_initial_rebalance:",
        "group.all_joined:",
    ),
    Mutant(
        "newcomers do not extend the first rebalance",
        "classic/rebalance.py",
        "if group.is_initial_rebalance and group.new_member_added and group.remaining_delay_ms:",
        "if False:",
    ),
    Mutant(
        "the first rebalance is extended without an end",
        "classic/rebalance.py",
        "            group.remaining_delay_ms -= delay_ms\n",
        "",
    ),
    Mutant(
        "a handed-out id does not hold up the round",
        "classic/group.py",
        "return len(self.members) == self.waiting_joins and not self.pending_members",
        "return len(self.members) == self.waiting_joins",
    ),
    Mutant(
        "waiting syncs survive the start of a rebalance",
        "classic/rebalance.py",
        "            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)\n        self.clear",
        "            pass\n        self.clear",
    ),
    Mutant(
        "a waiting member expires",
        "classic/member.py",
        "return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)",
        "return False",
    ),
    Mutant(
        "a removed member's waiting join is forgotten",
        "classic/rebalance.py",
        "self._effects.reply(member.parked_join.token, JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))",
        "pass",
    ),
    Mutant(
        "the leader need not have joined",
        "classic/group.py",
        "if leader is not None and leader.parked_join is not None:",
        "if leader is not None:",
    ),
    # ---------------------------------------------------------------- the vote
    Mutant(
        "a protocol that not all support can win",
        "classic/group.py",
        "candidates = {name for name, count in self.supported_protocols.items() if count == size}",
        "candidates = {name for name, count in self.supported_protocols.items() if count}",
    ),
    Mutant(
        "a tie goes to the first voter",
        "classic/group.py",
        "return next(name for name in hash_map_order(votes) if votes[name] == most)",
        "return next(name for name in votes if votes[name] == most)",
    ),
    Mutant(
        "an incompatible newcomer is let in",
        "classic/group.py",
        "self.supported_protocols.get(name, 0) == size for name, _ in protocols",
        "name in self.supported_protocols for name, _ in protocols",
    ),
    # ---------------------------------------------------------------- joins
    Mutant(
        "waiting joins may exceed the size limit",
        "classic/group.py",
        "is_counted, count = member is not None and member.parked_join is not None, self.waiting_joins",
        "is_counted, count = True, 0",
    ),
    Mutant(
        "an unchanged follower starts a rebalance",
        "classic/membership.py",
        "group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and not is_leader)",
        "group.state is GroupState.COMPLETING_REBALANCE",
    ),
    Mutant(
        "an unchanged leader starts none",
        "classic/membership.py",
        "(group.state is GroupState.STABLE and not is_leader)",
        "(group.state is GroupState.STABLE)",
    ),
    Mutant(
        "a replaced join is never given back",
        "classic/membership.py",
        "            self._effects.reply(replaced.token, None)\n",
        "            pass\n",
    ),
    Mutant(
        "a replaced sync is never given back",
        "classic/membership.py",
        "        if member.parked_sync is not None:\n            self._effects.reply(member.parked_sync.token, None)\n"
        "        member.parked_sync = Parked(token)",
        "        member.parked_sync = Parked(token)",
    ),
    Mutant(
        "the record of a refused join's new group is not written",
        "classic/membership.py",
        "            self._context.writer.begin([record], WhenCreated(group))",
        "            group.members and self._context.writer.begin([record], WhenCreated(group))",
    ),
    # ---------------------------------------------------------------- sync, heartbeat, leave
    Mutant(
        "a sync of another generation is taken",
        "classic/membership.py",
        "        elif request.generation_id != group.generation_id:\n"
        "            self._effects.reply(token, SyncGroupResponse(ErrorCode.ILLEGAL_GENERATION))\n",
        "",
    ),
    Mutant(
        "heartbeats do not renew the session",
        "classic/membership.py",
        "                self._timers.arm(member.session_timer, now_ms + member.session_timeout_ms)\n"
        "                is_rebalancing",
        "                is_rebalancing",
    ),
    Mutant(
        "a refused heartbeat renews the session",
        "classic/membership.py",
        "            elif request.generation_id != group.generation_id:\n                error_code =",
        "            elif self._timers.arm(member.session_timer, now_ms + member.session_timeout_ms) or (\n"
        "                request.generation_id != group.generation_id\n"
        "            ):\n"
        "                error_code =",
    ),
    Mutant(
        "heartbeats do not tell of a rebalance",
        "classic/membership.py",
        "ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE",
        "ErrorCode.NONE",
    ),
    Mutant(
        "a leave does not start a rebalance",
        "classic/membership.py",
        "            return self._rebalance.start(group, trigger, now_ms)\n",
        "            return None\n",
    ),
    Mutant(
        "the answer to the last leave does not wait for the log",
        "classic/membership.py",
        "        if emptied is None:\n            self._effects.reply(token, response)",
        "        if True:\n            self._effects.reply(token, response)",
    ),
    # ---------------------------------------------------------------- static members
    Mutant(
        "a wrong pair of ids is not fenced",
        "classic/group.py",
        "                return ErrorCode.FENCED_INSTANCE_ID\n",
        "                return ErrorCode.UNKNOWN_MEMBER_ID\n",
    ),
    Mutant(
        "a static restart always rebalances",
        "classic/static_members.py",
        "if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:",
        "if False:",
    ),
    Mutant(
        "a static restart never rebalances",
        "classic/static_members.py",
        "if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:",
        "if group.state is GroupState.STABLE:",
    ),
    Mutant(
        "an old client that leads is told so",
        "classic/static_members.py",
        "response = self._response(group, member, written.former.leader)",
        'response = self._response(group, member, group.leader or "")',
    ),
    Mutant(
        "a failed replacement keeps the new time-outs",
        "classic/static_members.py",
        "former.rebalance_timeout_ms, former.session_timeout_ms)",
        "member.rebalance_timeout_ms, member.session_timeout_ms)",
    ),
    Mutant(
        "the replaced member's requests are forgotten",
        "classic/static_members.py",
        "self._effects.reply(join.token, JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, old_member_id))",
        "pass",
    ),
    # ---------------------------------------------------------------- offsets
    Mutant(
        "a commit of another generation is taken",
        "classic/group.py",
        "if request.generation_id != self.generation_id:",
        "if False:",
    ),
    Mutant(
        "commits are taken while assignments are awaited",
        "classic/group.py",
        "            return ErrorCode.REBALANCE_IN_PROGRESS\n",
        "            pass\n",
    ),
    Mutant(
        "commits do not renew the session",
        "classic/group.py",
        "        timers.arm(member.session_timer, now_ms + member.session_timeout_ms)\n",
        "",
    ),
    Mutant(
        "a producer's commit of another generation is taken",
        "classic/group.py",
        "return ErrorCode.NONE if request.generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION",
        "return ErrorCode.NONE",
    ),
    Mutant(
        "the offsets of one commit share their place in the log",
        "offsets/cache.py",
        "            log_offset += len(columns[0])\n",
        "",
    ),
    Mutant(
        "a commit that brought a retention keeps its leader epochs",
        "offsets/drafting.py",
        "columns = columns._replace(leader_epochs=(NO_LEADER_EPOCH,) * len(columns.offsets))",
        "pass",
    ),
    Mutant(
        "columns replace others although their partitions overlap in part",
        "offsets/cache.py",
        "known is not None and known.columns[0] == indexes:",
        "known is not None:",
    ),
    Mutant(
        "what a commit leaves of an older one is lost",
        "offsets/cache.py",
        "                if index not in taken:",
        "                if False:",
    ),
    Mutant(
        "the metadata limit counts characters, not UTF-16 units",
        "offsets/drafting.py",
        'return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2',
        "return len(text)",
    ),
    Mutant(
        "a per-request retention is ignored",
        "offsets/retention.py",
        "            return now_ms >= kind.expire_timestamp_ms",
        "            return False",
    ),
    Mutant(
        "offsets expire a moment late",
        "offsets/retention.py",
        "return now_ms - base_ms >= self._context",
        "return now_ms - base_ms > self._context",
    ),
    Mutant(
        "a deleted group leaves its offsets behind",
        "administration.py",
        "return tombstones + group.tombstones()",
        "return group.tombstones()",
    ),
    Mutant(
        "groups with members can be deleted",
        "administration.py",
        "return ErrorCode.NONE if self.may_delete(group) else ErrorCode.NON_EMPTY_GROUP",
        "return ErrorCode.NONE",
    ),
    # ---------------------------------------------------------------- transactions
    Mutant(
        "transactional offsets are visible at once",
        "offsets/cache.py",
        "        if kind.producer_id != NO_PRODUCER_ID:",
        "        if False:",
    ),
    Mutant(
        "an abort commits",
        "offsets/cache.py",
        "            if marker.committed:\n",
        "            if True:\n",
    ),
    Mutant(
        "a tombstone spares open transactions",
        "offsets/cache.py",
        "        if group_id in self._open:\n            for record in records:",
        "        if group_id in self._open:\n            for record in ():",
    ),
    Mutant(
        "stable fetches do not see open transactions",
        "offsets/commits.py",
        "checks_stability = require_stable and is_known and offsets.has_open_transaction(group_id)",
        "checks_stability = False",
    ),
    # ---------------------------------------------------------------- log, load, routing
    Mutant(
        "a failed commit is reported as done",
        "append_errors.py",
        "return _TRANSLATION.get(error_code, error_code)",
        "return ErrorCode.NONE",
    ),
    Mutant(
        "not enough replicas is passed through",
        "append_errors.py",
        "    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,\n",
        "",
    ),
    Mutant(
        "sessions do not start with a load",
        "classic/kind.py",
        "        for member in group.members.values():\n            self._rebalance.renew_session(member, now_ms)\n",
        "",
    ),
    Mutant(
        "an oversized group is served after a load",
        "classic/kind.py",
        "if check_group_size(len(group.members), self._context.config.group_max_size) is not ErrorCode.NONE:",
        "if False:",
    ),
    Mutant(
        "waiting requests are forgotten when the partition moves",
        "partition.py",
        "            self._effects.replies += group.refuse_waiting(ErrorCode.NOT_COORDINATOR)\n",
        "",
    ),
    Mutant(
        "the hash counts code points instead of UTF-16 units",
        "java/hashing.py",
        'encoded = text.encode("utf-16-be", "surrogatepass")',
        'encoded = "".join(c if ord(c) < 65536 else "?" for c in text).encode("utf-16-be", "surrogatepass")',
    ),
    Mutant(
        "heartbeats are refused while a partition loads",
        "front/refusals.py",
        "return HeartbeatResponse(ErrorCode.NONE)",
        "return HeartbeatResponse(error_code)",
    ),
    Mutant(
        "a postponed timer fires at its old time",
        "timers.py",
        "            if entry == (timer.deadline_ms, timer._sequence):\n                return",
        "            if True:\n                return",
    ),
    # ---------------------------------------------------------------- a slow log, producers
    Mutant(
        "who was told that the log is slow is told again",
        "partition.py",
        "        append.held.clear()\n",
        "",
    ),
    Mutant(
        "an acknowledgement for several leaves room for what was refused at once",
        "append_queue.py",
        "answer -= len(entry.records) if refusal is None else 0",
        "answer -= len(entry.records)",
    ),
    Mutant(
        "what was refused at once waits for one more answer",
        "append_queue.py",
        "while (number := number + 1) in self.refusals:",
        "while False:",
    ),
    Mutant(
        "an append is overdue a moment late",
        "append_timeouts.py",
        "while self._deadlines and self._deadlines[0][1] <= now_ms:",
        "while self._deadlines and self._deadlines[0][1] < now_ms:",
    ),
    Mutant(
        "a slow deletion brings the group back",
        "partition.py",
        "WhenDeleted: Outcome(self.administration.on_durable, self.administration.on_failure),",
        "WhenDeleted: Outcome(\n"
        "                self.administration.on_durable, self.administration.on_failure, "
        "self.administration.on_failure\n"
        "            ),",
    ),
    Mutant(
        "a marker of an earlier transaction ends the present one",
        "offsets/producers.py",
        "if known is not None and producer_epoch < known.producer_epoch:",
        "if known is not None and producer_epoch < 0:",
    ),
    Mutant(
        "a producer is verified for no group",
        "front/request_router.py",
        "if verify is None or not request.group_id or self._partitions.is_closed:",
        "if verify is None:",
    ),
)
