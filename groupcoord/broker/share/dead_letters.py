"""Records that a share group has given up go to a topic of its choice (KIP-1191).

As a broker of Kafka 4.4 does, as recorded: the topic's name has a prefix, and a setting that allows this; a record goes
to the partition of the same number, modulo how many there are; headers tell where it is from, and why.

Whoever leads that partition appends them, and the controller makes the topic. Either may be another process: that is
asked again for a while if it is gone or can't do it now. If it was killed when it had appended them, they are there
twice, as from any producer that isn't idempotent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.neighbours import AskedConnection, Asker, Question, ask_and_wait
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.configs.definitions import ALLOWS_DEAD_LETTERS
from groupcoord.broker.rate_limited_logger import RateLimitedLogger
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.share.pauses import TRIES_MAX, Pauses
from groupcoord.broker.topics.registry import Topic, TopicError
from groupcoord.broker.work import Awaited, Job, Work, do_in_background, do_in_place, elsewhere
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.share_partition.in_flight import Run
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.storage.errors import TopicLogError
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import CreatableTopic, CreatableTopicConfig, CreateTopics

if TYPE_CHECKING:
    from groupcoord.broker.share.letters import GivenUp, Origin
    from groupcoord.storage.partition_log import PartitionLog

logger = logging.getLogger("groupcoord.host")

T = TypeVar("T")

READ_BYTES = 1024 * 1024
LETTERS_AT_ONCE = 1_000
"""Of so many records letters are written in one go; a batch may be of millions."""

PASSING = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
)
"""What may be over in a moment: a process is being started again, a disk has failed, a topic was made just now."""


class NoDeadLetterTopicError(GroupcoordError):
    """There is no topic where records may go that a group has given up."""


class Letters(NamedTuple):
    """Records for a partition where given up records go: what the node that leads it is asked to append.

    Attributes:
        topic_id, partition_index: the partition.
        records: each behind its length.
        record_count: how many there are.
    """

    topic_id: UUID
    partition_index: int
    records: bytes
    record_count: int


class DeadLetters:
    """Sends given up records where such records go.

    Args:
        data: what topics hold.
        nodes: what this node knows of the others; None: there are none.
        look: looks at what the controller has changed.
        start_job: does a job, or has it done by somebody else, and then says that it is done.

    Attributes:
        pauses: before something is tried again.
    """

    def __init__(
        self,
        data: TopicData,
        nodes: Nodes | None = None,
        look: Callable[[], None] | None = None,
        start_job: Callable[[Job], None] = do_in_place,
    ) -> None:
        self.pauses = Pauses(data.clock.now_ms)
        self._data = data
        self._nodes = nodes
        self._neighbours = None if nodes is None else nodes.neighbours
        self._look = look or (lambda: None)
        self._start_job = start_job
        self._lines = RateLimitedLogger(logger)

    def send(
        self,
        group_id: str,
        topic: Topic,
        index: int,
        log: PartitionLog,
        runs: Sequence[Run],
        settings: ShareGroupSettings,
        done: Callable[[], None],
    ) -> None:
        """Append a record for each that was given up. What goes wrong is logged: they are given up all the same.

        Args:
            group_id: who has given them up.
            topic, index, log: the partition, and what it holds.
            runs: which records; what they say must not change until they are sent.
            settings: where they go, and with what.
            done: is called when there is nothing left to do, now or later.
        """
        from groupcoord.broker.share.letters import Origin

        origin, log_read = Origin(topic.name, index, group_id), log if settings.copies_dead_letters else None
        do_in_background(self._send(origin, runs, log_read, settings.dead_letter_topic, done), self._start_job)

    def _send(
        self, origin: Origin, runs: Sequence[Run], log: PartitionLog | None, name: str, done: Callable[[], None]
    ) -> Work[None]:
        from groupcoord.broker.share.letters import GivenUp, write_letters

        try:
            target = yield from self._try_again(partial(self._topic, name))
            index = origin.partition % target.partition_count
            bytes_max = self._data.settings_of(target).max_message_bytes
            left, given_up = _given_up(runs), list[GivenUp]()
            while given_up := [*given_up, *islice(left, LETTERS_AT_ONCE - len(given_up))]:
                data = b"" if log is None else _read(log, given_up)
                portions, count = yield from elsewhere(write_letters, origin, given_up, data, bytes_max)
                for portion in portions:
                    letters = Letters(target.topic_id, index, *portion)
                    yield from self._try_again(partial(self._hand_over, target, letters))
                del given_up[:count]
        except (NoDeadLetterTopicError, TopicError, TopicLogError, OSError) as error:
            message, group_id = "records that share group %r has given up go nowhere: %s", origin.group_id
            self._lines.log(logging.ERROR, "dead letters", self._data.clock.now_ms() / 1_000, message, group_id, error)
        done()

    # ------------------------------------------------------------ the topic

    def _topic(self, name: str) -> Work[Topic]:
        """Return the topic where given up records go, made if need be and allowed."""
        config, topics = self._data.config, self._data.topics
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            raise NoDeadLetterTopicError(f"the name {name!r} does not begin with {prefix!r}")
        topic = topics.get(name)
        if topic is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise NoDeadLetterTopicError(f"there is no topic {name!r}, and it may not be made")
            topic = yield from self._make(name)
        if topic.configs.get(ALLOWS_DEAD_LETTERS) != "true":
            raise NoDeadLetterTopicError(f"the topic {name!r} does not allow it ({ALLOWS_DEAD_LETTERS})")
        return topic

    def _make(self, name: str) -> Work[Topic]:
        neighbours, topics = self._neighbours, self._data.topics
        if neighbours is None or neighbours.node_id == neighbours.controller_id:
            with topics.edit() as edit:
                topic = edit.create(name, self._data.config.num_partitions, configs={ALLOWS_DEAD_LETTERS: "true"})
            if self._nodes is not None:
                self._nodes.topics_created([name])
            return topic
        wanted = CreatableTopic(name, configs=(CreatableTopicConfig(ALLOWS_DEAD_LETTERS, "true"),))
        response = yield from self._ask(neighbours.controller_id, CreateTopics((wanted,)))
        self._look()
        made = topics.get(name)
        if made is None:
            raise TopicError(response.topics[0].error_code, response.topics[0].error_message)
        return made

    # ------------------------------------------------------------ its partitions

    def _hand_over(self, topic: Topic, letters: Letters) -> Work[None]:
        """Have records appended by who leads the partition."""
        nodes, neighbours = self._nodes, self._neighbours
        if nodes is not None and neighbours is not None:
            node_id = nodes.leadership.leader(topic, letters.partition_index).node_id
            if node_id != neighbours.node_id:
                error_code, reason = yield from self._ask(node_id, letters)
                if error_code is not ErrorCode.NONE:
                    raise TopicLogError(error_code, reason)
                return
        self._append(letters)

    @answers(Letters)
    def take(self, connection: AskedConnection, letters: Letters) -> WireResponse | None:
        """Append what another node sends, and tell it what came of that."""
        error_code, reason = ErrorCode.NONE, ""
        try:
            self._append(letters)
        except TopicLogError as error:
            error_code, reason = error.error_code, error.reason
        connection.tell((error_code, reason))
        return None

    def _append(self, letters: Letters) -> None:
        from groupcoord.records.batches import frame_records

        topic = self._data.topics.get_by_id(letters.topic_id)
        if topic is None or not topic.has_partition(letters.partition_index):
            raise TopicLogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        log = self._data.whole.log(topic, letters.partition_index)
        if log is None:
            raise TopicLogError(ErrorCode.POLICY_VIOLATION, "topics hold nothing")
        now_ms = self._data.clock.now_ms()
        batch = frame_records(
            log.end_offset,
            (letters.records,),
            letters.record_count,
            now_ms,
            leader_epoch=log.leader_epoch,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
        log.append_encoded(batch, letters.record_count, now_ms, self._data.settings_of(topic))

    # ------------------------------------------------------------ what can't be done now

    def _ask(self, node_id: int, request: Any) -> Work[Any]:
        """Ask another process.

        Raises:
            TopicLogError: it is gone; it may have done it.
        """
        neighbours = self._neighbours
        assert neighbours is not None
        response = yield from ask_and_wait(neighbours, node_id, Question(request, Asker(neighbours.node_id)))
        if response is None:
            raise TopicLogError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {node_id} is gone")
        return response

    def _try_again(self, attempt: Callable[[], Work[T]]) -> Work[T]:
        """Return what an attempt comes to, the last one of several if the others fail by what passes."""
        for try_count in range(1, TRIES_MAX):
            try:
                return (yield from attempt())
            except TopicLogError as error:
                if error.error_code not in PASSING:
                    raise
            pause = Awaited()
            self.pauses.begin(try_count, pause.done)
            yield pause
        return (yield from attempt())

    def look_after(self) -> None:
        """Write what was left out of the log. Worth calling every second."""
        self._lines.report(self._data.clock.now_ms() / 1_000)


def _given_up(runs: Sequence[Run]) -> Iterator[GivenUp]:
    from groupcoord.broker.share.letters import GivenUp

    for run in runs:
        for offset in range(run.first, run.last + 1):
            yield GivenUp(offset, run.state.count, run.state.is_rejected)


def _read(log: PartitionLog, given_up: Sequence[GivenUp]) -> bytes:
    """Return batches from the first of some records on; none of it may be there any more."""
    if log.is_closed:
        return b""
    offset = max(given_up[0].offset, log.start_offset)
    return b"".join(log.read(offset, given_up[-1].offset + 1, READ_BYTES, takes_first=True).parts)
