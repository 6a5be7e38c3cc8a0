"""The published state machine passes sound stores and transports, and finds what is wrong with others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from groupcoord import LogRecord, MemoryLogStore, StoreContractError, Ticket
from groupcoord.config import MigrationPolicy
from groupcoord.core.log.records import GroupTombstone, OffsetCommitRecord, OffsetTombstone
from groupcoord.laws import LawBrokenError
from groupcoord.log_store import LogStore, LogStoreError, NotEnoughReplicasError
from groupcoord.messages import OffsetCommit, Request
from groupcoord.testing import CoordinatorMachine, FaultyLogStore
from groupcoord.testing.contracts.faulty_store import Answer
from groupcoord.testing.machine.modern_members import Kip848Consumer

SETTINGS = settings(
    max_examples=300, stateful_step_count=30, deadline=None, database=None, phases=[Phase.generate], derandomize=True
)


class TestCoordinatorMachine(CoordinatorMachine.TestCase):
    """Our own coordinator over a log in memory keeps every law."""

    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def started_machine(kind: type[CoordinatorMachine] = CoordinatorMachine) -> CoordinatorMachine:
    """Return a machine with a log that answers at once, and no delays."""
    machine = kind()
    machine.start(initial_delay_ms=0, log_is_late=False, policy=MigrationPolicy.BIDIRECTIONAL, assignment_interval_ms=0)
    return machine


def modern_consumer(machine: CoordinatorMachine, instance_id: str | None, brings_id: bool) -> Kip848Consumer:
    """Start a consumer of group ``alpha`` that speaks the consumer protocol and reads ``orders``."""
    consumer = machine.modern_consumer_starts(
        group_id="alpha",
        instance_id=instance_id,
        subscription=(("orders",), ""),
        assignor=None,
        gives_back=None,
        brings_id=brings_id,
    )
    assert isinstance(consumer, Kip848Consumer)
    return consumer


def test_an_assignment_that_nobody_reads_is_asked_for_again() -> None:
    """A late heartbeat fetches a member's new assignment, which is sent once; the member still becomes stable."""
    machine = started_machine()
    owner = modern_consumer(machine, instance_id=None, brings_id=True)
    newcomer = modern_consumer(machine, instance_id=None, brings_id=True)
    for consumer in (owner, newcomer, owner, owner):  # who gives partitions back in the end
        machine.consumer_goes_on(consumer=consumer, commits=False)
    machine.late_requests_arrive(who=1, behind=0)
    machine.fleet.deliver()
    assert not newcomer.owned
    machine.teardown()
    assert newcomer.owned


def test_a_static_member_converts_its_group_before_another_has_its_share() -> None:
    """Kafka doesn't rebalance then, so the machine lets the group do so before it looks at who has what."""
    machine = started_machine()
    machine.group_comes_to_be(are_modern=[False], gives_back=None, group_id="alpha", instance_id=None, rounds=1)
    static = modern_consumer(machine, instance_id="i1", brings_id=False)
    machine.everybody_goes_on(commits=False, interval_ms=0, rounds=5)
    machine.consumer_changes_its_protocol(consumer=static, says="see you")
    machine.teardown()


def test_a_restart_forgets_the_rebalance_of_a_converted_group() -> None:
    """As in Kafka, a dead member's partitions then have no owner until the next rebalance."""
    machine = started_machine()
    dead = modern_consumer(machine, instance_id=None, brings_id=False)
    machine.everybody_goes_on(commits=False, interval_ms=0, rounds=1)
    machine.consumer_starts(group_id="alpha", instance_id=None, protocols=("range", "roundrobin"))
    machine.topic_is_deleted()
    machine.everybody_goes_on(commits=False, interval_ms=0, rounds=1)
    machine.consumer_dies(consumer=dead)
    machine.time_passes(duration_ms=9999)
    machine.everybody_goes_on(commits=False, interval_ms=3000, rounds=4)
    machine.process_is_killed(written=0)
    machine.teardown()


def machine_over(make_log_store: Callable[[], LogStore]) -> type[CoordinatorMachine]:
    class Machine(CoordinatorMachine):
        def make_log_store(self) -> LogStore:
            return make_log_store()

    return Machine


class ForgetsTombstones(MemoryLogStore):
    """Does not read what it takes for empty."""

    def read(self, partition: int) -> list[LogRecord]:
        return [r for r in super().read(partition) if not isinstance(r.record, OffsetTombstone | GroupTombstone)]


class KeepsPartOfWhatItRefuses(MemoryLogStore):
    """Writes the first record and then finds that the disk is full."""

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        if len(records) > 1:
            super().append(partition, ticket, records[:1])
            raise NotEnoughReplicasError("the disk is full")
        return super().append(partition, ticket, records)


class TellsTheOffsetOfTheLast(MemoryLogStore):
    """Answers with the offset of the last record, not of the first."""

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        base_offset = super().append(partition, ticket, records)
        return None if base_offset is None else base_offset + len(records) - 1


class MixesPartitionsUp(MemoryLogStore):
    """Has one log for all."""

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        return super().append(0, ticket, records)

    def read(self, partition: int) -> list[LogRecord]:
        return list(super().read(0))


class LosesMetadata(MemoryLogStore):
    """Has no column for a commit's time-stamp of expiry and its leader epoch, nor one for who owns what."""

    def read(self, partition: int) -> list[LogRecord]:
        found = []
        for entry in super().read(partition):
            record = entry.record
            if isinstance(record, OffsetCommitRecord) and record.producer_id >= 0:
                plain = OffsetCommitRecord(record.group_id, record.topic, record.partition, record.offset)
                found.append(LogRecord(plain, entry.timestamp_ms, entry.offset))
            else:
                found.append(entry)
        return found


@pytest.mark.parametrize(
    "make_log_store",
    [ForgetsTombstones, KeepsPartOfWhatItRefuses, TellsTheOffsetOfTheLast, MixesPartitionsUp, LosesMetadata],
)
def test_broken_stores_are_found(make_log_store: Callable[[], LogStore]) -> None:
    """Each of these bugs breaks a law within a few hundred random lives."""
    with pytest.raises((AssertionError, StoreContractError, ExceptionGroup)):
        run_state_machine_as_test(machine_over(make_log_store), settings=SETTINGS)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("rule", "bug"),
    [
        ("streams.reconciliation.Reconciliation._may_run", lambda self, task: True),
        ("share.group.ShareState.is_initialized_assigned", lambda self: True),
    ],
)
def test_broken_groups_of_newer_kinds_are_found(
    monkeypatch: pytest.MonkeyPatch, rule: str, bug: Callable[..., bool]
) -> None:
    """A task with an owner is assigned to another member, or a partition is not assigned."""
    monkeypatch.setattr(f"groupcoord.core.groups.{rule}", bug)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CoordinatorMachine, settings=SETTINGS)


class LosesWhatWasJustWritten(CoordinatorMachine):
    """After a crash the store lacks its last append."""

    def crash_log_store(self, log_store: LogStore) -> LogStore:
        """Return a store without the newest record of log partition 0."""
        left = MemoryLogStore()
        for partition in range(2):
            entries = list(log_store.read(partition))
            for entry in entries[:-1] if partition == 0 else entries:
                left.append(partition, Ticket(partition, 0), [LogRecord(entry.record, entry.timestamp_ms)])
        return left


class MixesUpWhatIsWritten(CoordinatorMachine):
    """Has its log in another order after a kill."""

    def crash_log_store(self, log_store: LogStore) -> LogStore:
        return ReadsBackwards(log_store)


class ReadsBackwards(MemoryLogStore):
    """Returns the last record of another store first."""

    def __init__(self, log_store: LogStore) -> None:
        super().__init__()
        self.log_store = log_store

    def read(self, partition: int) -> Iterator[LogRecord]:
        return reversed(list(self.log_store.read(partition)))


def test_a_log_that_can_not_be_loaded_is_a_broken_law() -> None:
    """The machine reports it without the traceback of the load."""
    machine = started_machine(MixesUpWhatIsWritten)
    machine.consumer_goes_on(consumer=modern_consumer(machine, instance_id=None, brings_id=True), commits=False)
    with pytest.raises(LawBrokenError) as broken:
        machine.process_is_killed(written=0)
    assert re.fullmatch(
        r"a restart can't load the log: log partition \d+: record at offset \d+ after \d+", str(broken.value)
    )
    assert broken.value.__context__ is None


class DoublesCommits(CoordinatorMachine):
    """The transport sends every commit twice, under one token."""

    def send(self, request: Request, token: int) -> None:
        super().send(request, token)
        if isinstance(request, OffsetCommit):
            super().send(request, token)


class LosesAnswers(CoordinatorMachine):
    """The transport drops every third answer."""

    def receive(self) -> list:  # type: ignore[type-arg]
        return [reply for reply in super().receive() if reply.token % 3]


@pytest.mark.parametrize("machine", [LosesWhatWasJustWritten, DoublesCommits, LosesAnswers])
def test_broken_processes_and_transports_are_found(machine: type[CoordinatorMachine]) -> None:
    """Losses in a crash, repeated sending and missing delivery break a law."""
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=SETTINGS)


class LateStore(MemoryLogStore):
    """Answers later by itself."""

    def __init__(self) -> None:
        super().__init__(acknowledge_late=True)


def test_a_store_that_answers_later_has_to_be_settled() -> None:
    """The machine can't know when such a store has answered: the error names the missing hook."""
    with pytest.raises((AssertionError, ExceptionGroup)) as caught:
        run_state_machine_as_test(machine_over(LateStore), settings=SETTINGS)

    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert "override settle_log_store()" in str(error)


class SettlesItsStore(CoordinatorMachine):
    """A machine over a store that answers later."""

    def make_log_store(self) -> LogStore:
        return LateStore()

    def settle_log_store(self, log_store: LateStore) -> Iterable[Answer]:
        return log_store.write_waiting()


class LosesWhatItAcknowledges(SettlesItsStore):
    """A machine over a store that answers before it has written, and then may not."""

    def settle_log_store(self, log_store: LateStore) -> Iterable[Answer]:
        answers = log_store.write_waiting()
        for ticket, base_offset in answers:
            if ticket.number % 2:
                log_store._logs[ticket.partition] = log_store._logs[ticket.partition][:base_offset]
        return answers


def test_stores_that_answer_later() -> None:
    """A sound one keeps every law in random lives; one that answers too early is found out."""
    run_state_machine_as_test(SettlesItsStore, settings=settings(SETTINGS, max_examples=20))
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(LosesWhatItAcknowledges, settings=SETTINGS)


class OpenStore(MemoryLogStore):
    """Knows whether it is open."""

    is_open = True

    def close(self) -> None:
        assert self.is_open
        self.is_open = False


@pytest.mark.parametrize("breaks_law", [False, True])
def test_the_store_is_closed_at_the_end(breaks_law: bool) -> None:
    """A store that can be closed is, once, whether or not a law was broken."""
    machine = started_machine(machine_over(OpenStore))
    store = machine.store.store
    assert isinstance(store, OpenStore)
    assert store.is_open
    if breaks_law:
        machine.acknowledged.add(("alpha", "orders", 0, 7))
    with pytest.raises(AssertionError, match="alpha") if breaks_law else nullcontext():
        machine.teardown()
    assert not store.is_open


def record(offset: int) -> list[LogRecord]:
    return [LogRecord(OffsetCommitRecord("g", "t", 0, offset), 1)]


def offsets(store: LogStore) -> list[int]:
    return [entry.record.offset for entry in store.read(0) if isinstance(entry.record, OffsetCommitRecord)]


def test_the_faulty_store_answers_late_and_in_order() -> None:
    """Appends wait until they are written; those behind them wait as well, even when the log is no longer late."""
    inner = MemoryLogStore()
    store = FaultyLogStore(inner, is_late=True)
    tickets = [Ticket(0, number) for number in range(3)]

    assert [store.append(0, tickets[0], record(1)), store.append(0, tickets[1], record(2))] == [None, None]
    store.is_late = False
    assert store.append(0, tickets[2], record(3)) is None
    assert store.waiting() == tickets
    assert store.write(1) == [(tickets[0], 0)]
    assert offsets(store) == offsets(inner) == [1]
    assert store.write() == [(tickets[1], 1), (tickets[2], 2)]
    assert store.append(0, Ticket(0, 3), record(4)) == 3
    assert offsets(store) == [1, 2, 3, 4]


def test_the_faulty_store_refuses_and_loses() -> None:
    """Refused, lost and timed out appends never reach the other store, except a time-out after the write."""
    inner = MemoryLogStore()
    store = FaultyLogStore(inner)
    error = NotEnoughReplicasError("no")
    store.fail_next(error)
    with pytest.raises(NotEnoughReplicasError):
        store.append(0, Ticket(0, 0), record(1))
    store.is_late = True
    for number in range(1, 3):
        store.append(0, Ticket(0, number), record(number))
    assert store.refuse(error) == [(Ticket(0, 1), error), (Ticket(0, 2), error)]
    for ticket in (Ticket(0, 3), Ticket(0, 4), Ticket(1, 0)):
        store.append(ticket.partition, ticket, record(ticket.number))
    ((ticket, failure),) = store.time_out(is_written=True)
    assert ticket == Ticket(0, 3)
    assert isinstance(failure, LogStoreError)
    assert failure.outcome_unknown
    assert store.waiting() == [Ticket(1, 0)]
    assert store.lose() == [Ticket(1, 0)]
    assert offsets(inner) == [3]


def test_an_append_that_follows_from_an_answer_is_not_lost_at_the_end() -> None:
    """Teardown writes until nothing waits: a commit goes out only when the group's deletion before it is written."""
    machine = CoordinatorMachine()
    machine.start(initial_delay_ms=0, log_is_late=True)
    consumer = machine.consumer_starts(group_id="alpha", instance_id=None, protocols=("range",))
    machine.consumer_goes_on(commits=False, consumer=consumer)
    machine.groups_are_deleted(group_ids=["alpha"])
    machine.commit_from_outside(group_id="alpha", offset=0, partition=0)
    machine.teardown()
