"""Bugs that somebody could make in share groups: in the share coordinator, and at the leader of a share-partition."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

SHARE_MUTANTS = (
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
        "anybody may acknowledge",
        "share_partition/partition.py",
        "if state.state is not DeliveryState.ACQUIRED or state.member_id != member_id or state.pending is not None:",
        "if state.state is not DeliveryState.ACQUIRED or state.pending is not None:",
    ),
    Mutant(
        "a refused acknowledgement counts in part",
        "share_partition/partition.py",
        "            _take_back(run for run, _ in moved)\n",
        "",
    ),
    Mutant(
        "a record comes more often than the limit",
        "share_partition/partition.py",
        "if kind is AcknowledgeType.RELEASE and state.count < settings.delivery_count_limit:",
        "if kind is AcknowledgeType.RELEASE:",
    ),
    Mutant(
        "a lock is never over",
        "share_partition/partition.py",
        "if state.state is not DeliveryState.ACQUIRED or state.locked_until_ms > until_ms:",
        "if True:",
    ),
    Mutant(
        "holes are passed over",
        "share_partition/partition.py",
        "                return expected  # a hole",
        "                pass",
    ),
    Mutant(
        "bad records take others along",
        "share_partition/acquiring.py",
        "return max(1, size >> (count - self.throttled_from + 1))",
        "return size",
    ),
    Mutant(
        "a limit of records is rounded up",
        "share_partition/acquiring.py",
        "    if is_limit:\n        return end",
        "    if False:\n        return end",
    ),
    Mutant(
        "what somebody has can be had",
        "share_partition/in_flight.py",
        "return self.state is DeliveryState.AVAILABLE and self.pending is None",
        "return self.state not in FINISHED and self.pending is None",
    ),
    Mutant(
        "a new leader takes what is finished for available",
        "share_partition/partition.py",
        "known = KNOWN_STATES.get(state)",
        "known = KNOWN_STATES.get(state) and DeliveryState.AVAILABLE",
    ),
    Mutant(
        "what is accepted is not written down",
        "share_partition/partition.py",
        "        batches = merge_batches((), [run.batch(outcome) for run, outcome in moved], self.start_offset)\n",
        "        batches = merge_batches((), [run.batch(outcome) for run, outcome in moved], self.end_offset)\n",
    ),
    Mutant(
        "partitions that have a state are given to nobody",
        "share/heartbeat.py",
        "if state.assignment_epoch >= state.epoch and not state.is_initialized_assigned():",
        "if state.assignment_epoch >= state.epoch and state.epoch < 0:",
    ),
)
