"""ShareFetch and ShareAcknowledge: share sessions, errors of partitions, and waits for records.

Partitions that fail at the start (unknown, led by another node) are reported in the response. A share-partition with an
unreadable state is reported when the wait ends, never without a wait. One that moves or is deleted during the wait is
left out.

Sources: ``KafkaApis``, ``SharePartitionManager``, ``ShareSessionCache``, ``DelayedShareFetch`` of Apache Kafka 4.4.
There a release does not always end a wait; here it always does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from attrs import define, field

from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import CurrentLeaders, TopicData
from groupcoord.broker.share.coordination import Persister
from groupcoord.broker.share.dead_letters import DeadLetters
from groupcoord.broker.share.share_partitions import (
    NOTHING_READ,
    LedPartition,
    ReadRecords,
    SettingsOf,
    SharePartitions,
    acquirable_bytes,
    read_and_acquire,
)
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.work import PORTION, Awaited, Work
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.core.share_partition.in_flight import (
    Acknowledgement,
    RefusedAcknowledgementError,
    Wanted,
    check_acknowledgements,
)
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import TopicLogError
from groupcoord.wire import WireResponse
from groupcoord.wire.share_messages import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    ShareAcknowledge,
    ShareAcknowledgedPartition,
    ShareAcknowledgeResponse,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchResponse,
    SharePartitionData,
    TopicIdEntry,
)

# KIP-932: session epochs are of type int32, and wrap.
LAST_EPOCH = 2**31 - 1


class SharedPartition(NamedTuple):
    """Partition of a topic, by topic id."""

    topic_id: UUID
    partition: int


class ShareSession:
    """Share session of a member; it ends with the connection that opened it.

    Attributes:
        partitions: with the topic's name when they were added; "" if it did not exist.
        due: partitions that the next response names in any case.
    """

    def __init__(self, group_id: str, member_id: str, connection: Connection) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = FIRST_EPOCH + 1
        self.partitions: dict[SharedPartition, str] = {}
        self.due: set[SharedPartition] = set()

    def add(self, partition: SharedPartition, name: str) -> None:
        # Clients name known partitions again to acknowledge records.
        if partition not in self.partitions:
            self.partitions[partition] = name
            self.due.add(partition)

    def forget(self, partitions: Iterable[SharedPartition]) -> None:
        for partition in partitions:
            self.partitions.pop(partition, None)
            self.due.discard(partition)

    def rotated(self, epoch: int) -> list[SharedPartition]:
        # Rotated, so that max_bytes starves none.
        partitions = list(self.partitions)
        first = epoch % len(partitions) if partitions else 0
        return partitions[first:] + partitions[:first]


class ShareSessions:
    """Share sessions of a broker."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._opened_last: dict[Connection, str] = {}  # group id

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: Connection) -> ShareSession:
        known = self._sessions.get((group_id, member_id))
        if known is not None:
            self.remove(known)
        session = ShareSession(group_id, member_id, connection)
        self._sessions[group_id, member_id] = session
        self._opened_last[connection] = group_id
        return session

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """Return the session of a request and advance its epoch; or an error."""
        session = self._sessions.get((group_id, member_id))
        # KIP-932: SHARE_SESSION_NOT_FOUND wins over a wrong epoch.
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        # As in Kafka, at any epoch.
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        # KIP-932: 0 opens a session, so the epoch after the last is 1.
        session.epoch = session.epoch % LAST_EPOCH + 1
        return session

    def may_open(self, group_id: str, member_id: str, sessions_max: int) -> bool:
        return len(self._sessions) < sessions_max or (group_id, member_id) in self._sessions

    def of_connection(self, connection: Connection) -> list[ShareSession]:
        return [session for session in self._sessions.values() if session.connection is connection]

    def disconnected(self, connection: Connection, ended: list[ShareSession]) -> list[str]:
        """Return the groups without sessions after a connection has closed."""
        group_ids = dict.fromkeys(session.group_id for session in ended)
        # Also the group of the last session opened there, even if that has ended.
        last = self._opened_last.pop(connection, None)
        if last is not None:
            group_ids[last] = None
        sessions = self._sessions.values()
        return [group_id for group_id in group_ids if all(session.group_id != group_id for session in sessions)]

    def remove(self, session: ShareSession) -> None:
        """Remove a session, unless another one has replaced it."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is session:
            del self._sessions[key]


# Kafka's bound, the length of a UUID as text.
MEMBER_ID_MAX = 36
RECORD_LIMIT_MODE = 1
SESSION_PARTITIONS_MAX = 2_000
"""Each wake-up checks all of them."""

NOT_HOSTED = "This server does not host this topic-partition."


class _Acknowledged(NamedTuple):
    """Result of the acknowledgements of a partition."""

    error_code: ErrorCode
    message: str | None = None


_ACKNOWLEDGED = _Acknowledged(ErrorCode.NONE)


@define(eq=False)
class _Outcome:
    """Result of a ShareFetch for one partition; ``acknowledged`` is None if nothing was acknowledged."""

    error_code: ErrorCode = ErrorCode.NONE
    acknowledged: _Acknowledged | None = None
    read: ReadRecords = NOTHING_READ


@define(eq=False)
class _Fetching:
    """State of a ShareFetch.

    Attributes:
        has_paused: whether other requests may have been handled since the look-up.
        outcomes: the results by partition, in reading order.
    """

    session: ShareSession
    request: ShareFetch
    permissions: Permissions
    deadline_ms: int
    has_paused: bool = False
    outcomes: dict[SharedPartition, _Outcome] = field(factory=dict)


class ShareRequests:
    """Handlers of ShareFetch and ShareAcknowledge."""

    def __init__(
        self,
        data: TopicData,
        persister: Persister,
        settings_of: SettingsOf,
        dead_letters: DeadLetters,
        leaders: CurrentLeaders | None = None,
    ) -> None:
        self._data = data
        self._leaders = leaders
        self._settings_of = settings_of
        self.sessions = ShareSessions()
        self.partitions = SharePartitions(data, persister, settings_of, dead_letters)
        self.timers = dead_letters.timers

    def disconnected(self, connection: Connection) -> None:
        """End the sessions that were opened on a closed connection."""
        sessions = self.sessions.of_connection(connection)
        for session in sessions:
            self._end(session)
        for group_id in self.sessions.disconnected(connection, sessions):
            self.partitions.forget_group(group_id)

    def _end(self, session: ShareSession) -> None:
        self.sessions.remove(session)
        for partition in session.partitions:
            led = self.partitions.known(SharePartitionKey(session.group_id, *partition))
            # A dropped share-partition holds no locks.
            if led is not None:
                self.partitions.release(led, session.member_id)

    def _wait(self, deadline_ms: int, watched: Iterable[LedPartition] = ()) -> Work[None]:
        """Wait until a deadline or a change of the watched share-partitions."""
        awaited = Awaited()
        timer = self.timers.add(deadline_ms, awaited.done)
        for led in watched:
            led.waiting[awaited.done] = None
        try:
            yield awaited
        finally:
            # Also when the client disconnects.
            self.timers.cancel(timer)
            for led in watched:
                led.waiting.pop(awaited.done, None)

    # ------------------------------------------------------------ ShareFetch

    def fetch(self, connection: Connection, request: ShareFetch) -> WireResponse | Work[WireResponse | None]:
        permissions = connection.permissions
        error_code = _refusal(request, permissions)
        # KIP-1222: a request that renews locks must not fetch.
        if error_code is ErrorCode.NONE and request.is_renew_ack:
            sizes = request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms
            error_code = ErrorCode.INVALID_REQUEST if any(sizes) else ErrorCode.NONE
        # As in Kafka, without a new epoch.
        if error_code is not ErrorCode.NONE:
            return ShareFetchResponse(error_code)
        group_id, member_id = request.group_id or "", request.member_id or ""
        found: ShareSession | ErrorCode
        if request.share_session_epoch == FIRST_EPOCH:
            # A new session has acquired nothing yet.
            if any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions):
                return ShareFetchResponse(ErrorCode.INVALID_REQUEST)
            if not self.sessions.may_open(group_id, member_id, self._data.config.group_share_max_share_sessions):
                # After the wait, so that clients do not retry in a loop.
                return self._refuse_full(request.max_wait_ms)
            found = self.sessions.open(group_id, member_id, connection)
        else:
            found = self.sessions.find(group_id, member_id, request.share_session_epoch)
        if isinstance(found, ErrorCode):
            return ShareFetchResponse(found)
        deadline_ms = self._data.clock.now_ms() + max(request.max_wait_ms, 0)
        return self._fetch(_Fetching(found, request, permissions, deadline_ms), connection)

    def _refuse_full(self, max_wait_ms: int) -> Work[WireResponse | None]:
        if max_wait_ms > 0:
            yield from self._wait(self._data.clock.now_ms() + max_wait_ms)
        return ShareFetchResponse(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def _fetch(self, fetching: _Fetching, connection: Connection) -> Work[WireResponse | None]:
        session, request = fetching.session, fetching.request
        is_final = request.share_session_epoch == FINAL_EPOCH
        named_count = sum(len(topic.partitions) for topic in request.topics)
        if len(session.partitions) + named_count > SESSION_PARTITIONS_MAX:
            return ShareFetchResponse(ErrorCode.INVALID_REQUEST)
        # Before reading: released records can be acquired again.
        acknowledged = yield from self._acknowledge_all(session, request, fetching.permissions)
        if is_final:
            self._end(session)
        else:
            self._update(session, request)
            # As in Kafka, a fetch of nothing is answered at once, without records.
            if request.max_records > 0 and request.max_bytes > 0:
                yield from self._read_or_wait(fetching)
        for partition, result in acknowledged.items():
            fetching.outcomes.setdefault(partition, _Outcome()).acknowledged = result
        return self._respond(fetching, connection)

    def _update(self, session: ShareSession, request: ShareFetch) -> None:
        for topic in request.topics:
            # The error depends on the kept name after the topic is deleted.
            known = self._data.topics.get_by_id(topic.topic_id)
            for partition in topic.partitions:
                session.add(
                    SharedPartition(topic.topic_id, partition.partition_index), "" if known is None else known.name
                )
        for forgotten in request.forgotten_topics_data:
            session.forget(SharedPartition(forgotten.topic_id, index) for index in forgotten.partitions)

    def _read_or_wait(self, fetching: _Fetching) -> Work[None]:
        led = yield from self._led(fetching)
        is_late, has_waited = fetching.request.max_wait_ms <= 0, False
        while led:
            readable = self._readable(fetching, led, has_waited=has_waited)
            is_late = is_late or self._data.clock.now_ms() >= fetching.deadline_ms
            # Others may have acquired the records.
            if (self._is_enough(fetching, readable) or is_late) and (self._read(fetching, readable) or is_late):
                return
            fetching.has_paused = has_waited = True
            yield from self._wait(fetching.deadline_ms, led.values())

    def _led(self, fetching: _Fetching) -> Work[dict[SharedPartition, LedPartition]]:
        session = fetching.session
        led: dict[SharedPartition, LedPartition] = {}
        for number, partition in enumerate(session.rotated(fetching.request.share_session_epoch), 1):
            if number % PORTION == 0:
                fetching.has_paused = True
                yield None
            # Another request of the session may have removed it.
            found = self._lead(partition, fetching)
            if isinstance(found, LedPartition):
                led[partition] = found
            else:
                fetching.outcomes[partition] = _Outcome(found)
        return led

    def _readable(
        self, fetching: _Fetching, led: dict[SharedPartition, LedPartition], *, has_waited: bool
    ) -> dict[SharedPartition, LedPartition]:
        readable = {}
        for partition, each in led.items():
            # Unchanged without a pause.
            if self.partitions.is_usable(each) if fetching.has_paused else each.error_code is ErrorCode.NONE:
                readable[partition] = each
                fetching.outcomes[partition] = _Outcome()
            elif each.records is None and has_waited:  # its state could not be read
                fetching.outcomes[partition] = _Outcome(each.error_code)
            else:
                # The next fetch reports it.
                fetching.outcomes.pop(partition, None)
        return readable

    def _lead(self, partition: SharedPartition, fetching: _Fetching) -> LedPartition | ErrorCode:
        session = fetching.session
        topic = self._find(partition, session.partitions.get(partition, ""), fetching.permissions)
        if isinstance(topic, ErrorCode):
            return topic
        return self.partitions.lead(SharePartitionKey(session.group_id, *partition), topic)

    def _find(self, partition: SharedPartition, name: str, permissions: Permissions) -> Topic | ErrorCode:
        topic = self._data.topics.get_by_id(partition.topic_id)
        name = name if topic is None else topic.name
        # UNKNOWN_TOPIC_ID comes first: without a name nothing can be authorized.
        if not name:
            return ErrorCode.UNKNOWN_TOPIC_ID
        # Before the partition is checked, so that denied clients learn nothing about it.
        if not permissions.on_topic(name, Operation.READ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is None or not topic.has_partition(partition.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic

    def _is_enough(self, fetching: _Fetching, led: dict[SharedPartition, LedPartition]) -> bool:
        settings = self._settings_of(fetching.session.group_id)
        size_bytes = 0
        has_some = False
        for each in led.values():
            try:
                found = acquirable_bytes(each, settings)
            except TopicLogError:
                return True
            has_some = has_some or bool(found)
            size_bytes += found or 0
        # Even with min_bytes 0, a fetch without records waits.
        return has_some and size_bytes >= fetching.request.min_bytes

    def _read(self, fetching: _Fetching, led: dict[SharedPartition, LedPartition]) -> bool:
        """Read from every share-partition with records; return whether there were any, or an error."""
        request, settings = fetching.request, self._settings_of(fetching.session.group_id)
        now_ms = self._data.clock.now_ms()
        ready = []
        has_failed = False
        for partition, each in led.items():
            try:
                if acquirable_bytes(each, settings):
                    ready.append((partition, each))
            except TopicLogError as error:
                fetching.outcomes[partition].error_code = error.error_code
                has_failed = True
        left_bytes, left_records = min(request.max_bytes, self._data.config.fetch_max_bytes), request.max_records
        # As in Kafka, each partition gets the same share of the bytes.
        share_bytes = max(left_bytes // max(len(ready), 1), 1)
        has_read = False
        for partition, each in ready:
            wanted = Wanted(
                fetching.session.member_id,
                left_records,
                request.batch_size,
                request.share_acquire_mode == RECORD_LIMIT_MODE,
            )
            try:
                # A larger batch would never arrive.
                read = read_and_acquire(each, wanted, settings, share_bytes, now_ms, takes_first=not has_read)
            except TopicLogError as error:
                fetching.outcomes[partition].error_code = error.error_code
                has_failed = True
                continue
            self.partitions.watch_locks(each)
            fetching.outcomes[partition].read = read
            left_records -= read.record_count
            has_read = has_read or read.record_count > 0
            if left_records <= 0:
                break
        return has_read or has_failed

    def _respond(self, fetching: _Fetching, connection: Connection) -> ShareFetchResponse:
        session = fetching.session
        has_failed = False
        topics: dict[Any, list[SharePartitionData]] = {}
        for partition, outcome in fetching.outcomes.items():
            # KIP-932: a session's response leaves out partitions without news.
            is_listed = (
                partition in session.due
                or outcome.error_code is not ErrorCode.NONE
                or outcome.acknowledged is not None
                or outcome.read.acquired
            )
            if outcome.error_code is ErrorCode.NONE:
                session.due.discard(partition)
            else:
                session.due.add(partition)
                has_failed = True
            if is_listed:
                acknowledged = outcome.acknowledged or _ACKNOWLEDGED
                topics.setdefault(partition.topic_id, []).append(
                    SharePartitionData(
                        partition.partition,
                        outcome.error_code,
                        acknowledged.error_code,
                        outcome.read.records,
                        outcome.read.acquired,
                        acknowledge_error_message=acknowledged.message,
                    )
                )
        lock_ms = self._settings_of(session.group_id).record_lock_duration_ms
        responses = tuple([TopicIdEntry(topic_id, tuple(found)) for topic_id, found in topics.items()])
        response = ShareFetchResponse(ErrorCode.NONE, lock_ms, responses)
        return self._leaders.add(response, connection.nodes) if has_failed and self._leaders else response

    # ------------------------------------------------------------ ShareAcknowledge

    def acknowledge(
        self, connection: Connection, request: ShareAcknowledge
    ) -> WireResponse | Work[WireResponse | None]:
        permissions = connection.permissions
        error_code = _refusal(request, permissions)
        # KIP-932: only a ShareFetch opens a session.
        if error_code is ErrorCode.NONE and request.share_session_epoch == FIRST_EPOCH:
            error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if error_code is not ErrorCode.NONE:
            return ShareAcknowledgeResponse(error_code)
        found = self.sessions.find(request.group_id or "", request.member_id or "", request.share_session_epoch)
        if isinstance(found, ErrorCode):
            return ShareAcknowledgeResponse(found)
        return self._acknowledge(found, request, permissions, connection)

    def _acknowledge(
        self, session: ShareSession, request: ShareAcknowledge, permissions: Permissions, connection: Connection
    ) -> Work[WireResponse | None]:
        acknowledged = yield from self._acknowledge_all(session, request, permissions)
        if request.share_session_epoch == FINAL_EPOCH:
            self._end(session)
        topics: dict[Any, list[ShareAcknowledgedPartition]] = {}
        has_failed = False
        for partition, result in acknowledged.items():
            has_failed = has_failed or result is not _ACKNOWLEDGED
            topics.setdefault(partition.topic_id, []).append(ShareAcknowledgedPartition(partition.partition, *result))
        lock_ms = self._settings_of(session.group_id).record_lock_duration_ms
        results = tuple([TopicIdEntry(topic_id, tuple(found)) for topic_id, found in topics.items()])
        response = ShareAcknowledgeResponse(ErrorCode.NONE, lock_ms, results)
        return self._leaders.add(response, connection.nodes) if has_failed and self._leaders else response

    def _acknowledge_all(
        self, session: ShareSession, request: ShareFetch | ShareAcknowledge, permissions: Permissions
    ) -> Work[dict[SharedPartition, _Acknowledged]]:
        results: dict[SharedPartition, _Acknowledged] = {}
        missing: set[SharedPartition] = set()
        # None until all are submitted: an early response must not end the wait.
        all_there: Awaited | None = None

        def done(partition: SharedPartition, error_code: ErrorCode, message: str | None = None) -> None:
            is_done = error_code is ErrorCode.NONE
            results[partition] = _ACKNOWLEDGED if is_done else _Acknowledged(error_code, message)
            missing.discard(partition)
            if not missing and all_there is not None:
                all_there.done()

        for number, (partition, batches) in enumerate(_acknowledgements(request.topics)):
            if number and number % PORTION == 0:
                yield None
            missing.add(partition)
            self._acknowledge_one(session, partition, batches, request, permissions, done)
        if missing:
            all_there = Awaited()
            yield all_there
        return results

    def _acknowledge_one(
        self,
        session: ShareSession,
        partition: SharedPartition,
        batches: list[Acknowledgement],
        request: ShareFetch | ShareAcknowledge,
        permissions: Permissions,
        done: Callable[..., None],
    ) -> None:
        # Not the session's name: a deleted topic is UNKNOWN_TOPIC_ID here.
        topic = self._find(partition, "", permissions)
        try:
            # As in Kafka, malformed batches win over an unknown topic.
            check_acknowledgements(batches, may_renew=request.is_renew_ack)
        except RefusedAcknowledgementError as error:
            done(partition, error.error_code)
            return
        if isinstance(topic, ErrorCode):
            done(partition, topic)
            return
        led = self.partitions.current(SharePartitionKey(session.group_id, *partition))
        # As in Kafka, it was never fetched, or dropped.
        if led is None:
            done(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        else:
            self.partitions.acknowledge(led, session.member_id, batches, partial(done, partition))


def _refusal(request: ShareFetch | ShareAcknowledge, permissions: Permissions) -> ErrorCode:
    """Return the error of a request regardless of its session, or NONE."""
    if request.group_id is None:
        return ErrorCode.INVALID_REQUEST
    error_code = permissions.group_error(request.group_id, Operation.READ)
    if error_code is not ErrorCode.NONE:
        return error_code
    # KafkaApis checks the permission first.
    is_sound = request.member_id and len(request.member_id) <= MEMBER_ID_MAX
    return ErrorCode.NONE if is_sound else ErrorCode.INVALID_REQUEST


def _acknowledgements(
    topics: Iterable[TopicIdEntry[ShareFetchPartition]],
) -> Iterator[tuple[SharedPartition, list[Acknowledgement]]]:
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                batches = [Acknowledgement(*batch) for batch in partition.acknowledgement_batches]
                yield SharedPartition(topic.topic_id, partition.partition_index), batches
