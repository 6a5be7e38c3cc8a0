"""Records that a share group has given up go to a topic of its choice (KIP-1191).

As a broker of Kafka 4.4 does, as recorded: the topic's name has a prefix, and a setting that allows this; a record goes
to the partition of the same number, modulo how many there are; headers tell where it is from, and why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from groupcoord.broker.configs.definitions import ALLOWS_DEAD_LETTERS
from groupcoord.broker.rate_limited_logger import RateLimitedLogger
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic, TopicError
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.share_partition.in_flight import Run
from groupcoord.errors import GroupcoordError
from groupcoord.storage.errors import TopicLogError

if TYPE_CHECKING:
    from groupcoord.storage.partition_log import PartitionLog

READ_BYTES = 1024 * 1024
_REJECTED, _TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."
Content = tuple[bytes | None, bytes | None]


class NoDeadLetterTopicError(GroupcoordError):
    """There is no topic where records may go that a group has given up."""


class DeadLetters:
    """Sends given up records where such records go.

    Args:
        data: what topics hold.
        lines: what goes wrong is told there.
    """

    def __init__(self, data: TopicData, lines: RateLimitedLogger) -> None:
        self._data = data
        self._lines = lines

    def send(
        self,
        group_id: str,
        topic: Topic,
        index: int,
        log: PartitionLog,
        runs: Sequence[Run],
        settings: ShareGroupSettings,
    ) -> None:
        """Append a record for each that was given up. What goes wrong is logged: they are given up all the same.

        Args:
            group_id: who has given them up.
            topic, index, log: the partition, and what it holds.
            runs: which records.
            settings: where they go, and with what.
        """
        try:
            target = self._topic(settings.dead_letter_topic)
            target_log = self._data.whole.log(target, index % target.partition_count)
            if target_log is None:
                raise NoDeadLetterTopicError("topics hold nothing")
            for run in runs:
                contents = _contents(log, run) if settings.copies_dead_letters else {}
                self._append(target, target_log, _letters(group_id, topic, index, run, contents), run.size)
        except (NoDeadLetterTopicError, TopicError, TopicLogError) as error:
            message = "records that share group %r has given up go nowhere: %s"
            now_s = self._data.clock.now_ms() / 1_000
            self._lines.log(logging.ERROR, "dead letters", now_s, message, group_id, error)

    def _topic(self, name: str) -> Topic:
        """Return the topic where given up records go, made if need be and allowed."""
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
        if topic.configs.get(ALLOWS_DEAD_LETTERS) != "true":
            raise NoDeadLetterTopicError(f"the topic {name!r} does not allow it ({ALLOWS_DEAD_LETTERS})")
        return topic

    def _append(self, topic: Topic, log: PartitionLog, letters: Iterator[bytes], count: int) -> None:
        from groupcoord.records.batches import frame_records

        now_ms = self._data.clock.now_ms()
        batch = frame_records(
            log.end_offset,
            letters,
            count,
            now_ms,
            leader_epoch=log.leader_epoch,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
        log.append_encoded(batch, count, now_ms, self._data.settings_of(topic))


def _contents(log: PartitionLog, run: Run) -> dict[int, Content]:
    """Return key and value of records, by offset; what isn't there any more is missing."""
    from groupcoord.records.batches import TruncatedBatchError, iter_batches

    found: dict[int, Content] = {}
    offset = max(run.first, log.start_offset)
    while offset <= run.last:
        data = b"".join(log.read(offset, run.last + 1, READ_BYTES, takes_first=True).parts)
        before = offset
        try:
            for batch in iter_batches(data, check_crc=False):
                offset = max(batch.next_offset, offset)
                for at, _, key, value in batch.records():
                    if run.first <= at <= run.last:
                        found[at] = key, value
        except TruncatedBatchError:
            pass  # it is read from its beginning next
        if offset == before:
            break
    return found


def _letters(group_id: str, topic: Topic, index: int, run: Run, contents: dict[int, Content]) -> Iterator[bytes]:
    """Yield records, each behind its length."""
    from groupcoord.records.batches import sized, varint

    state = run.state
    for place, offset in enumerate(range(run.first, run.last + 1)):
        key, value = contents.get(offset, (None, None))
        headers = {
            "topic": topic.name,
            "partition": str(index),
            "offset": str(offset),
            "group": group_id,
            "delivery.count": str(state.count),
            "message": _REJECTED if state.is_rejected else _TOO_OFTEN,
        }
        told = b"".join(sized(f"__dlq.errors.{name}".encode()) + sized(text.encode()) for name, text in headers.items())
        body = b"\x00" + varint(0) + varint(place) + sized(key) + sized(value) + varint(len(headers)) + told
        yield varint(len(body)) + body
