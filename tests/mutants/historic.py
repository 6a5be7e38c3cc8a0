"""Bugs that Kafka has had and that broke no law there was: now each has one, by which it dies in ``tests/laws``."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

HISTORIC_MUTANTS = (
    Mutant(
        "KAFKA-10284: a static member's return is not written",
        "classic/static_members.py",
        "self._context.writer.begin([group.to_record(assignments)], written)",
        "self.on_durable(written, now_ms)",
    ),
    Mutant(
        "KAFKA-7909: nobody looks who is missing when a session ends",
        "classic/rebalance.py",
        "        elif group.all_joined:\n            # Unlike",
        "        elif False:\n            # Unlike",
    ),
    Mutant(
        "KAFKA-19163: expiry ends a group with an open transaction",
        "offsets/retention.py",
        "return due, not kept and not pending and not offsets.has_open_transaction(group_id)",
        "return due, not kept and not pending",
    ),
)
