"""Dead letters of share groups (KIP-1191): records that were given up go to a topic of the group's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.share.coordination import FIRST_PAUSE_MS, TRIES_MAX, Persister
from groupcoord.broker.share.share_partitions import LedPartition, SharePartitions
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import Job, do_in_place
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.messages.share_state import (
    ReadShareGroupState,
    ReadShareGroupStateResponse,
    ReadStateResult,
    ReadStateTopicResult,
    ShareStateRequest,
    StateResult,
    StateTopicResult,
    WriteShareGroupState,
    WriteShareGroupStateResponse,
)
from groupcoord.core.share_partition.in_flight import Acknowledgement, LogBatch, Wanted
from groupcoord.core.share_state.records import DeliveryState, SharePartitionKey, StateBatch
from groupcoord.records.batches import encode_batch, iter_batches
from groupcoord.storage.errors import FailedLogError, TopicLogError
from groupcoord.storage.log.memory_log import ATTRIBUTES_POSITION

REJECT, GZIP = 3, 1
INDEX, DEAD_INDEX = 4, 1
"""The partition of ``jobs``, and that of the three of ``dlq.jobs`` to which its records go."""

VALUES = (b"v0", b"v1", b"v2", b"v3")
ARCHIVED = DeliveryState.ARCHIVED.value


class Jobs:
    """A partition of ``jobs`` that a share group reads; what the share coordinator does is done here.

    Args:
        name: where given up records go.
        values: of its records, which a member has.
        broken: the offset of a record that can't be read; None: there is none.

    Attributes:
        led: the share-partition.
        archived: the offsets of which it was written that they are.
        begun: jobs that were started while ``holds`` is set.
        holds: jobs are not done.
    """

    def __init__(self, name: str = "dlq.jobs", values: Sequence[bytes] = VALUES, broken: int | None = None) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        topics = TopicRegistry()
        topics.ensure("jobs", 8)
        self.broker = make_broker(
            config=Config(num_partitions=3, errors_deadletterqueue_auto_create_topics_enable=True),
            clock=self.clock,
            log_store=MemoryLogStore(),
            topics=topics,
        )
        self.begun: list[Job] = []
        self.holds = False
        self.broker.start_job = lambda job: self.begun.append(job) if self.holds else do_in_place(job)
        self.archived: list[int] = []
        self._state: tuple[StateBatch, ...] = ()
        self.write_error = ErrorCode.NONE
        now_ms = self.clock.now_ms
        self.settings = evolve(
            ShareGroupSettings.of(self.broker.config),
            auto_offset_reset="earliest",
            dead_letter_topic=name,
            copies_dead_letters=True,
        )
        self.partitions = SharePartitions(
            self.broker.data,
            Persister(self._answer, now_ms),
            lambda group_id: self.settings,
            self.broker.share_requests.partitions.dead_letters,
        )
        log = self._log("jobs", INDEX)
        for offset, value in enumerate(values):
            batch = bytearray(encode_batch(offset, [(b"k", value, now_ms())]))
            batch[ATTRIBUTES_POSITION] |= GZIP if offset == broken else 0
            log.append_encoded(bytes(batch), 1, now_ms(), self.broker.data.settings_of(self._topic("jobs")))
        self.led = self.lead()
        assert self.led.records is not None
        in_log = [LogBatch(0, len(values) - 1)]
        self.led.records.acquire(Wanted("ann", 100, 100, is_limit=False), in_log, self.settings, now_ms())

    def _topic(self, name: str) -> Any:
        topic = self.broker.topics.get(name)
        assert topic is not None
        return topic

    def _log(self, name: str, index: int) -> Any:
        return self.broker.data.log(self._topic(name), index)

    def letters(self) -> bytes:
        """Return the batches that have come to the partition for given up records."""
        if self.broker.topics.get("dlq.jobs") is None:
            return b""
        log = self._log("dlq.jobs", DEAD_INDEX)
        return b"".join(log.read(0, log.end_offset, 2**30, takes_first=True).parts)

    def contents(self) -> list[tuple[int, bytes | None]]:
        """Return offset and value of each of those."""
        return [(offset, value) for batch in iter_batches(self.letters()) for offset, _, _, value in batch.records()]

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.broker.tick()

    def do_one(self) -> None:
        do_in_place(self.begun.pop(0))

    def go_on(self) -> None:
        self.holds = False
        while self.begun:
            self.do_one()

    def lead(self) -> LedPartition:
        """Return the share-partition, created again if it was dropped."""
        topic = self._topic("jobs")
        led = self.partitions.lead(SharePartitionKey("g", topic.topic_id, INDEX), topic)
        assert isinstance(led, LedPartition)
        return led

    def reject(self, first: int, last: int | None = None) -> None:
        """Reject a record, so that it is not delivered again."""
        said = Acknowledgement(first, first if last is None else last, [REJECT])
        self.partitions.acknowledge(self.led, "ann", [said], lambda error_code: None)

    def _answer(self, request: ShareStateRequest, token: Any) -> None:
        if isinstance(request, ReadShareGroupState):
            result = ReadStateResult(INDEX, ErrorCode.NONE, None, 1, 0, self._state)
            token.answer(ReadShareGroupStateResponse((ReadStateTopicResult(request.topics[0].topic_id, (result,)),)))
            return
        assert isinstance(request, WriteShareGroupState)
        ((topic_id, ((*_, batches, _),)),) = request.topics
        # A refused write stores nothing.
        batches = () if self.write_error else batches
        for first, last, state, _ in batches:
            self.archived += range(first, last + 1) if state == ARCHIVED else ()
        self._state += tuple(batches)
        result = StateTopicResult(topic_id, (StateResult(INDEX, self.write_error),))
        token.answer(WriteShareGroupStateResponse((result,)))


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Callable[[Jobs, Exception | None], None]:
    """Return what makes the log of the topic for given up records fail, or work again (None)."""

    def set_failure(jobs: Jobs, error: Exception | None) -> None:
        usual = type(jobs.broker.data).log

        def log(topic: Any, index: int) -> Any:
            if error is not None and topic.name == "dlq.jobs":
                raise error
            return usual(jobs.broker.data, topic, index)

        monkeypatch.setattr(jobs.broker.data, "log", log)

    return set_failure


def test_letters_hold_the_record_and_where_it_is_from() -> None:
    """The topic is created with ``num.partitions`` partitions."""
    jobs = Jobs()
    jobs.reject(1, 2)
    assert jobs.contents() == [(0, b"v1"), (1, b"v2")]
    for header in ("topic\x08jobs", f"partition\x02{INDEX}", "offset\x022", "group\x02g", "delivery.count\x021"):
        assert b"__dlq.errors." + header.encode() in jobs.letters()
    assert b"__dlq.errors.message\x34Offset rejected by client." in jobs.letters()
    assert jobs.archived == [1, 2]
    assert jobs.broker.topics.partition_count("dlq.jobs") == 3


def test_a_disk_that_fails_is_tried_again(failures: Callable[[Jobs, Exception | None], None]) -> None:
    """After a pause, with the records that were given up meanwhile behind them, and each once."""
    jobs = Jobs()
    jobs.broker.nearer_deadline_ms()
    failures(jobs, FailedLogError("the disk is gone"))
    for offset in (0, 2, 3):
        jobs.reject(offset)
    assert jobs.broker.nearer_deadline_ms() is not None
    assert jobs.broker.next_deadline_ms() == jobs.clock.now_ms() + FIRST_PAUSE_MS
    failures(jobs, None)
    assert (jobs.contents(), jobs.archived) == ([], [])
    jobs.pass_time(FIRST_PAUSE_MS)
    assert jobs.contents() == [(0, b"v0"), (1, b"v2"), (2, b"v3")]
    assert jobs.archived == [0, 2, 3]


def test_a_disk_that_stays_broken(
    failures: Callable[[Jobs, Exception | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    """After some tries, with pauses that double, that is logged, and the records are archived."""
    jobs = Jobs()
    failures(jobs, FailedLogError("the disk is gone"))
    jobs.reject(0)
    jobs.reject(3)
    for number in range(TRIES_MAX - 1):
        assert (jobs.archived, caplog.text) == ([], "")
        jobs.pass_time((FIRST_PAUSE_MS << number) - 1)
        jobs.pass_time(1)
    assert "are dropped: the disk is gone" in caplog.text
    assert jobs.archived == [0]
    failures(jobs, None)
    jobs.pass_time(FIRST_PAUSE_MS)
    assert jobs.contents() == [(0, b"v3")]


@pytest.mark.parametrize(
    ("limit", "reason"),
    [(2, b"Offset rejected by client."), (1, b"Offset delivery count exceeded the threshold.")],
)
def test_a_share_partition_that_was_lost_meanwhile_archives_nothing(limit: int, reason: bytes) -> None:
    """The next leader that reads the state sends the records again, with the reason from the delivery count."""
    jobs = Jobs()
    jobs.settings = evolve(jobs.settings, delivery_count_limit=limit)
    jobs.holds = True
    jobs.reject(0)
    jobs.partitions.forget_group("g")
    jobs.go_on()
    assert jobs.archived == []
    jobs.lead()
    assert jobs.archived == [0]
    assert jobs.contents() == [(0, b"v0"), (1, b"v0")]
    assert reason in jobs.letters().partition(b"Offset rejected by client.")[2]


def test_letters_are_sent_again_with_the_next_write_after_a_refused_one() -> None:
    """While writes are refused nothing is sent, neither for a refused rejection nor a second time."""
    jobs = Jobs()
    jobs.write_error = ErrorCode.UNKNOWN_SERVER_ERROR
    jobs.reject(0)
    assert jobs.contents() == []
    jobs.write_error, jobs.holds = ErrorCode.NONE, True
    jobs.reject(0)
    jobs.write_error = ErrorCode.UNKNOWN_SERVER_ERROR
    jobs.go_on()
    assert (jobs.contents(), jobs.archived) == ([(0, b"v0")], [])
    jobs.write_error = ErrorCode.NONE
    jobs.reject(1)
    assert (jobs.contents()[1:], jobs.archived) == ([(1, b"v0"), (2, b"v1")], [0, 1])


def test_many_bytes_go_in_portions() -> None:
    """No batch holds more than a mebibyte, and each record comes once."""
    values = [b"%d" % number * 400_000 for number in range(8)]
    jobs = Jobs(values=values)
    jobs.reject(0, 7)
    assert jobs.contents() == list(enumerate(values))
    assert [batch.record_count for batch in iter_batches(jobs.letters())] == [2, 2, 2, 2]


def test_records_that_the_log_has_no_more() -> None:
    """A letter without key and value goes for what the log has lost while others were sent."""
    values = [b"%d" % number * 700_000 for number in range(3)]
    jobs = Jobs(values=values)
    jobs.holds = True
    jobs.reject(0, 2)
    jobs.led.log.close()
    jobs.go_on()
    assert jobs.contents() == [(0, values[0]), (1, None), (2, None)]


def test_a_record_that_cannot_be_read() -> None:
    """A letter without key and value goes for it, between the others, and it is archived."""
    jobs = Jobs(broken=1)
    jobs.reject(0, 3)
    assert jobs.contents() == [(0, b"v0"), (1, None), (2, b"v2"), (3, b"v3")]
    assert jobs.archived == [0, 1, 2, 3]


def test_records_are_read_as_a_job() -> None:
    """Reading, which can take long, holds up no client; what is given up meanwhile comes behind it."""
    jobs = Jobs()
    jobs.holds = True
    jobs.reject(0)
    jobs.reject(2)
    assert (jobs.letters(), len(jobs.begun)) == (b"", 1)
    jobs.do_one()
    assert (jobs.contents(), jobs.archived) == ([(0, b"v0")], [0])
    jobs.do_one()
    assert jobs.contents() == [(0, b"v0"), (1, b"v2")]
    assert jobs.archived == [0, 2]


def test_many_records_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, some are in memory, and each comes once and in order."""
    monkeypatch.setattr("groupcoord.broker.share.dead_letters.LETTERS_AT_ONCE", 3)
    values = [b"v%d" % number for number in range(8)]
    jobs = Jobs(values=values)
    jobs.reject(0, 7)
    assert jobs.contents() == list(enumerate(values))
    assert [batch.record_count for batch in iter_batches(jobs.letters())] == [3, 3, 2]


def test_a_topic_that_is_deleted_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    """The records are dropped, which is logged, and are archived."""
    jobs = Jobs()
    jobs.holds = True
    jobs.reject(0)
    with jobs.broker.topics.edit() as edit:
        edit.delete("dlq.jobs")
    jobs.go_on()
    assert "are dropped: the topic was deleted" in caplog.text
    assert jobs.archived == [0]


@pytest.mark.parametrize("what", ["topic", "log"])
def test_what_is_refused_is_not_tried_again(
    failures: Callable[[Jobs, Exception | None], None], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """There can be no such topic, or the log takes no such record: that is logged at once."""
    jobs = Jobs("dlq.a b" if what == "topic" else "dlq.jobs")
    if what == "log":
        failures(jobs, TopicLogError(ErrorCode.POLICY_VIOLATION, "there is no room"))
    jobs.reject(0)
    assert {"topic": "are dropped: Topic name is invalid", "log": "are dropped: there is no room"}[what] in caplog.text
    assert jobs.archived == [0]
