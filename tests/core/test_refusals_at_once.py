"""A log store that refuses an append at once, while earlier ones are unanswered: the refusal waits for its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings, strategies as st

from groupcoord import (
    Config,
    ErrorCode,
    GroupCoordinator,
    InvariantError,
    LogRecord,
    ManualClock,
    MemoryLogStore,
    PartitionStatus,
    StoreContractError,
    Ticket,
)
from groupcoord.core.log.log_partition import AppendQueue
from groupcoord.errors import (
    AppendTimedOutError,
    LogStoreError,
    NotEnoughReplicasError,
    OwnershipLostError,
    RecordTooLargeError,
)
from groupcoord.messages import OffsetCommit, OffsetCommitResponse, OffsetToCommit, TopicToCommit
from groupcoord.testing.machine.consumers import Sent
from tests.core.driver import Driver, Group

TIMEOUT_MS = 2_000
NONE, REFUSED = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.fixture
def driver() -> Driver:
    return Driver(late=True, offsets_commit_timeout_ms=TIMEOUT_MS)


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def refused_commit(group: Group, offset: int, error: LogStoreError | None = None) -> Sent:
    group.driver.store.fail_next(error or RecordTooLargeError("too large"))
    return group.commit(offset)


def code_of(response: object) -> ErrorCode:
    """Return the error of a commit of one offset."""
    assert isinstance(response, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def queue(driver: Driver) -> AppendQueue:
    partition = driver.coordinator.partition(0)
    assert partition is not None
    return partition.writer  # type: ignore[return-value]


# ---------------------------------------------------------------- in turn


def test_an_acknowledgement_for_several_passes_over_it(driver: Driver, group: Group) -> None:
    """The records of the others lie side by side, and each answer is that of its append."""
    sents = [
        group.commit(1),
        refused_commit(group, 2),
        Group(driver, "other").commit(3),
        refused_commit(group, 4, NotEnoughReplicasError()),
        group.commit(5),
        refused_commit(group, 6),
        group.commit(7),
    ]
    driver.write_together(3)
    driver.check_laws()
    codes = [NONE, REFUSED, NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, NONE, REFUSED]
    assert [sent.error for sent in sents[:-1]] == codes
    assert sents[-1].is_waiting
    driver.write_together()
    assert (sents[-1].error, group.committed()) == (NONE, {"orders": {0: 7}})
    assert Group(driver, "other").committed() == {"orders": {0: 3}}
    driver.check_laws()


def test_those_before_may_be_refused_too(driver: Driver, group: Group) -> None:
    """A refusal waits for the answers of earlier appends, which may be refusals, too."""
    sents = group.commit(1), refused_commit(group, 2), group.commit(3)
    driver.refuse(NotEnoughReplicasError(), 1)
    assert [sent.error for sent in sents[:2]] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, REFUSED]
    driver.write()
    assert (sents[2].error, group.committed()) == (NONE, {"orders": {0: 3}})


def test_it_counts_when_it_is_told(driver: Driver, group: Group) -> None:
    """A refusal for other reasons than the size of records is a failed append."""
    group.commit(1)
    refused_commit(group, 2, NotEnoughReplicasError("one copy"))
    refused_commit(group, 3)
    assert driver.coordinator.take_append_failures() == {}
    driver.write()
    failures = driver.coordinator.take_append_failures()
    assert {index: (each.count, each.reason) for index, each in failures.items()} == {0: (1, "one copy")}


# ---------------------------------------------------------------- what happens meanwhile


def test_who_waits_for_too_long_is_told(driver: Driver, group: Group) -> None:
    """It is an append in flight with a deadline; after it no second response is sent."""
    first = group.commit(1)
    driver.sleep(TIMEOUT_MS - 1)
    too_large = refused_commit(group, 2)
    driver.sleep(1)
    assert (first.error, too_large.is_waiting) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, True)
    driver.sleep(TIMEOUT_MS - 1)
    assert too_large.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.write()
    assert (len(first.answers), len(too_large.answers)) == (1, 1)
    assert group.committed() == {"orders": {0: 1}}
    driver.check_laws()


@pytest.mark.parametrize("ends", ["unload", "fail"])
def test_the_log_partition_goes_before_it_is_told(driver: Driver, group: Group, ends: str) -> None:
    """All in flight are refused, in order, and nothing of it is left when it is loaded again."""
    sents = group.commit(1), refused_commit(group, 2), group.commit(3)
    answers = driver.store.write()
    if ends == "unload":
        driver.coordinator.unload(0)
    else:
        driver.coordinator.fail(0, NotEnoughReplicasError())
    driver.deliver()
    code = ErrorCode.NOT_COORDINATOR if ends == "unload" else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [sent.error for sent in sents] == [code] * 3
    driver.pass_on(answers)
    driver.load(0)
    assert queue(driver).refusals == {}
    assert group.committed() == {"orders": {0: 3}}
    later = group.commit(4)
    driver.write()
    assert (later.error, [len(sent.answers) for sent in sents]) == (NONE, [1] * 3)


@pytest.mark.parametrize("error", [AppendTimedOutError("who knows"), OwnershipLostError("another's")])
def test_an_unknown_outcome_fails_the_log_partition_in_its_turn(
    driver: Driver, group: Group, error: LogStoreError
) -> None:
    sents = group.commit(1), refused_commit(group, 2, error), group.commit(3), refused_commit(group, 4)
    driver.write_together()
    assert sents[0].error is NONE
    assert {sent.error for sent in sents[1:]} <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
    assert driver.coordinator.status(0) is PartitionStatus.FAILED
    driver.coordinator.load(0)
    assert group.committed() == {"orders": {0: 3}}


def test_a_store_that_answers_meanwhile(driver: Driver, group: Group) -> None:
    """An answer at once stands for all earlier appends, but for what was refused."""
    sents = [group.commit(1), refused_commit(group, 2)]
    answers = driver.store.write()
    driver.store.is_late = False
    sents.append(group.commit(3))
    assert [sent.error for sent in sents] == [NONE, REFUSED, NONE]
    assert group.committed() == {"orders": {0: 3}}
    with pytest.raises(StoreContractError, match="append 0 is not in flight"):
        driver.pass_on(answers)


@pytest.mark.parametrize(
    "answer",
    [
        lambda coordinator: coordinator.appended(Ticket(0, 1), 0),
        lambda coordinator: coordinator.append_failed(Ticket(0, 1), RecordTooLargeError()),
    ],
    ids=["written", "refused"],
)
def test_nothing_else_is_said_of_it(driver: Driver, group: Group, answer: Callable[[GroupCoordinator], None]) -> None:
    """A store that answers what it has refused breaks its contract."""
    sents = group.commit(1), refused_commit(group, 2)
    with pytest.raises(StoreContractError, match="append 1 is answered twice"):
        answer(driver.coordinator)
    driver.deliver()
    assert [sent.error for sent in sents] == [REFUSED] * 2
    assert driver.coordinator.status(0) is PartitionStatus.FAILED


def test_a_copy_goes_on_alike(driver: Driver, group: Group) -> None:
    """A waiting refusal is part of the state: copies have it, and the fingerprint includes it."""
    other = Group(Driver(late=True, offsets_commit_timeout_ms=TIMEOUT_MS))
    for each in (group, other):
        each.commit(1)
    before = driver.coordinator.save()
    sent, _ = refused_commit(group, 2), other.commit(2)
    known = driver.coordinator.fingerprint()
    copy = driver.coordinator.fork(log_store=MemoryLogStore())
    assert copy.fingerprint() == known != other.driver.coordinator.fingerprint()
    copy.appended(Ticket(0, 0), 0)
    copy.check()
    assert [(reply.token, code_of(reply.response)) for reply in copy.take_replies()][1] == (sent.token, REFUSED)
    assert (driver.coordinator.fingerprint(), sent.is_waiting) == (known, True), "the other one goes on by itself"
    copy.restore(before)
    assert copy.fingerprint() != known
    copy.check()


def test_check(driver: Driver, group: Group) -> None:
    """A refused append is in flight, and not the oldest one."""
    group.commit(1)
    for number in (0, 9):
        queue(driver).refusals = {number: RecordTooLargeError()}
        with pytest.raises(InvariantError, match="refusals wait"):
            queue(driver).check()


# ---------------------------------------------------------------- by chance


class ImpatientStore(MemoryLogStore):
    """Refuses at once, or (``is_patient``) as soon as earlier appends are answered."""

    def __init__(self, *, is_patient: bool) -> None:
        super().__init__(acknowledge_late=True)
        self.is_patient = is_patient
        self.to_refuse: deque[bool] = deque()
        self.in_flight: deque[tuple[Ticket, LogStoreError | None]] = deque()

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Append or refuse, as configured."""
        error = RecordTooLargeError() if self.to_refuse.popleft() else None
        waits = bool(self.in_flight)
        if error is None:
            super().append(partition, ticket, records)
        elif not waits or not self.is_patient:
            raise error
        self.in_flight.append((ticket, error))
        return None

    def answer(self, coordinator: GroupCoordinator, count: int, *, is_together: bool) -> None:
        """Write some waiting appends, and report them."""
        written = dict(self.write_waiting(count))
        last = max(written, default=None)
        while self.in_flight and (self.in_flight[0][0] in written or self.in_flight[0][1] is not None):
            ticket, error = self.in_flight.popleft()
            if error is not None:
                coordinator.append_failed(ticket, error)
            elif not is_together or ticket == last or self._is_refusal_next():
                coordinator.appended(ticket, written[ticket])

    def _is_refusal_next(self) -> bool:
        return bool(self.in_flight) and self.in_flight[0][1] is not None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("commit"), st.sampled_from(["a", "b"]), st.booleans()),
            st.tuples(st.just("write"), st.integers(1, 4), st.booleans()),
        ),
        max_size=30,
    )
)
@settings(max_examples=200, deadline=None)
def test_at_once_is_as_in_turn(steps: list[tuple[str, str | int, bool]]) -> None:
    """Late and immediate refusals give the same responses in the same order."""
    told: list[list[object]] = []
    for is_patient in (True, False):
        store = ImpatientStore(is_patient=is_patient)
        config = Config(offsets_topic_num_partitions=1)
        coordinator = GroupCoordinator(config=config, clock=ManualClock(), log_store=store)
        coordinator.load_all()
        told.append([])
        for number, (what, which, flag) in enumerate(steps):
            if what == "commit":
                store.to_refuse.append(flag)
                topics = (TopicToCommit("t", (OffsetToCommit(0, number),)),)
                coordinator.submit(OffsetCommit(str(which), topics), number)
            else:
                store.answer(coordinator, int(which), is_together=flag)
            coordinator.check()
            told[-1].append((coordinator.take_replies(), coordinator.fingerprint() if not store.in_flight else None))
        store.answer(coordinator, len(steps), is_together=True)
        told[-1].append((coordinator.take_replies(), coordinator.fingerprint()))
        assert coordinator.waiting_tokens() == []
    assert told[0] == told[1]
