"""Fetch sessions (KIP-227): incremental fetches that name and return only changed partitions.

Sources: ``FetchManager``, ``FetchSessionCache`` and ``FetchContext`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from attrs import define, field

from groupcoord.broker.work import Work, each, portions
from groupcoord.config.settings import INT32_MAX
from groupcoord.core.fast_construct import maker
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import (
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    TopicNameOrIdEntry,
)

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
NO_SESSION = 0

EVICTION_MS = 120_000
"""Idle time after which a session may be evicted (``min.incremental.fetch.session.eviction.ms``)."""

SESSION_PARTITIONS_MAX = 200_000
"""Most partitions of all sessions. Larger requests get no session."""


def _random_session_id(first: int, end: int) -> int:
    return first + int.from_bytes(os.urandom(8), "big") % (end - first)


class Target(NamedTuple):
    """Partition by topic name, or by topic id if ``name`` is None."""

    name: str | None
    topic_id: UUID
    partition_index: int


_make_target = maker(Target)

Targets = Sequence[tuple[Target, FetchPartition]]
Fetched = Sequence[tuple[Target, FetchedPartitionData]]


@define(eq=False)
class _Known:
    """Partition of a session, with the values last sent."""

    partition: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def note(self, data: FetchedPartitionData) -> bool:
        """Store the values of a response; return whether it has to include the partition."""
        is_failed = data.error_code is not ErrorCode.NONE
        previous = self.high_watermark, self.log_start_offset
        # The next success counts as news.
        self.high_watermark = -1 if is_failed else data.high_watermark
        self.log_start_offset = data.log_start_offset
        is_known = not is_failed and data.diverging_epoch is None and not data.records
        return not is_known or previous != (self.high_watermark, self.log_start_offset)


@define(eq=False)
class _Session:
    session_id: int
    uses_topic_ids: bool
    used_at_ms: int
    epoch: int
    partitions: dict[Target, _Known]


@define(eq=False)
class FetchContext:
    """Partitions of a request with their session, if any, and the form of its response."""

    targets: Targets
    session: _Session | None = None
    wants_session: Callable[[Fetched], Work[int]] | None = None

    def respond(self, fetched: Fetched) -> Work[FetchResponse]:
        session = self.session
        if session is None:
            session_id = NO_SESSION if self.wants_session is None else (yield from self.wants_session(fetched))
            return FetchResponse(
                session_id=session_id,
                topics=_topic_of(fetched) if len(fetched) == 1 else (yield from _by_topic(fetched)),
            )
        news: list[tuple[Target, FetchedPartitionData]] = []
        for portion in portions(fetched):
            for target, data in portion:
                known = session.partitions.get(target)
                # Another request may have removed it.
                if known is None or known.note(data):
                    news.append((target, data))
                    # KIP-227: the others precede it next time, so that none starves at a low max_bytes.
                    if known is not None and data.records:
                        del session.partitions[target]
                        session.partitions[target] = known
            if portion is not fetched:
                yield None
        topics = _topic_of(news) if len(news) == 1 else (yield from _by_topic(news))
        return FetchResponse(session_id=session.session_id, topics=topics)


def _topic_of(fetched: Fetched) -> tuple[TopicNameOrIdEntry[FetchedPartitionData], ...]:
    ((target, partition),) = fetched
    return (TopicNameOrIdEntry(target.name, target.topic_id, (partition,)),)


def _by_topic(fetched: Fetched) -> Work[tuple[TopicNameOrIdEntry[FetchedPartitionData], ...]]:
    """Group partitions by topic; a topic is repeated if others lie between its partitions."""
    gathered: list[tuple[str | None, UUID, list[FetchedPartitionData]]] = []
    before = None
    for portion in portions(fetched):
        for target, partition in portion:
            topic = target[:2]
            if topic != before:
                gathered.append((*topic, []))
                before = topic
            gathered[-1][2].append(partition)
        if portion is not fetched:
            yield None
    return (yield from each(gathered, lambda topic: TopicNameOrIdEntry(topic[0], topic[1], tuple(topic[2]))))


@define(eq=False)
class FetchSessions:
    """Fetch sessions of all clients."""

    _slots: int
    _now_ms: Callable[[], int]
    _new_id: Callable[[int, int], int] = _random_session_id
    _sessions: OrderedDict[int, _Session] = field(init=False, factory=OrderedDict)  # least recently used first
    _partition_count: int = field(init=False, default=0)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: Fetch) -> Work[FetchContext | ErrorCode]:
        """Return the context of a request, or an error, and update the session."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full request closes the session that it names, also with the final epoch.
            if request.session_id != NO_SESSION:
                self._forget(request.session_id)
            targets = _target(request) or (yield from _targets(request))
            if request.session_epoch == FINAL_EPOCH or not targets:
                return FetchContext(list(targets.items()))
            uses_topic_ids = request.topics[0].name is None
            return FetchContext(
                list(targets.items()),
                wants_session=lambda fetched: self._create(targets, fetched, uses_topic_ids=uses_topic_ids),
            )
        # FetchManager's order: session id, epoch, use of topic ids.
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if any((topic.name is None) != session.uses_topic_ids for topic in request.topics):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        # 0 asks for a new session.
        session.epoch = session.epoch % INT32_MAX + 1
        session.used_at_ms = self._now_ms()
        self._sessions.move_to_end(session.session_id)
        return (yield from self._update(session, request))

    def _update(self, session: _Session, request: Fetch) -> Work[FetchContext | ErrorCode]:
        partitions = session.partitions
        wanted = list((yield from _targets(request)).items()) if request.topics else []
        for portion in portions(wanted):
            with self._counted(session):
                for target, partition in portion:
                    known = partitions.get(target)
                    if known is None:
                        partitions[target] = _Known(partition)
                    else:
                        known.partition = partition
            if portion is not wanted:
                yield None
        for topic in request.forgotten_topics:
            yield None
            for indexes in portions(topic.partitions):
                with self._counted(session):
                    for index in indexes:
                        partitions.pop(Target(topic.name, topic.topic_id, index), None)
                if indexes is not topic.partitions:
                    yield None
        if self._partition_count > SESSION_PARTITIONS_MAX:
            self._forget(session.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        # As in FetchManager, an empty session ends.
        if not partitions:
            self._forget(session.session_id)
            return FetchContext(())
        return FetchContext([(target, known.partition) for target, known in partitions.items()], session)

    @contextmanager
    def _counted(self, session: _Session) -> Iterator[None]:
        before = len(session.partitions)
        yield None
        # Another request may have closed it.
        if self._sessions.get(session.session_id) is session:
            self._partition_count += len(session.partitions) - before

    def _create(self, targets: dict[Target, FetchPartition], fetched: Fetched, *, uses_topic_ids: bool) -> Work[int]:
        """Create a session for an answered full request; return its id, or 0 without room."""
        named = list(targets.items())
        partitions: dict[Target, _Known] = {}
        for some_named in portions(named):
            partitions.update([(target, _Known(partition)) for target, partition in some_named])
            if some_named is not named:
                yield None
        for portion in portions(fetched):
            for target, data in portion:
                partitions[target].note(data)
            if portion is not fetched:
                yield None
        now_ms = self._now_ms()
        if not self._make_room(len(partitions), now_ms):
            return NO_SESSION
        session_id = self._new_id(1, INT32_MAX)
        while session_id in self._sessions:
            session_id = self._new_id(1, INT32_MAX)
        self._sessions[session_id] = _Session(session_id, uses_topic_ids, now_ms, INITIAL_EPOCH + 1, partitions)
        self._partition_count += len(partitions)
        return session_id

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        while (
            len(self._sessions) >= self._slots or self._partition_count + partition_count > SESSION_PARTITIONS_MAX
        ) and self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.used_at_ms <= EVICTION_MS:
                return False
            self._forget(oldest.session_id)
        return len(self._sessions) < self._slots and partition_count <= SESSION_PARTITIONS_MAX

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)


def _target(request: Fetch) -> dict[Target, FetchPartition] | None:
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    ((name, topic_id, (partition,)),) = topics
    return {_make_target((name, topic_id, partition.partition_index)): partition}


def _targets(request: Fetch) -> Work[dict[Target, FetchPartition]]:
    """Return the partitions of a request; of repeated ones the last."""
    targets: dict[Target, FetchPartition] = {}
    for name, topic_id, partitions in request.topics:
        if targets:
            yield None
        for portion in portions(partitions):
            for partition in portion:
                targets[Target(name, topic_id, partition.partition_index)] = partition
            if portion is not partitions:
                yield None
    return targets
