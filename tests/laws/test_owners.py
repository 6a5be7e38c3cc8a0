"""Several processes fight for one log: they are killed, stalled and slow, and at most one of them answers at a time.

The log is the real one, in SQLite; what is played is time, and when looks reach the database and come back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from groupcoord import Config, GroupCoordinator, LogRecord, ManualClock, Ticket
from groupcoord.errors import ErrorCode, OwnershipLostError
from groupcoord.laws import OwnerLaws, check_acknowledged_commits, check_tokens, error_codes
from groupcoord.log_store import LogStoreError
from groupcoord.messages import (
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    TopicToCommit,
)
from groupcoord.storage.stores import SqliteLogStore, sql

LEASE_MS = 1_500
CONFIG = Config(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2)
COUNT = 3
PROCESSES = st.integers(0, COUNT - 1)
PAUSES_MS = st.sampled_from([1, 100, 499, 500, 1_000, 1_499, 1_500, 1_515, 3_000])
MEANWHILE = st.sampled_from(["takes over", "stands by", "nothing"])


class PlayedStore:
    """Log of one process, with ownership checks that begin and end on demand if they are late. Attributes: is_late:
    whether checks are late. began_ms: the start of the check in flight.
    """

    def __init__(self, path: Path, clock: ManualClock, laws: OwnerLaws, *, takes_over: bool) -> None:
        self.sql = Unflushed(path, lease_ms=LEASE_MS, takes_over=takes_over)
        self.is_late = False
        self.began_ms: int | None = None
        self._found: list[LogStoreError | None] = []
        self._clock = clock
        self._laws = laws
        self.lease_ms = LEASE_MS

    @property
    def number(self) -> int:
        """Return the number of this owner of the log."""
        assert self.sql._epoch is not None
        return self.sql._epoch

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        return self.sql.append(partition, ticket, records)

    def read(self, partition: int) -> Iterator[LogRecord]:
        found = list(self.sql.read(partition))
        self._laws.looked(self.number, self._clock.now_ms())
        return iter(found)

    def check_ownership(self) -> bool:
        """Look now, or begin to."""
        self.began_ms = self._clock.now_ms()
        if self.is_late:
            return False
        began_ms, self.began_ms = self.began_ms, None
        self.sql.check_ownership()
        self._laws.looked(self.number, began_ms)
        return True

    def make_look(self) -> None:
        """The look that has begun reaches the database."""
        if self.began_ms is not None and self.is_late and not self._found:
            try:
                self.sql.check_ownership()
            except LogStoreError as error:
                self._found.append(error)
            else:
                self._laws.looked(self.number, self.began_ms)
                self._found.append(None)

    def answer_look(self, coordinator: GroupCoordinator) -> None:
        """The answer of the database comes."""
        if self._found:
            coordinator.ownership_checked(self._found.pop())
            self.began_ms = None


class Unflushed(SqliteLogStore):
    """A file that no power failure is to survive."""

    careful = hasty = "PRAGMA synchronous = OFF"


class OwnersMachine(RuleBasedStateMachine):
    """Three processes that may each own the log, stand by, stall, wake up, and be gone."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name, "log.sqlite")
        self.clock = ManualClock(1_000_000)
        self.laws = OwnerLaws(LEASE_MS)
        self.stores: dict[int, PlayedStore] = {}
        self.coordinators: dict[int, GroupCoordinator] = {}
        self.stalled: set[int] = set()
        self.open: dict[int, dict[object, Any]] = {}
        self.acknowledged: list[tuple[str, str, int, int]] = []
        self._numbers = iter(range(10**9))
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(sql, "monotonic", lambda: self.clock.now_ms() / 1000)
        self._patch.setattr(sql, "sleep", lambda seconds: self.time_passes(-int(-seconds * 1000 // 1)))

    @initialize(is_late=st.booleans())
    def begin(self, is_late: bool) -> None:
        """One process is there."""
        self.a_process_takes_over(0)
        self.looks_become(0, is_late)

    # ------------------------------------------------------------ who owns the log

    @rule(who=PROCESSES)
    def a_process_takes_over(self, who: int) -> None:
        """By force; its predecessors may be alive."""
        self.a_process_is_killed(who)
        self.stalled.add(who)  # it waits in its constructor, while time passes for all others
        taken = PlayedStore(self._path, self.clock, self.laws, takes_over=True)
        self.stalled.discard(who)
        self._serve(who, taken)

    @rule(who=PROCESSES, pause_ms=st.sampled_from([100, 700]), rounds=st.integers(1, 20))
    def a_process_stands_by(self, who: int, pause_ms: int, rounds: int) -> None:
        """Start a process that tries to take the log from time to time."""
        self.a_process_is_killed(who)
        standby = PlayedStore(self._path, self.clock, self.laws, takes_over=False)
        for _ in range(rounds):
            if standby.sql.claim():
                self._serve(who, standby)
                return
            self.time_passes(pause_ms)
        standby.sql.close()

    @rule(who=PROCESSES)
    def a_process_is_killed(self, who: int) -> None:
        """Kill a process, which releases nothing."""
        self.coordinators.pop(who, None)
        self.stalled.discard(who)
        if who in self.stores:
            self.stores.pop(who).sql.abandon()

    @rule(who=PROCESSES)
    def a_process_ends(self, who: int) -> None:
        """Stop a process gracefully: its last responses precede the release."""
        if who in self.coordinators and who not in self.stalled:
            self.coordinators[who].close()
            self.speak(who)
            del self.coordinators[who]
            self.stores.pop(who).sql.close()

    def _serve(self, who: int, taken: PlayedStore) -> None:
        self.stores[who] = taken
        coordinator = GroupCoordinator(config=CONFIG, clock=self.clock, log_store=taken)
        coordinator.observe()
        self.coordinators[who], self.open[who] = coordinator, {}
        coordinator.load_all()
        self.speak(who)

    # ------------------------------------------------------------ stalls, slow looks, time

    @rule(who=PROCESSES, in_the_middle=st.booleans(), duration_ms=PAUSES_MS, meanwhile=MEANWHILE)
    def a_process_stalls_for_a_while(self, who: int, in_the_middle: bool, duration_ms: int, meanwhile: str) -> None:
        """Suspend a process for a while; another one may own the log afterwards."""
        if self.coordinators:
            who = self._one_of_them(who)
            self.a_process_stalls(who, in_the_middle)
            self._somebody_else(who, meanwhile)
            self.time_passes(duration_ms)
            self.a_process_wakes_up(who)
            self.somebody_asks(who)

    @rule(who=PROCESSES, to_the_database_ms=PAUSES_MS, back_ms=PAUSES_MS, meanwhile=MEANWHILE)
    def a_look_takes_its_time(self, who: int, to_the_database_ms: int, back_ms: int, meanwhile: str) -> None:
        """On its way there, or on its way back."""
        if self.coordinators:
            who = self._one_of_them(who)
            self.looks_become(who, True)
            self.time_passes(500)
            self.time_passes(to_the_database_ms)
            self.a_look_is_made(who)
            self._somebody_else(who, meanwhile)
            self.time_passes(back_ms)
            self.a_look_is_answered(who)
            self.somebody_asks(who)

    def _one_of_them(self, who: int) -> int:
        living = sorted(self.coordinators)
        return living[who % len(living)]

    def _somebody_else(self, who: int, does: str) -> None:
        if does == "takes over":
            self.a_process_takes_over((who + 1) % COUNT)
        elif does == "stands by":
            self.a_process_stands_by((who + 1) % COUNT, 100, 20)

    @rule(who=PROCESSES, in_the_middle=st.booleans())
    def a_process_stalls(self, who: int, in_the_middle: bool) -> None:
        """Suspend a process: between two requests, or with an unsent response."""
        if who in self.coordinators and who not in self.stalled:
            if in_the_middle:
                for _ in range(5):
                    self._submit(who)
            self.stalled.add(who)

    @rule(who=PROCESSES)
    def a_process_wakes_up(self, who: int) -> None:
        """Resume a process, which does not know what has happened."""
        if who in self.stalled:
            self.stalled.discard(who)
            self.speak(who)

    @rule(who=PROCESSES, is_late=st.booleans())
    def looks_become(self, who: int, is_late: bool) -> None:
        """Make ownership checks immediate, or late."""
        if who in self.stores and self.stores[who].began_ms is None:
            self.stores[who].is_late = is_late

    @rule(who=PROCESSES)
    def a_look_is_made(self, who: int) -> None:
        """A late look reaches the database."""
        if who in self.stores:
            self.stores[who].make_look()

    @rule(who=PROCESSES)
    def a_look_is_answered(self, who: int) -> None:
        """And its answer comes back."""
        if who in self.coordinators and who not in self.stalled:
            self.stores[who].answer_look(self.coordinators[who])
            self.speak(who)

    @rule(duration_ms=PAUSES_MS)
    def time_passes(self, duration_ms: int) -> None:
        """Advance the clock; processes that are not suspended run timers and get a request."""
        end_ms = self.clock.now_ms() + duration_ms
        while (now_ms := self.clock.now_ms()) < end_ms:
            self.clock.advance(min(100, end_ms - now_ms))
            for who in [who for who in self.coordinators if who not in self.stalled]:
                self.coordinators[who].tick()
                self.somebody_asks(who)

    # ------------------------------------------------------------ what is asked and said

    @rule(who=PROCESSES)
    def somebody_asks(self, who: int) -> None:
        """Send a client's request to this process, whoever the owner is."""
        if who in self.coordinators and who not in self.stalled:
            self._submit(who)
            self.speak(who)

    def _submit(self, who: int) -> None:
        number = next(self._numbers)
        request: Any = Heartbeat("crew", 1, "nobody")
        if number % 5 == 0:
            request = OffsetCommit("crew", (TopicToCommit("rooms", (OffsetToCommit(0, number),)),))
        elif number % 5 == 3:
            protocols = (JoinProtocol("deal", b""),)
            request = JoinGroup(f"crew {number % 4}", "", "work", protocols, requires_known_member_id=False)
        self.open[who][number] = request
        self.coordinators[who].submit(request, number)

    def speak(self, who: int) -> None:
        """Send the responses of a process."""
        coordinator, now_ms = self.coordinators[who], self.clock.now_ms()
        owner = self.stores[who].number
        for event in coordinator.take_events():  # before the answers, which may bring a look with them
            self.laws.told(owner, event, now_ms)
        for token, response in coordinator.take_replies():
            del self.open[who][token]
            assert response is not None
            self.laws.told(owner, response, now_ms)
            if isinstance(response, OffsetCommitResponse) and error_codes(response) == [ErrorCode.NONE]:
                self.acknowledged.append(("crew", "rooms", 0, token))
        for event in coordinator.take_events():
            self.laws.told(owner, event, now_ms)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Each request has its answer, or waits in one place."""
        for who, coordinator in self.coordinators.items():
            if who not in self.stalled:
                check_tokens(coordinator, self.open[who])

    def teardown(self) -> None:
        """Finally one process owns the log, has all acknowledged records, and answers."""
        try:
            for who in range(COUNT):
                self.a_process_wakes_up(who)
            self.a_process_takes_over(0)
            for _ in range(3):
                before = len(self.acknowledged)
                self.time_passes(LEASE_MS)
                assert len(self.acknowledged) > before
            for who in (1, 2):
                if who in self.coordinators and not self.stores[who].is_late:
                    assert isinstance(self.coordinators[who].lost, OwnershipLostError)
            check_acknowledged_commits(self.stores[0], range(2), self.acknowledged)
        finally:
            for who in range(COUNT):
                self.a_process_is_killed(who)
            self._patch.undo()
            self._folder.cleanup()


TestOwners = OwnersMachine.TestCase
TestOwners.settings = settings(max_examples=40, stateful_step_count=15)


@pytest.mark.slow
class TestOwnersForLong(OwnersMachine.TestCase):  # type: ignore[name-defined,misc]
    """The same, for many more lives."""

    settings = settings(max_examples=3_000, stateful_step_count=40, deadline=None)
