"""Bugs that somebody could make in share groups (KIP-932): in the group coordinator, and in the share coordinator."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

SHARE_GROUP_MUTANTS = (
    Mutant(
        "a start offset goes back",
        "share_state/states.py",
        "if start_offset < known.start_offset:",
        "if False:",
    ),
    Mutant(
        "an earlier attempt wins",
        "share_state/batches.py",
        "(-batch.delivery_count, -batch.delivery_state, batch.last_offset)",
        "(batch.delivery_count, -batch.delivery_state, batch.last_offset)",
    ),
    Mutant(
        "an older leader may write",
        "share_state/partition.py",
        "if leader_epoch < known.snapshot.leader_epoch:",
        "if False:",
    ),
    Mutant(
        "a group that begins anew fences nobody",
        "share_state/partition.py",
        "if entry.state_epoch < state.snapshot.state_epoch:",
        "if False:",
    ),
    Mutant(
        "snapshots are never written",
        "share_state/partition.py",
        "if state.update_count < self._config.share_coordinator_snapshot_update_records_per_snapshot:",
        "if True:",
    ),
    Mutant(
        "partitions that have a state are given to nobody",
        "share/heartbeat.py",
        "if state.assignment_epoch >= state.epoch and not state.is_initialized_assigned():",
        "if state.assignment_epoch >= state.epoch and state.epoch < 0:",
    ),
    Mutant(
        "states of different attempts are merged",
        "share_state/batches.py",
        "last[2:] == batch[2:]",
        "last[2] == batch[2]",
    ),
    Mutant(
        "states reach behind the start offset",
        "share_state/batches.py",
        "batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)",
        "batch",
    ),
    Mutant(
        "a new leader is not noted",
        "share_state/partition.py",
        "if entry.leader_epoch == snapshot.leader_epoch:",
        "if entry.leader_epoch >= 0:",
    ),
    Mutant(
        "an older group begins anew",
        "share_state/partition.py",
        "if known is not None and entry.state_epoch < known.snapshot.state_epoch:",
        "if False:",
    ),
    Mutant(
        "snapshots are counted anew",
        "share_state/partition.py",
        "0 if known is None else known.snapshot.snapshot_epoch + 1,",
        "0,",
    ),
    Mutant(
        "nothing is finished where a group has not begun",
        "share_state/partition.py",
        "UNKNOWN_COUNT if entry.start_offset == NO_START_OFFSET else 0,",
        "0,",
    ),
    Mutant(
        "writes don't wait for each other",
        "share_state/partition.py",
        "if question.key in self._waiting and question.refusal is not StateSummary:",
        "if False:",
    ),
    Mutant(
        "a summary waits for the log",
        "share_state/partition.py",
        "if question.key in self._waiting and question.refusal is not StateSummary:",
        "if question.key in self._waiting:",
    ),
    Mutant(
        "young snapshots are written anew",
        "share_state/partition.py",
        "if snapshot.key not in self._waiting and now_ms - snapshot.write_time_ms >= interval_ms",
        "if snapshot.key not in self._waiting",
    ),
    Mutant(
        "a topic that goes during a write leaves its states",
        "share_state/partition.py",
        "self._forgotten.add(key)",
        "continue",
    ),
    Mutant(
        "who was told that it takes too long is told again",
        "share_state/partition.py",
        "        append.question = None\n",
        "",
    ),
    Mutant(
        "who comes to a log that takes too long waits as well",
        "share_state/partition.py",
        "            self._overdue.add(key)\n",
        "",
    ),
    Mutant(
        "what is older than any snapshot is deleted, and some more",
        "share_state/states.py",
        "return min((state.log_offset for",
        "return max((state.log_offset for",
    ),
    Mutant(
        "an update is as good as a snapshot",
        "share_state/states.py",
        "ShareState(changed, known.update_count + 1, known.log_offset)",
        "ShareState(changed, known.update_count + 1, log_offset)",
    ),
    Mutant(
        "less is finished than before",
        "share_state/states.py",
        "return known.start_offset, max(delivery_complete_count, known.delivery_complete_count)",
        "return known.start_offset, delivery_complete_count",
    ),
    Mutant(
        "who subscribes anew is not told what it has",
        "share/heartbeat.py",
        "        or request.subscribed_topic_names is not None\n",
        "",
    ),
    Mutant(
        "a full share group has room for one more",
        "share/heartbeat.py",
        "check_group_size(len(state.members) + 1, max_size)",
        "check_group_size(len(state.members), max_size)",
    ),
    Mutant(
        "topics are kept in the order of the request",
        "share/heartbeat.py",
        "tuple(sorted(set(names), key=string_sort_key))",
        "tuple(names)",
    ),
    Mutant(
        "states that are not made are not asked for again",
        "share/heartbeat.py",
        "waits = now_ms < written_ms + environment.config.group_share_initialize_retry_interval_ms",
        "waits = True",
    ),
    Mutant(
        "a new partition is begun by the settings",
        "share/heartbeat.py",
        "FIRST_OFFSET if known.knows(topic_id) else BY_POLICY_OFFSET",
        "BY_POLICY_OFFSET",
    ),
    Mutant(
        "an empty share group's target is out of date",
        "share/heartbeat.py",
        "    if not draft.state.members:\n        draft.write(ShareGroupTarget",
        "    if False:\n        draft.write(ShareGroupTarget",
    ),
    Mutant(
        "what nobody reads is to be given away",
        "share/state.py",
        "            if name in self.name_subscribers\n",
        "",
    ),
    Mutant(
        "what is begun anew is still to be forgotten",
        "share/state_partitions.py",
        "            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in partitions},\n"
        "        )\n"
        "\n"
        "    def complete",
        "            self.deleting,\n        )\n\n    def complete",
    ),
    Mutant(
        "a state that could not be made is still expected",
        "share/state_partitions.py",
        "return evolve(self, initializing=_without(self.initializing, partitions))",
        "return self",
    ),
    Mutant(
        "it is forgotten when states were asked for",
        "share/membership.py",
        "            group.state_partitions_ms = now_ms\n",
        "            pass\n",
    ),
    Mutant(
        "a load asks for states at once",
        "share/kind.py",
        "        group.state_partitions_ms = now_ms\n",
        "",
    ),
    Mutant(
        "strangers may leave",
        "share/membership.py",
        "            find_member(draft.state, request.member_id)\n",
        "",
    ),
    Mutant(
        "a topic that goes during a group's write stays",
        "share/membership.py",
        "                group.answers.append(gone)\n",
        "",
    ),
    Mutant(
        "administrators are not told what the log refused",
        "share/membership.py",
        "        self._refuse_changes(written, error_code)\n        super().on_failure(",
        "        super().on_failure(",
    ),
    Mutant(
        "offsets are altered under members",
        "share/offsets.py",
        "    check_empty(draft)\n    state = draft.state\n    existing = topics",
        "    state = draft.state\n    existing = topics",
    ),
    Mutant(
        "what is finished counts as lag",
        "share/descriptions.py",
        "latest - start - count",
        "latest - start",
    ),
    Mutant(
        "a long name is a member id",
        "front/share_groups.py",
        "if not 0 < units <= MEMBER_ID_UNITS_MAX:",
        "if not 0 < units:",
    ),
)
