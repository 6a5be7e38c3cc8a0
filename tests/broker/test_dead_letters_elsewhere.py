"""Records that are given up, where another process leads the partition that they go to, or makes the topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from groupcoord import ErrorCode
from groupcoord.broker.broker import Broker
from groupcoord.broker.share.leading import LedPartition, SharePartitions
from groupcoord.broker.share.pauses import FIRST_PAUSE_MS, TRIES_MAX
from groupcoord.broker.share.persister import Persister
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
from groupcoord.core.share_partition.acknowledging import Acknowledgement
from groupcoord.core.share_partition.acquiring import LogBatch, Wanted
from groupcoord.core.share_state.records import DeliveryState, SharePartitionKey, StateBatch
from groupcoord.records.batches import encode_batch, iter_batches
from groupcoord.storage.errors import TopicLogError
from groupcoord.storage.partition_log import ATTRIBUTES_POSITION
from tests.broker.processes import Cluster

REJECT, GZIP = 3, 1
SOURCES = {0: 4, 1: 3}
"""By worker, a partition of ``jobs`` that it leads, whose records go to a partition that the other one leads."""

VALUES = (b"v0", b"v1", b"v2", b"v3")
ARCHIVED = DeliveryState.ARCHIVED.value


class Jobs:
    """A share-partition of ``jobs`` that a worker leads; what the share coordinator does is done here.

    Args:
        cluster: the workers.
        worker: which of them leads it.
        name: where given up records go.
        values: of its records, which a member has.
        broken: the offset of a record that can't be read; None: there is none.

    Attributes:
        led: the share-partition.
        archived: the offsets of which it was written that they are.
    """

    def __init__(
        self,
        cluster: Cluster,
        worker: int,
        name: str = "dlq.jobs",
        values: Sequence[bytes] = VALUES,
        broken: int | None = None,
    ) -> None:
        self.broker, self.index = cluster.brokers[worker + 1], SOURCES[worker]
        cluster.create(worker, "jobs", 8)
        self.archived: list[int] = []
        self._state: tuple[StateBatch, ...] = ()
        now_ms = cluster.clock.now_ms
        self.settings = ShareGroupSettings.of(self.broker.config)._replace(
            auto_offset_reset="earliest", dead_letter_topic=name, copies_dead_letters=True
        )
        self.partitions = SharePartitions(
            self.broker.data,
            Persister(self._answer, now_ms),
            lambda group_id: self.settings,
            self.broker.share_requests.partitions.dead_letters,
        )
        log = log_of(self.broker, "jobs", self.index)
        for offset, value in enumerate(values):
            batch = bytearray(encode_batch(offset, [(b"k", value, now_ms())]))
            batch[ATTRIBUTES_POSITION] |= GZIP if offset == broken else 0
            log.append_encoded(bytes(batch), 1, now_ms(), self.broker.data.settings_of(topic_of(self.broker, "jobs")))
        self.led = self.lead()
        assert self.led.records is not None
        in_log = [LogBatch(0, len(values) - 1)]
        self.led.records.acquire(Wanted("ann", 100, 100, is_limit=False), in_log, self.settings, now_ms())

    def lead(self) -> LedPartition:
        """Return the share-partition, known anew if it was forgotten."""
        topic = topic_of(self.broker, "jobs")
        led = self.partitions.lead(SharePartitionKey("g", topic.topic_id, self.index), topic)
        assert isinstance(led, LedPartition)
        return led

    def reject(self, first: int, last: int | None = None) -> None:
        """The member says that nobody should try again."""
        said = Acknowledgement(first, first if last is None else last, [REJECT])
        self.partitions.acknowledge(self.led, "ann", [said], lambda error_code: None)

    def _answer(self, request: ShareStateRequest, token: Any) -> None:
        if isinstance(request, ReadShareGroupState):
            result = ReadStateResult(self.index, ErrorCode.NONE, None, 1, 0, self._state)
            token.answer(ReadShareGroupStateResponse((ReadStateTopicResult(request.topics[0].topic_id, (result,)),)))
            return
        assert isinstance(request, WriteShareGroupState)
        ((topic_id, ((*_, batches, _),)),) = request.topics
        for first, last, state, _ in batches:
            self.archived += range(first, last + 1) if state == ARCHIVED else ()
        self._state += tuple(batches)
        token.answer(
            WriteShareGroupStateResponse((StateTopicResult(topic_id, (StateResult(self.index, ErrorCode.NONE),)),))
        )


def topic_of(broker: Broker, name: str) -> Any:
    topic = broker.topics.get(name)
    assert topic is not None
    return topic


def log_of(broker: Broker, name: str, index: int) -> Any:
    return broker.data.log(topic_of(broker, name), index)


def letters(cluster: Cluster, jobs: Jobs) -> bytes:
    """Return the batches that have come to the partition for given up records."""
    (broker,) = [broker for broker in cluster.brokers.values() if broker is not jobs.broker]
    if broker.topics.get("dlq.jobs") is None:
        return b""
    log = log_of(broker, "dlq.jobs", jobs.index % 3)
    return b"".join(log.read(0, log.end_offset, 2**30, takes_first=True).parts)


def contents(data: bytes) -> list[tuple[int, bytes | None]]:
    """Return offset and value of each record."""
    return [(offset, value) for batch in iter_batches(data) for offset, _, _, value in batch.records()]


def pass_time(cluster: Cluster, duration_ms: int) -> None:
    cluster.clock.advance(duration_ms)
    for broker in cluster.brokers.values():
        broker.tick()
    cluster.settle()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, num_partitions=3, errors_deadletterqueue_auto_create_topics_enable=True)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("worker", [0, 1])
def test_records_go_to_a_partition_of_the_other_worker(cluster: Cluster, worker: int) -> None:
    """They are there with what they hold and where they are from; the controller, worker 0, has made the topic."""
    jobs = Jobs(cluster, worker)
    jobs.reject(1, 2)
    data = letters(cluster, jobs)
    assert contents(data) == [(0, b"v1"), (1, b"v2")]
    for header in ("topic\x08jobs", f"partition\x02{jobs.index}", "offset\x022", "group\x02g", "delivery.count\x021"):
        assert b"__dlq.errors." + header.encode() in data
    assert b"__dlq.errors.message\x34Offset rejected by client." in data
    assert jobs.archived == [1, 2]
    made, known = [topic_of(broker, "dlq.jobs") for broker in cluster.brokers.values()]
    assert made == known
    assert made.partition_count == 3


@pytest.mark.parametrize("worker", [0, 1])
def test_a_worker_that_is_gone_is_asked_again(cluster: Cluster, worker: int) -> None:
    """Who leads the partition, and who makes the topic, is killed: it has the records when it is back."""
    jobs = Jobs(cluster, worker)
    jobs.broker.may_wake_earlier()
    cluster.kill(1 - worker)
    jobs.reject(0)
    assert jobs.broker.may_wake_earlier()
    due_ms = jobs.broker.next_deadline_ms()
    assert due_ms == cluster.clock.now_ms() + FIRST_PAUSE_MS
    assert jobs.archived == []
    cluster.start(1 - worker)
    pass_time(cluster, FIRST_PAUSE_MS)
    assert contents(letters(cluster, jobs)) == [(0, b"v0")]
    assert jobs.archived == [0]


def test_a_worker_that_does_not_come_back(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """After some tries that is said, and the records are done with; pauses double."""
    jobs = Jobs(cluster, 0)
    cluster.kill(1)
    jobs.reject(0)
    jobs.reject(3)
    for number in range(TRIES_MAX - 1):
        assert (jobs.archived, caplog.text) == ([], "")
        pass_time(cluster, (FIRST_PAUSE_MS << number) - 1)
        pass_time(cluster, 1)
    assert "go nowhere: node 2 is gone" in caplog.text
    assert jobs.archived == [0]
    cluster.start(1)
    pass_time(cluster, FIRST_PAUSE_MS)
    assert contents(letters(cluster, jobs)) == [(0, b"v3")]


def test_nothing_is_sent_twice_while_an_answer_is_awaited(cluster: Cluster) -> None:
    """Records that are given up meanwhile go there when it has come, and are archived when they are there."""
    jobs = Jobs(cluster, 0)
    cluster.holds = True
    for offset in (0, 2, 3):
        jobs.reject(offset)
    assert contents(letters(cluster, jobs)) == [(0, b"v0")]
    assert jobs.archived == []
    cluster.let_go()
    assert contents(letters(cluster, jobs)) == [(0, b"v0"), (1, b"v2"), (2, b"v3")]
    assert jobs.archived == [0]
    cluster.let_go_on()
    assert jobs.archived == [0, 2, 3]
    assert len(contents(letters(cluster, jobs))) == 3


@pytest.mark.parametrize(
    ("limit", "reason"),
    [(2, b"Offset rejected by client."), (1, b"Offset delivery count exceeded the threshold.")],
)
def test_who_has_lost_a_share_partition_archives_nothing(cluster: Cluster, limit: int, reason: bytes) -> None:
    """Whoever reads its state next sends the records again, with why as the count tells, and has done with them."""
    jobs = Jobs(cluster, 0)
    jobs.settings = jobs.settings._replace(delivery_count_limit=limit)
    cluster.holds = True
    jobs.reject(0)
    jobs.partitions.forget_group("g")
    cluster.let_go_on()
    assert jobs.archived == []
    jobs.lead()
    assert jobs.archived == [0]
    assert contents(letters(cluster, jobs)) == [(0, b"v0"), (1, b"v0")]
    assert reason in letters(cluster, jobs).partition(b"Offset rejected by client.")[2]


def test_many_bytes_go_in_portions(cluster: Cluster) -> None:
    """No question holds more than a mebibyte, and each record comes once."""
    values = [b"%d" % number * 400_000 for number in range(8)]
    jobs = Jobs(cluster, 0, values=values)
    jobs.reject(0, 7)
    data = letters(cluster, jobs)
    assert contents(data) == list(enumerate(values))
    assert [batch.record_count for batch in iter_batches(data)] == [2, 2, 2, 2]


def test_records_that_are_there_no_more(cluster: Cluster) -> None:
    """What the log has lost while others were sent is sent without what it held."""
    values = [b"%d" % number * 700_000 for number in range(3)]
    jobs = Jobs(cluster, 0, values=values)
    cluster.holds = True
    jobs.reject(0, 2)
    jobs.led.log.close()
    cluster.let_go_on()
    assert contents(letters(cluster, jobs)) == [(0, values[0]), (1, None), (2, None)]


def test_a_record_that_cannot_be_read(cluster: Cluster) -> None:
    """What nobody can read goes there without what it held, between the others, and is done with."""
    jobs = Jobs(cluster, 0, broken=1)
    jobs.reject(0, 3)
    assert contents(letters(cluster, jobs)) == [(0, b"v0"), (1, None), (2, b"v2"), (3, b"v3")]
    assert jobs.archived == [0, 1, 2, 3]


def test_records_are_read_as_a_job(cluster: Cluster) -> None:
    """What takes long where a producer wants it to holds up nobody; what is given up meanwhile comes behind it."""
    jobs = Jobs(cluster, 0)
    begun: list[Job] = []
    jobs.broker.start_job = begun.append
    jobs.reject(0)
    jobs.reject(2)
    assert (letters(cluster, jobs), len(begun)) == (b"", 1)
    while begun:
        do_in_place(begun.pop())
    assert contents(letters(cluster, jobs)) == [(0, b"v0"), (1, b"v2")]
    assert jobs.archived == [0, 2]


def test_many_records_go_some_at_a_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, some are in memory, and each comes once and in order."""
    monkeypatch.setattr("groupcoord.broker.share.dead_letters.LETTERS_AT_ONCE", 3)
    values = [b"v%d" % number for number in range(8)]
    jobs = Jobs(cluster, 0, values=values)
    jobs.reject(0, 7)
    data = letters(cluster, jobs)
    assert contents(data) == list(enumerate(values))
    assert [batch.record_count for batch in iter_batches(data)] == [3, 3, 2]


def test_a_worker_that_does_not_know_the_topic_yet(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hears of topics a moment later than who asks: it is asked again."""
    jobs = Jobs(cluster, 0)
    with monkeypatch.context() as patched:
        patched.setattr(cluster.brokers[2], "look", lambda: None)
        jobs.reject(0)
        assert letters(cluster, jobs) == b""
    cluster.brokers[2].look()
    pass_time(cluster, FIRST_PAUSE_MS)
    assert contents(letters(cluster, jobs)) == [(0, b"v0")]


@pytest.mark.parametrize("what", ["topic", "log"])
def test_what_is_refused_is_not_tried_again(
    cluster: Cluster, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller makes no such topic, or the log takes no such record: that is said at once."""
    jobs = Jobs(cluster, 1, "dlq.a b" if what == "topic" else "dlq.jobs")

    def refuse(*_: Any) -> None:
        raise TopicLogError(ErrorCode.POLICY_VIOLATION, "there is no room")

    if what == "log":
        monkeypatch.setattr(cluster.brokers[1].data, "log", refuse)
    jobs.reject(0)
    assert {"topic": "go nowhere: Topic name is invalid", "log": "go nowhere: there is no room"}[what] in caplog.text
    assert jobs.archived == [0]
