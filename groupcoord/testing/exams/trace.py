"""Trace of an exam: the actions of a program, from its clients' requests, and the verdict of each law."""

from __future__ import annotations

import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from threading import Lock
from typing import Any
from uuid import UUID

from attrs import define, evolve, field, frozen

from groupcoord.core.consumer_protocol import ConsumerProtocolError, decode_assignment
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    ShareGroupHeartbeat,
    SyncGroup,
    TxnOffsetCommit,
)
from groupcoord.core.share_partition.in_flight import AcknowledgeType
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import iter_batches
from groupcoord.storage.log.batches import UNREADABLE
from groupcoord.testing.asserting.records import decode_records
from groupcoord.testing.asserting.report import describe_answer, describe_request, errors_of, is_routine
from groupcoord.testing.asserting.requests import ReceivedRequest
from groupcoord.wire.broker_messages import Fetch, FetchResponse, Produce
from groupcoord.wire.share_messages import AcknowledgementBatch, ShareAcknowledge, ShareFetch, ShareFetchResponse


@frozen
class Event:
    """Event of an exam."""

    at_s: float
    who: str
    text: str
    is_error: bool = False


@frozen
class Breach:
    """Violation of a law.

    Attributes:
        who: the instance, or empty if unknown.
        causes: earlier related events of any instance.
    """

    at_s: float
    who: str
    text: str
    causes: tuple[Event, ...] = ()


class Law(Enum):
    """Law of the exam, as a sentence."""

    OWNED = "no instance works on a partition that another owns"
    AHEAD = "no committed offset is beyond the processed records"
    BACKWARD = "no committed offset decreases without a cause"
    ACCEPTED = "no record is accepted before it is processed"
    AFTERWARDS = "no record is processed long after it was accepted"
    FENCED = "a fenced instance stops or rejoins"
    COMMITTED = "processed records are committed"
    PROCESSED = "every record is processed"
    ONCE = "no record is processed twice"
    GIVEN_UP = "no readable record is given up"
    CAUGHT_UP = "the program catches up soon after the fault"
    LEAVING = "a stopped instance leaves its group"

    def __str__(self) -> str:
        return self.value


EXPLAINS: dict[Law, tuple[Law, ...]] = {
    Law.COMMITTED: (Law.FENCED,),
    Law.PROCESSED: (Law.AHEAD, Law.ACCEPTED, Law.FENCED, Law.GIVEN_UP),
    Law.ONCE: (Law.OWNED,),
    Law.CAUGHT_UP: (Law.FENCED, Law.PROCESSED, Law.AHEAD, Law.GIVEN_UP),
    Law.LEAVING: (Law.FENCED, Law.CAUGHT_UP),
}


@frozen
class Verdict:
    """Result for one law.

    Attributes:
        breaches: its violations, oldest first.
        explained_by: the broken law that explains these breaches, or None.
    """

    law: Law
    breaches: tuple[Breach, ...] = ()
    explained_by: Law | None = None

    @property
    def is_broken(self) -> bool:
        """True if the law is broken and no other law explains it."""
        return bool(self.breaches) and self.explained_by is None


def judge(breaches: dict[Law, list[Breach]]) -> list[Verdict]:
    """Return the verdict of each checked law, from breaches by law."""
    return [
        Verdict(
            law,
            tuple(breaches[law]),
            next((other for other in EXPLAINS.get(law, ()) if breaches[law] and breaches.get(other)), None),
        )
        for law in Law
        if law in breaches
    ]


Place = tuple[int, int]


class ShareTrace:
    """Records of a share group: processed, accepted, given up.

    Attributes:
        ahead: acceptances of unprocessed records.
        afterwards: work on records accepted long before.
    """

    def __init__(
        self, topic: str, name_of: Callable[[UUID], str | None], processed: Mapping[Place, int], works_late_s: float
    ) -> None:
        self._topic, self._name_of, self._processed = topic, name_of, processed
        self._works_late_s = works_late_s
        self._unanswered: dict[int, list[Place]] = {}
        self._unprocessed: dict[int, list[Place]] = {}
        self.unreadable: set[Place] = set()
        self.accepted_s: dict[Place, float] = {}
        self.ahead: list[Breach] = []
        self.afterwards: list[Breach] = []

    def came(self, request: ReceivedRequest) -> None:
        """Note acknowledgements on arrival: accepted records must be processed by now."""
        accepted = list(self._accepted_by(request.message))
        self._unanswered[request.number] = accepted  # the response decides; it may be lost
        self._unprocessed[request.number] = [place for place in accepted if not self._processed.get(place)]

    def answered(self, request: ReceivedRequest, now_s: float) -> None:
        self._unanswered.pop(request.number, None)
        unprocessed = self._unprocessed.pop(request.number, [])
        refused = set(self._refused(request.message, request.answer))
        for place in self._accepted_by(request.message):
            if place[0] not in refused:
                self.accepted_s.setdefault(place, now_s)
        taken = [place for place in unprocessed if place[0] not in refused]
        if taken:
            index, offset = taken[0]
            more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
            text = f"accepts record {index}-{offset}{more}, not processed"
            self.ahead.append(Breach(now_s, request.listener, text))

    def worked(self, who: str, place: Place, now_s: float) -> None:
        accepted_s = self.accepted_s.get(place)
        if accepted_s is not None and now_s - accepted_s > self._works_late_s:
            index, offset = place
            text = f"works on record {index}-{offset} {now_s - accepted_s:.1f} s after it was accepted"
            self.afterwards.append(Breach(now_s, who, text))

    def given_up(self, index: int, end_offset: int) -> list[int]:
        """Return the readable records before an offset that were never accepted."""
        # Unanswered requests may have accepted them, too.
        known = self.unreadable.union(self.accepted_s, *self._unanswered.values())
        return [offset for offset in range(end_offset) if (index, offset) not in known]

    def _accepted_by(self, message: ShareFetch | ShareAcknowledge) -> Iterator[Place]:
        for topic in message.topics:
            if self._name_of(topic.topic_id) == self._topic:
                for partition in topic.partitions:
                    for batch in partition.acknowledgement_batches:
                        for offset in _accepted_in(batch):
                            yield partition.partition_index, offset

    @staticmethod
    def _refused(message: ShareFetch | ShareAcknowledge, answer: Any) -> Iterator[int]:
        if answer.error_code is not ErrorCode.NONE:
            yield from (partition.partition_index for topic in message.topics for partition in topic.partitions)
        for topic in answer.responses:
            for partition in topic.partitions:
                code = (
                    partition.acknowledge_error_code if isinstance(answer, ShareFetchResponse) else partition.error_code
                )
                if code is not ErrorCode.NONE:
                    yield partition.partition_index


def _accepted_in(batch: AcknowledgementBatch) -> Iterator[int]:
    types = batch.acknowledge_types
    for offset in range(batch.first_offset, batch.last_offset + 1):
        if types[0 if len(types) == 1 else offset - batch.first_offset] == AcknowledgeType.ACCEPT:
            yield offset


EVENTS_MAX = 20_000
NUMBER = re.compile(rb"(\d+)-(\d+)")
"""Number of a produced record: partition and offset."""

FENCED = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
"""Errors after which a client is no member and may not work."""


@define
class Seat:
    """Knowledge about an instance."""

    member_ids: set[str] = field(factory=set)
    owned: frozenset[int] = frozenset()
    lost_s: dict[int, float] = field(factory=dict)
    fenced_s: float | None = None
    fenced_by: str = ""
    has_left: bool = False
    is_static: bool = False
    has_joined: bool = False
    generation: int = -1
    positions: dict[int, int] = field(factory=dict)
    seeks: bool = False


@define(eq=False)
class Trace:
    """Observations of a server while instances of a program work; see :meth:`~groupcoord.testing.ServerThread.watch`.

    Attributes:
        processed: how often each record was written to the output (without one: sent), by partition and offset.
        first_work_s: time of the first processed record by partition.
        ahead: commits beyond processed records.
        backward: commits that went back.
        trespasses: late work on revoked partitions that others own; without an output, reads.
    """

    _group_id: str
    _topic: str
    _output: str | None
    _name_of: Callable[[UUID], str | None]
    _works_late_s: float = 3.0
    _lock: Lock = field(factory=Lock)
    _start_s: float = field(factory=time.monotonic)
    _next: dict[int, int] = field(factory=lambda: defaultdict(int))
    _gaps: dict[int, dict[int, int]] = field(factory=dict)
    _last: dict[int, int] = field(factory=dict)
    _last_commits: dict[int, Event] = field(factory=dict)
    events: deque[Event] = field(factory=lambda: deque(maxlen=EVENTS_MAX))
    seats: dict[str, Seat] = field(factory=lambda: defaultdict(Seat))
    processed: dict[tuple[int, int], int] = field(factory=lambda: defaultdict(int))
    first_work_s: dict[int, float] = field(factory=dict)
    ahead: list[Breach] = field(factory=list)
    backward: list[Breach] = field(factory=list)
    trespasses: list[Breach] = field(factory=list)
    shared: ShareTrace = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.shared = ShareTrace(self._topic, self._name_of, self.processed, self._works_late_s)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start_s

    def note(self, who: str, text: str, *, is_error: bool = False) -> Event:
        """Add an event and return it."""
        event = Event(self.now_s, who, text, is_error)
        self.events.append(event)
        return event

    def forget(self, who: str) -> None:
        """Reset the knowledge about an instance: a new process replaces it."""
        with self._lock:
            self.seats[who] = Seat()

    def excuse(self, partition: int, offset: int) -> None:
        """Exclude an unreadable record from the laws."""
        with self._lock:
            self.processed[partition, offset] = 1
            self.shared.unreadable.add((partition, offset))

    def set_back(self, text: str, offsets: Mapping[int, int]) -> None:
        """Note a reset of committed offsets, the cause of commits that go back."""
        with self._lock:
            self._last = dict(offsets)
            self._last_commits = dict.fromkeys(offsets, self.note("", text))

    def begin_again(self, text: str) -> None:
        """Note a recreated topic: no record is processed or committed."""
        with self._lock:
            self.processed.clear()
            self.first_work_s.clear()
            self._next.clear()
            self._gaps.clear()
            self._last.clear()
            self._last_commits.clear()
            for seat in self.seats.values():
                seat.positions.clear()
        self.note("", text)

    def unprocessed(self, partition: int, end_offset: int, written: Mapping[Place, int] | None = None) -> list[int]:
        """Return the unprocessed offsets of a partition below ``end_offset``."""
        with self._lock:
            counts, known = self.processed if written is None else written, self.shared.unreadable
            places = [(partition, offset) for offset in range(end_offset)]
            return [place[1] for place in places if not counts.get(place) and place not in known]

    # ------------------------------------------------------------ figures of the server

    def watch(self, request: ReceivedRequest) -> None:
        """Note a request on arrival, and again with its response. Runs in the server's thread."""
        if not request.listener:
            return
        request = evolve(request, listener=request.listener.lower())
        with self._lock:
            if request.answer is None:
                if request.refusal is None and isinstance(request.message, OffsetCommit):
                    self._gaps[request.number] = dict(self._ahead_of_work(request.message))
                elif request.refusal is None and isinstance(request.message, ShareFetch | ShareAcknowledge):
                    self.shared.came(request)
                elif request.refusal is None and isinstance(request.message, Produce) and request.message.acks == 0:
                    self._written(request.listener, self.seats[request.listener], request.message)
                return
            self._answered(request, self.seats[request.listener])

    def _answered(self, request: ReceivedRequest, seat: Seat) -> None:
        message, answer = request.message, request.answer
        event = self._note_news(request)
        match message:
            case (
                JoinGroup()
                | SyncGroup()
                | Heartbeat()
                | LeaveGroup()
                | ConsumerGroupHeartbeat()
                | ShareGroupHeartbeat()
            ):
                if message.group_id == self._group_id:
                    self._membership(seat, message, answer)
            case OffsetCommit():
                self._committed(request, seat, event)
            case ShareFetch() | ShareAcknowledge():
                self.shared.answered(request, self.now_s)
            case TxnOffsetCommit():
                self._refused(seat, message, _errors_of_partitions(answer.topics))
            case Produce():
                self._produced(request.listener, seat, message, answer)
            case FindCoordinator() if self._group_id in request.group_ids:
                seat.seeks = bool(errors_of(answer))
            case Fetch():
                self._read(request.listener, seat, message, answer)

    def _note_news(self, request: ReceivedRequest) -> Event | None:
        message, answer = request.message, request.answer
        has_errors = bool(errors_of(answer))
        if is_routine(request) or (isinstance(message, Produce | Fetch) and not has_errors):
            return None
        text = f"{request.api} {describe_request(message, self._name_of)} -> {describe_answer(answer, self._name_of)}"
        return self.note(request.listener, text, is_error=has_errors)

    def _membership(self, seat: Seat, message: Any, answer: Any) -> None:
        code = answer.error_code
        if isinstance(message, LeaveGroup) or getattr(message, "member_epoch", 0) < 0:
            seat.has_left = True
            self._take(seat, ())
            return
        if code is not ErrorCode.NONE:
            self._note_fencing(seat, [code])
            return
        seat.is_static = seat.is_static or getattr(message, "group_instance_id", None) is not None
        seat.is_static = seat.is_static or getattr(message, "instance_id", None) is not None
        if isinstance(message, JoinGroup):
            seat.member_ids.add(answer.member_id)
            seat.generation = answer.generation_id
        elif isinstance(message, SyncGroup):
            self._take(seat, self._partitions_of(answer.assignment))
        elif isinstance(message, ConsumerGroupHeartbeat | ShareGroupHeartbeat):
            seat.member_ids.add(answer.member_id)
            if answer.assignment is not None:
                own = [t for t in answer.assignment if self._name_of(t.topic_id) == self._topic]
                self._take(seat, [index for topic in own for index in topic.partitions])
        seat.fenced_s, seat.has_left, seat.has_joined = None, False, True

    def _partitions_of(self, assignment: bytes) -> Iterable[int]:
        try:
            partitions = decode_assignment(assignment).partitions if assignment else ()
        except ConsumerProtocolError:
            return ()
        return [index for topic, index in partitions if topic == self._topic]

    def _take(self, seat: Seat, partitions: Iterable[int]) -> None:
        owned = frozenset(partitions)
        for index in seat.owned - owned:
            seat.lost_s[index] = self.now_s
        for index in owned:
            seat.lost_s.pop(index, None)
        seat.owned = owned

    def _note_fencing(self, seat: Seat, codes: Iterable[ErrorCode]) -> None:
        code = next((code for code in codes if code in FENCED), None)
        if code is not None and seat.fenced_s is None:
            seat.fenced_s, seat.fenced_by = self.now_s, code.name
            if code is not ErrorCode.STALE_MEMBER_EPOCH:  # an epoch too old; the partitions stay
                self._take(seat, ())

    def _refused(self, seat: Seat, message: OffsetCommit | TxnOffsetCommit, codes: list[ErrorCode]) -> None:
        """Note errors of a commit, unless its generation is older than the joined one."""
        if not (ErrorCode.ILLEGAL_GENERATION in codes and message.generation_id < seat.generation):
            self._note_fencing(seat, codes)

    def _ahead_of_work(self, message: OffsetCommit) -> Iterable[tuple[int, int]]:
        """Yield each partition that is committed beyond its first unprocessed record, with the offset of that."""
        if message.group_id != self._group_id:
            return
        for partition in self._partitions_in(message.topics, self._topic):
            index = partition.partition_index
            first = self._next[index]
            while self.processed.get((index, first)):
                first += 1
            self._next[index] = first
            if partition.committed_offset > first:
                yield index, first

    def _partitions_in(self, topics: Iterable[Any], name: str | None) -> Iterator[Any]:
        for topic in topics:
            if (topic.name or self._name_of(topic.topic_id)) == name:
                yield from topic.partitions

    def _committed(self, request: ReceivedRequest, seat: Seat, event: Event | None) -> None:
        gaps = self._gaps.pop(request.number, {})
        codes = _errors_of_partitions(request.answer.topics)
        self._refused(seat, request.message, codes)
        if request.message.group_id != self._group_id or any(codes):
            return
        for partition in self._partitions_in(request.message.topics, self._topic):
            index = partition.partition_index
            self._judge(request.listener, index, partition.committed_offset, gaps)
            if event is not None:
                self._last_commits[index] = event

    def _judge(self, who: str, index: int, offset: int, gaps: dict[int, int]) -> None:
        if index in gaps:
            not_processed = "was sent to no instance" if self._output is None else "is not processed"
            text = f"commits {offset} of partition {index}, and record {index}-{gaps[index]} {not_processed}"
            self.ahead.append(Breach(self.now_s, who, text))
        last = self._last.get(index, -1)
        if offset < last:
            text = f"commits {offset} of partition {index}, and {last} was committed before"
            causes = (self._last_commits[index],) if index in self._last_commits else ()
            self.backward.append(Breach(self.now_s, who, text, causes))
        self._last[index] = offset

    def _produced(self, who: str, seat: Seat, message: Produce, answer: Any) -> None:
        sent, results = (self._partitions_in(each.topics, self._output) for each in (message, answer))
        for partition, result in zip(sent, results, strict=True):
            if result.error_code is ErrorCode.NONE:
                self._note_work(who, seat, message, partition.records)
            else:
                self._note_fencing(seat, [result.error_code])

    def _written(self, who: str, seat: Seat, message: Produce) -> None:
        for partition in self._partitions_in(message.topics, self._output):
            self._note_work(who, seat, message, partition.records)

    def _note_work(self, who: str, seat: Seat, message: Produce, records: bytes | memoryview | None) -> None:
        for index, offset in numbers_in(records):
            self._count(index, offset)
            if message.transactional_id is None:  # the end of the transaction decides
                self._look_for_trespass(who, seat, index, offset)
            self.shared.worked(who, (index, offset), self.now_s)

    def _read(self, who: str, seat: Seat, message: Fetch, answer: FetchResponse) -> None:
        for partition in self._partitions_in(message.topics, self._topic):
            index, offset = partition.partition_index, partition.fetch_offset
            if seat.positions.get(index) != offset:
                self.note(who, f"reads {self._topic}-{index} from {offset}")
                seat.positions[index] = offset
        for data in self._partitions_in(answer.topics, self._topic):
            for batch in iter_batches(b"".join(data.records), check_crc=False):
                self._sent(who, seat, data.partition_index, range(batch.base_offset, batch.next_offset))

    def _sent(self, who: str, seat: Seat, index: int, offsets: range) -> None:
        """Note records that a consumer can have read: a commit beyond them is wrong."""
        seat.positions[index] = offsets.stop
        if self._output is None:  # then reading counts as work
            for offset in offsets:
                self._count(index, offset)
            self._look_for_trespass(who, seat, index, offsets.start)

    def _count(self, index: int, offset: int) -> None:
        self.processed[index, offset] += 1
        self.first_work_s.setdefault(index, self.now_s)

    def _look_for_trespass(self, who: str, seat: Seat, index: int, offset: int) -> None:
        lost_s = seat.lost_s.get(index)
        owners = [name for name, other in self.seats.items() if name != who and index in other.owned]
        if lost_s is not None and owners and self.now_s - lost_s > self._works_late_s:
            text = (
                f"{'reads' if self._output is None else 'works on'} record {index}-{offset} {self.now_s - lost_s:.1f} "
                f"s after the revocation of partition {index}, which {owners[0]} owns"
            )
            self.trespasses.append(Breach(self.now_s, who, text))


def numbers_in(records: bytes | memoryview | None) -> Iterable[tuple[int, int]]:
    """Yield the numbers in records: partition and offset, from the value or else the key."""
    for batch in iter_batches(bytes(records or b"")):
        try:
            found = list(decode_records(batch))
        except UNREADABLE:
            continue
        for _, fields in found:
            if not batch.is_control:
                yield from numbers_in_value(fields.value, fields.key)


def numbers_in_value(value: bytes | None, key: bytes | None) -> Iterable[tuple[int, int]]:
    number = NUMBER.search(value or b"") or NUMBER.search(key or b"")
    if number is not None:
        yield int(number[1]), int(number[2])


def _errors_of_partitions(topics: Iterable[Any]) -> list[ErrorCode]:
    return [partition.error_code for topic in topics for partition in topic.partitions if partition.error_code]
