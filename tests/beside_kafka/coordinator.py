"""groupcoord, told in the commands in which Kafka's own classes are told what happens.

A command is plain data, and so is what comes of it: answers and records in bytes, and the timers that are left. Topics
have the ids that they have there, and members, too: they follow from the same seed through the same generator. So
neither the bytes nor what hangs on the order of hash maps may tell the two apart.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any
from uuid import UUID

from attrs import define, field, frozen

from groupcoord.broker.configs.definitions import GroupConfigs
from groupcoord.broker.regexes import TopicMatcher
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.clock import ManualClock
from groupcoord.config import Config
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.conformance.entities import encode_request
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.groups.base.assignor import GroupSpec
from groupcoord.core.groups.base.state import LEFT_MEMBER_EPOCH
from groupcoord.core.groups.classic.group import GroupMetadata, GroupState
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.share.group import ShareGroup
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.host_queries import LoneShareHost
from groupcoord.core.log.records import OFFSETS_TOPIC, TransactionMarker
from groupcoord.core.timers import TimerKind
from groupcoord.log_store import (
    LogRecord,
    LogStoreError,
    MemoryLogStore,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.messages import CompleteTransaction
from groupcoord.wire import Answered, RequestHeader, decode_request, encode_response
from tests.beside_kafka.cleaner import cleaned
from tests.beside_kafka.ids import UsedIds
from tests.beside_kafka.share_targets import WitnessedAssignor

Command = dict[str, Any]
Step = dict[str, Any]

START_MS = 1_700_000_000_000
REFUSALS: dict[str, type[LogStoreError]] = {
    "NOT_LEADER_OR_FOLLOWER": NotLeaderError,
    "NOT_ENOUGH_REPLICAS": NotEnoughReplicasError,
    "KAFKA_STORAGE_ERROR": StorageError,
    "MESSAGE_TOO_LARGE": RecordTooLargeError,
}
DEFAULTS = {"ConsumerGroupHeartbeat": {"topic_partitions": None}}
"""Fields of requests that Kafka has a default for, and kio has not."""

TIMER_NAMES = {
    TimerKind.SESSION: "heartbeat",
    TimerKind.JOIN: "join",
    TimerKind.SYNC: "sync",
    TimerKind.MEMBER_SESSION: "session-timeout",
    TimerKind.REVOCATION: "rebalance-timeout",
    TimerKind.MEMBER_JOIN: "join",
    TimerKind.MEMBER_SYNC: "sync",
    TimerKind.ASSIGNMENT_DELAY: "initial-rebalance-timeout",
    TimerKind.EXPIRY: "expire-group-metadata",
}
"""How Kafka calls its timers; the group and the member stand behind."""

AnyGroup = GroupMetadata | ConsumerGroup | ShareGroup | StreamsGroup


@frozen
class Answer:
    """Response to a request."""

    token: str
    at_ms: int
    header: RequestHeader | None
    response: bytes | int


@frozen
class Written:
    """One append, as the log has it."""

    at_ms: int
    offset: int
    records: tuple[tuple[bytes, bytes | None], ...] | str
    producer: tuple[int, int] = (-1, -1)


@define
class Outcome:
    """Result of a command."""

    answers: list[Answer] = field(factory=list)
    appends: list[Written] = field(factory=list)
    refusals: int = 0
    timers: dict[str, int] = field(factory=dict)
    elected: set[str | None] = field(factory=set)


class _ToldStore(MemoryLogStore):
    """Log that records its appends, refuses the next ones and is compacted on demand."""

    def __init__(self, tell: Callable[[int, Sequence[LogRecord]], None]) -> None:
        super().__init__()
        self._tell = tell
        self.refusals: list[LogStoreError] = []
        self.refused = 0
        self._ends: list[int] = []

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        if self.refusals:
            self.refused += 1
            raise self.refusals.pop()
        base_offset = super().append(partition, ticket, records)
        assert base_offset is not None
        self._ends.append(base_offset + len(records))
        self._tell(base_offset, records)
        return base_offset

    def clean(self, first: int, end: int, *, drops_tombstones: bool) -> None:
        """Leave what Kafka's log cleaner leaves: see :func:`cleaned`."""
        for partition, log in self._logs.items():
            places = [bisect_left(log, batch_end, key=attrgetter("offset")) for batch_end in [0, *self._ends]]
            batches = [log[begin:end_] for begin, end_ in pairwise(places)]
            self._logs[partition] = cleaned(batches, first, end, drops_tombstones=drops_tombstones)


class _ShareHost(LoneShareHost):
    """A share coordinator that agrees, as that of Kafka's classes here; groups have settings of their own."""

    def __init__(self, config: Config, group_configs: GroupConfigs) -> None:
        super().__init__(config)
        self._group_configs = group_configs

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        return self._group_configs.share_settings_of(group_id)


class Coordinator:
    """Coordinator of one log partition, with its log, topics and clock."""

    def __init__(self, command: Command) -> None:
        config = Config.from_properties({**command["config"], "offsets.topic.num.partitions": 1})
        self._ids = ids = UsedIds(command["seed"])
        self._topics = TopicRegistry()
        with self._topics.edit() as edit:
            for name, count in {OFFSETS_TOPIC: 1, **command["topics"]}.items():
                edit.create(name, count, _uuid(command["ids"][name]))
        self._clock = ManualClock(START_MS)
        self._group_configs = GroupConfigs(config)
        self._store = _ToldStore(self._written)
        self._outcome = Outcome()
        self._leaders: dict[str, str | None] = {}
        self._holds_loads = False
        self._coordinator = GroupCoordinator(
            config=config,
            clock=self._clock,
            log_store=self._store,
            topics=self._topics,
            regexes=TopicMatcher(self._topics, None),
            consumer_group_settings=self._group_configs.settings_of,
            streams_group_settings=self._group_configs.streams_settings_of,
            share=_ShareHost(config, self._group_configs),
            new_member_id=lambda prefix: f"{prefix}-{ids.uuid()}",
            new_uuid=ids.kafka_uuid,
        )
        self._share_assignor = WitnessedAssignor()
        self._coordinator._environments.share.assignors = {WitnessedAssignor.name: self._share_assignor}
        self._coordinator.load_all()
        self._commands: dict[str, Callable[[Command], None]] = {
            "request": self._request,
            "advance": self._advance,
            "topics": self._change_topics,
            "group_config": lambda command: self._group_configs.replace({command["group"]: command["config"]}),
            "log": self._refuse_appends,
            "unload": lambda command: self._coordinator.unload(0),
            "load": self._load,
            "loaded": self._finish_load,
            "reload": self._reload,
        }

    def do(self, step: Step) -> Outcome:
        """Execute a command; return its result."""
        self._ids.hear(json.dumps([step["events"], step["timers"]]))
        self._outcome = Outcome()
        self._share_assignor.asked.clear()
        self._commands[step["do"]](step)
        self._run_until(self._clock.now_ms())
        self._outcome.refusals, self._store.refused = self._store.refused, 0
        armed = self._coordinator._timers.armed()
        self._outcome.timers = {_name(*timer.key): timer.deadline_ms or 0 for timer in armed}
        return self._outcome

    def check(self) -> None:
        """Prove the invariants of everything inside."""
        self._coordinator.check()

    def live_timers(self) -> set[str]:
        """Return the names of all timers that would find something to do if they fired."""
        return set(self._live_timers())

    def share_targets(self) -> list[GroupSpec]:
        return self._share_assignor.asked

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def group(self, group_id: str) -> AnyGroup | None:
        """Return a group; None if there is none, or the log partition isn't served."""
        return next((group for group in self.groups() if group.group_id == group_id), None)

    def groups(self) -> list[AnyGroup]:
        partition = self._coordinator.partition(0)
        return [] if partition is None else list(partition.groups.values())

    def leaders(self) -> dict[str, str | None]:
        return {group.group_id: group.leader for group in self.groups() if isinstance(group, GroupMetadata)}

    # ------------------------------------------------------------ commands

    def _request(self, command: Command) -> None:
        api, version, token = command["api"], command.get("version"), str(command["token"])
        if api == "CompleteTransaction":
            end = CompleteTransaction(0, command["producer_id"], command["producer_epoch"], command["commit"])
            self._coordinator.submit(end, (token, None))
            return
        body = DEFAULTS.get(api, {}) | command["body"]
        header, request = decode_request(encode_request(api, version, 0, command["client_id"], body), "/127.0.0.1")
        if isinstance(request, Answered):
            self._answer(token, header, request.response)
        else:
            self._coordinator.submit(request, (token, header))

    def _advance(self, command: Command) -> None:
        self._run_until(self._clock.now_ms() + command["ms"])

    def _run_until(self, end_ms: int) -> None:
        self._take_outcome()
        while (deadline_ms := self._coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self._clock.advance_to(max(deadline_ms, self._clock.now_ms()))
            self._coordinator.tick()
            self._take_outcome()
        self._clock.advance_to(end_ms)

    def _change_topics(self, command: Command) -> None:
        gone = [self._topics.get(name) for name in command["delete"]]
        with self._topics.edit() as edit:
            for name in command["delete"]:
                edit.delete(name)
            for name, count in command["create"].items():
                edit.create(name, count, _uuid(command["ids"][name]))
            for name, count in command["grow"].items():
                edit.extend(name, count)
        for topic in gone:
            assert topic is not None
            self._coordinator.topic_deleted(topic.name, topic.topic_id)
        if command["create"]:
            self._coordinator.topics_created(list(command["create"]))
        if command["grow"]:
            self._coordinator.topics_changed(list(command["grow"]))

    def _refuse_appends(self, command: Command) -> None:
        self._store.refusals = [REFUSALS[command["error"]]("refused as told")] * command["refuse"]

    def _load(self, command: Command) -> None:
        self._holds_loads = command.get("hold", self._holds_loads)
        self._coordinator.begin_load(0)
        if not self._holds_loads:
            self._coordinator.continue_load(0)

    def _finish_load(self, command: Command) -> None:
        self._coordinator.continue_load(0)

    def _reload(self, command: Command) -> None:
        self._coordinator.unload(0)
        if cleaning := command.get("compact"):
            self._store.clean(cleaning["from"], cleaning["up_to"], drops_tombstones=cleaning["drop_tombstones"])
        self._load(command)

    # ------------------------------------------------------------ what comes of them

    def _take_outcome(self) -> None:
        for (token, header), response in self._coordinator.take_replies():
            if response is not None:
                self._answer(token, header, response)
        before, self._leaders = self._leaders, self.leaders()
        for group_id, leader in self._leaders.items():
            if before.get(group_id) not in (None, leader):
                self._outcome.elected.add(leader)

    def _answer(self, token: str, header: RequestHeader | None, response: Any) -> None:
        answer = response.error_code.value if header is None else encode_response(header, response)[4:]
        self._outcome.answers.append(Answer(token, self._clock.now_ms(), header, answer))

    def _written(self, base_offset: int, records: Sequence[LogRecord]) -> None:
        first = records[0]
        marker = first.record
        written: tuple[tuple[bytes, bytes | None], ...] | str
        if isinstance(marker, TransactionMarker):
            written = "COMMIT" if marker.committed else "ABORT"
        else:
            written = tuple(record.encoded() for record in records)
        producer = (first.producer_id, first.producer_epoch)
        self._outcome.appends.append(Written(self._clock.now_ms(), base_offset, written, producer))

    def _live_timers(self) -> Iterator[str]:
        for group in self.groups():
            yield _name(TimerKind.EXPIRY, 0)
            for kind, member_id in _live_in_group(group):
                yield _name(kind, 0, group.group_id, member_id)


def _live_in_group(group: AnyGroup) -> Iterator[tuple[TimerKind, str]]:
    """Yield the effective timers of a group, with their members."""
    if isinstance(group, ShareGroup | StreamsGroup):
        # Share groups arm sessions only.
        yield TimerKind.ASSIGNMENT_DELAY, ""
        for member_id in group.state.members:
            yield TimerKind.MEMBER_SESSION, member_id
            yield TimerKind.REVOCATION, member_id
        return
    if isinstance(group, ConsumerGroup):
        for member_id, member in group.state.members.items():
            yield TimerKind.MEMBER_SESSION, member_id
            if member.uses_classic_protocol:
                yield TimerKind.MEMBER_JOIN, member_id
                yield TimerKind.MEMBER_SYNC, member_id
            # One that is set by a load finds a member that has left for a while as it was.
            if not member.has_left or group.revoking_epochs.get(member_id) == LEFT_MEMBER_EPOCH:
                yield TimerKind.REVOCATION, member_id
        return
    for member_id in {*group.members, *group.pending_members}:
        yield TimerKind.SESSION, member_id
    if group.state is GroupState.PREPARING_REBALANCE:
        yield TimerKind.JOIN, ""
    elif group.state is not GroupState.EMPTY:
        yield TimerKind.SYNC, ""


def _name(kind: TimerKind, partition: int, group_id: str = "", member_id: str = "") -> str:
    return "-".join(word for word in (TIMER_NAMES[kind], group_id, member_id) if word)


def _uuid(text: str) -> UUID:
    """Return the id that Kafka writes in 22 characters."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
