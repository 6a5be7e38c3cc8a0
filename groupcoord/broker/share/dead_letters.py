"""Dead letter queues of share groups (KIP-1191): records that a group has given up are appended to a topic of its
choice.

As recorded from Kafka 4.4: the topic's name needs a prefix, and the topic a config that allows this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from attrs import define, field

from groupcoord.broker.configs.definitions import ALLOWS_DEAD_LETTERS
from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.share.coordination import TRIES_MAX, pause_ms
from groupcoord.broker.topics.registry import Topic, TopicError
from groupcoord.broker.work import Job, Timers, Work, do_in_background, do_in_place, run_in_executor
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.share_partition.in_flight import Run
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.storage.errors import TopicLogError

if TYPE_CHECKING:
    from groupcoord.broker.share.letters import GivenUp, Origin, Portion
    from groupcoord.storage.log.memory_log import PartitionLog

logger = logging.getLogger("groupcoord.host")

READ_BYTES = 1024 * 1024
LETTERS_AT_ONCE = 1_000
"""Records that one job encodes; a batch may hold millions."""


class NoDeadLetterTopicError(GroupcoordError):
    """The dead letter topic does not exist or is not allowed."""


@define(eq=False)
class DeadLetters:
    """Sender of dead letters. Its ``timers`` are also those of the share-partitions that send them."""

    _data: TopicData
    _on_created: Callable[[Collection[str]], None] = lambda names: None
    start_job: Callable[[Job], None] = do_in_place
    timers: Timers = field(init=False, factory=Timers)
    _lines: RateLimitedLogger = field(init=False, factory=lambda: RateLimitedLogger(logger))

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
        """Append a record for each given up record, then call ``done``."""
        # Most servers never send a dead letter.
        from groupcoord.broker.share.letters import Origin

        origin, log_read = Origin(topic.name, index, group_id), log if settings.copies_dead_letters else None
        do_in_background(self._send(origin, runs, log_read, settings.dead_letter_topic, done), self.start_job)

    def _send(
        self, origin: Origin, runs: Sequence[Run], log: PartitionLog | None, name: str, done: Callable[[], None]
    ) -> Work[None]:
        from groupcoord.broker.share.letters import GivenUp, write_letters

        try:
            target = self._topic(name)
            # As recorded: the partition of the same number, modulo their count.
            index = origin.partition % target.partition_count
            bytes_max = self._data.settings_of(target).max_message_bytes
            # A run may span millions of offsets.
            left, given_up = _given_up(runs), list[GivenUp]()
            # Letters that a job has left over come first.
            while given_up := [*given_up, *islice(left, LETTERS_AT_ONCE - len(given_up))]:
                data = b"" if log is None else _read(log, given_up)
                # Decompressing may take long.
                portions, count = yield from run_in_executor(write_letters, origin, given_up, data, bytes_max)
                for portion in portions:
                    yield from self._append(target.topic_id, index, portion)
                del given_up[:count]
        except (NoDeadLetterTopicError, TopicError, TopicLogError, OSError) as error:
            # As in Kafka, the records are given up even if nothing can be sent.
            message, group_id = "dead letters of share group %r are dropped: %s", origin.group_id
            self._lines.log(logging.ERROR, "dead letters", self._data.clock.now_ms() / 1_000, message, group_id, error)
        done()

    # ------------------------------------------------------------ the topic

    def _topic(self, name: str) -> Topic:
        config, topics = self._data.config, self._data.topics
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            raise NoDeadLetterTopicError(f"the name {name!r} does not begin with {prefix!r}")
        topic = topics.get(name)
        if topic is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise NoDeadLetterTopicError(f"there is no topic {name!r}, and it may not be made")
            with topics.edit() as edit:
                topic = edit.create(name, config.num_partitions, configs={ALLOWS_DEAD_LETTERS: "true"})
            self._on_created([name])
        # Otherwise a group's config alone could write to any topic with the prefix.
        if topic.configs.get(ALLOWS_DEAD_LETTERS) != "true":
            raise NoDeadLetterTopicError(f"the topic {name!r} does not allow it ({ALLOWS_DEAD_LETTERS})")
        return topic

    def _append(self, topic_id: UUID, index: int, portion: Portion) -> Work[None]:
        """Append a portion to a partition, with retries while its disk fails."""
        for try_count in range(1, TRIES_MAX):
            try:
                self._try_append(topic_id, index, portion)
            except TopicLogError as error:
                if error.error_code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
                yield from self.timers.wait_until(self._data.clock.now_ms() + pause_ms(try_count))
            else:
                return
        # Its error ends the sending.
        self._try_append(topic_id, index, portion)

    def _try_append(self, topic_id: UUID, index: int, portion: Portion) -> None:
        from groupcoord.records.batches import frame_records

        # A topic of this name may have been created again.
        topic = self._data.topics.get_by_id(topic_id)
        if topic is None:
            raise TopicLogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        log = self._data.whole.log(topic, index)
        if log is None:
            raise TopicLogError(ErrorCode.POLICY_VIOLATION, "topics hold nothing")
        now_ms = self._data.clock.now_ms()
        batch = frame_records(
            # Nothing yields before the append, so the log will still end here.
            log.end_offset,
            (portion.records,),
            portion.record_count,
            now_ms,
            leader_epoch=log.leader_epoch,
            producer_id=-1,
            producer_epoch=-1,
            # Not idempotent: after an unknown outcome the retry may repeat letters.
            base_sequence=-1,
        )
        log.append_encoded(batch, portion.record_count, now_ms, self._data.settings_of(topic))

    def report_omitted(self) -> None:
        self._lines.report(self._data.clock.now_ms() / 1_000)


def _given_up(runs: Sequence[Run]) -> Iterator[GivenUp]:
    from groupcoord.broker.share.letters import GivenUp

    for run in runs:
        for offset in range(run.first, run.last + 1):
            yield GivenUp(offset, run.state.count, run.state.is_rejected)


def _read(log: PartitionLog, given_up: Sequence[GivenUp]) -> bytes:
    # Letters of a deleted topic go without contents.
    if log.is_closed:
        return b""
    # Retention may have removed the first of these.
    offset = max(given_up[0].offset, log.start_offset)
    return b"".join(log.read(offset, given_up[-1].offset + 1, READ_BYTES, takes_first=True).parts)
