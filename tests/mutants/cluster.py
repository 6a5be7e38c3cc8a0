"""Bugs that somebody could make where several owners share a log: each would lose, double or reorder something."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

WRITER, MESSAGES, MEMBERSHIP, SHARING = (
    f"../cluster/{name}.py" for name in ("slot_writer", "slot_messages", "membership", "sharing")
)

CLUSTER_MUTANTS = (
    Mutant(
        "two puts are in flight",
        WRITER,
        "        self._is_out = self._current is not None\n        return self._current",
        """        operation = self._current
        self._is_out = operation is not None
        if self._waiting and self.state is State.OWNER and isinstance(operation, Put):
            self._current, self._is_out, self.last_slot = None, False, operation.slot
        return operation""",
    ),
    Mutant(
        "who takes over puts no fence",
        WRITER,
        "return self._put(Kind.FENCE,",
        "return self._put(Kind.BATCHES,",
    ),
    Mutant(
        "who takes over does not read up to its fence",
        WRITER,
        "if slots[-1].number < self.epoch:",
        "if False:",
    ),
    Mutant(
        "a put that is refused is not read back",
        WRITER,
        "            self._refused_by = last_slot\n            self._current = Read(put.slot)",
        '            self._lose("another owner is there", is_unknown=False)',
    ),
    Mutant(
        "a snapshot's slots are purged before its manifest is there",
        WRITER,
        "elif message.kind is Kind.MANIFEST:",
        "elif message.kind is Kind.CHUNK:",
    ),
    Mutant(
        "what was on its way when a snapshot was made is purged with what it stands for",
        WRITER,
        "self._purge_before = self._covered + 1",
        "self._purge_before = slot",
    ),
    Mutant(
        "what was appended while a snapshot was written is taken for its own",
        MESSAGES,
        "if number > manifest.covered",
        "if number > slot",
    ),
    Mutant(
        "chunks count without their manifest",
        MESSAGES,
        "chunks.setdefault((message.tag, snapshot), {})[place] = message.body[_CHUNK.size :]",
        "base = [message.body[_CHUNK.size :]]",
    ),
    Mutant(
        "a put of unknown outcome counts as written",
        WRITER,
        "if result is UNKNOWN:",
        "result = None if isinstance(operation, Put) and result is UNKNOWN else result\n        if result is UNKNOWN:",
    ),
    Mutant(
        "a node answers after its lease",
        MEMBERSHIP,
        "return self._lease_end_ms is not None and now_ms < self._lease_end_ms",
        "return self._lease_end_ms is not None",
    ),
    Mutant(
        "a lease lasts for longer than it should",
        MEMBERSHIP,
        "began_ms + self._lease_ms)",
        "began_ms + 2 * self._lease_ms)",
    ),
    Mutant(
        "who was taken over from goes on",
        MEMBERSHIP,
        "if self._known.get(partition, epoch) > epoch]",
        "if False]",
    ),
    Mutant(
        "who was taken over from goes on when that one has given it up",
        MEMBERSHIP,
        "self._learn(one.known)",
        "self._learn(one.owned)",
    ),
    Mutant(
        "a log partition is served before that is announced",
        SHARING,
        "if self._said.get(partition) == epoch != self._loaded.get(partition)",
        "if epoch != self._loaded.get(partition)",
    ),
    Mutant(
        "a load of what was read before counts as a look",
        "../coordinator/ownership.py",
        "if not isinstance(self._store, SharedStore):",
        "if True:",
    ),
    Mutant(
        "answers that wait for a look outlive their log partition",
        "../coordinator/group_coordinator.py",
        "            self._ownership.disown_withheld()",
        "            pass",
    ),
    Mutant(
        "what a replica finds out after its lease is told when its log partition fails",
        "../coordinator/group_coordinator.py",
        "        self._forget_untold(partition.index)",
        "        pass",
    ),
    Mutant(
        "a replica that leaves is chosen until it counts as dead",
        MEMBERSHIP,
        "if node_id not in silent and not one.leaves}",
        "if node_id not in silent}",
    ),
)
