"""Bugs that let two owners of a log answer at a time, or lose what one of them has promised."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

OWNERSHIP = "../coordinator/ownership.py"
SQL_STORE = "../storage/sql/store.py"

OWNER_MUTANTS = (
    Mutant(
        "answers leave when the lease is over",
        OWNERSHIP,
        "        if self._clock.now_ms() < self.lease_end_ms:\n            return True\n",
        "        if self.lost is None:\n            return True\n",
    ),
    Mutant(
        "a lease begins with the answer to a look",
        OWNERSHIP,
        "            self._proven(asked_ms)\n",
        "            self._proven(self._clock.now_ms())\n",
    ),
    Mutant(
        "a lost log is answered for until the lease is over",
        OWNERSHIP,
        "            self.rest()\n            self._on_lost(error)\n",
        "            self._on_lost(error)\n",
    ),
    Mutant(
        "who is not the owner any more tells what its groups refused",
        "front/refusals.py",
        "        case OffsetCommitResponse() | TxnOffsetCommitResponse():  # also",
        "        case None:  # also",
    ),
    Mutant(
        "nobody looks while nothing is written",
        OWNERSHIP,
        "        if self.next_look_ms is None or now_ms < self.next_look_ms:\n",
        "        if self.next_look_ms is None or self.lease_end_ms > 0:\n",
    ),
    Mutant(
        "events are told when the lease is over",
        "../coordinator/group_coordinator.py",
        "if not events or not (self.lost or self.may_answer()):",
        "if not events:",
    ),
    Mutant(
        "who takes a log over does not wait for the lease of the one before",
        SQL_STORE,
        "        sleep(_seconds(before))\n",
        "",
    ),
    Mutant(
        "who stands by takes the log from an owner that looks",
        SQL_STORE,
        "            if owner != self._seen:\n",
        "            if self._seen is None or owner.epoch != self._seen.epoch:\n",
    ),
    Mutant(
        "who stands by takes a log whose owner has just looked again",
        SQL_STORE,
        "self._become_owner(lambda found: found == owner)",
        "self._become_owner(lambda found: True)",
    ),
    Mutant(
        "a look takes any owner for itself",
        SQL_STORE,
        "SET looks = looks + 1 WHERE epoch = {self._epoch}",
        "SET looks = looks + 1",
    ),
    Mutant(
        "a killed owner has let go of the log",
        SQL_STORE,
        "lease_ms = {self._lease_ms}, looks = 0",
        "lease_ms = 0, looks = 0",
    ),
)
