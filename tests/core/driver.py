"""A coordinator on a virtual clock and a log in memory, driven by verbs of the domain; every step checks the laws.

``Driver`` owns the coordinator, time and the log; ``Group`` speaks for the clients of one group. A member id is the
client's (for static members the instance's) id and a running number: the first id of client ``a`` is ``a-1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID

from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator, GroupState, ManualClock, MemoryLogStore, TopicResolver
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.records import ZERO_UUID, Record
from groupcoord.log_store import LogStoreError
from groupcoord.messages import (
    DeleteGroups,
    DescribedGroup,
    DescribeGroups,
    FetchedOffset,
    GroupToFetch,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetToCommit,
    PartitionResult,
    Request,
    Response,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
    TopicToFetch,
)
from groupcoord.testing.laws import (
    check_generations_grow,
    check_hard_state_is_the_log,
    check_size,
    check_snapshot_rebuilds,
    check_tokens,
)

START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
MAX_TICKS_AT_ONE_MOMENT = 100

R = TypeVar("R", bound=Response)


class Sent:
    """A request that was submitted, and what became of it.

    Attributes:
        member_id: the member id that the coordinator made for this request, if it made one; else the request's own.
    """

    def __init__(self, driver: Driver, request: Request) -> None:
        self._driver = driver
        self.request = request
        self.member_id = getattr(request, "member_id", "")
        self.answers: list[Response | None] = []

    @property
    def is_waiting(self) -> bool:
        """True as long as there is no answer."""
        return not self.answers

    @property
    def is_dropped(self) -> bool:
        """True if the token came back without an answer, as where Kafka never gives one."""
        return self.answers == [None]

    def answer(self, kind: type[R]) -> R:
        """Return the answer, which must be there and of this kind."""
        assert len(self.answers) == 1, f"{self.request} has the answers {self.answers}"
        (answer,) = self.answers
        assert isinstance(answer, kind)
        return answer

    @property
    def joined(self) -> JoinGroupResponse:
        """The answer of a join."""
        return self.answer(JoinGroupResponse)

    @property
    def synced(self) -> SyncGroupResponse:
        """The answer of a sync."""
        return self.answer(SyncGroupResponse)

    @property
    def error(self) -> ErrorCode:
        """The error of the answer: at top level, or the one that all partitions of a commit have."""
        assert len(self.answers) == 1, f"{self.request} has the answers {self.answers}"
        (answer,) = self.answers
        if isinstance(answer, OffsetCommitResponse):
            (error,) = {entry.error_code for topic in answer.topics for entry in topic.partitions}
            return error
        assert isinstance(answer, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse)
        return answer.error_code

    def __repr__(self) -> str:
        return f"Sent({self.request!r}, {self.answers!r})"


class Driver:
    """A coordinator with everything around it; keyword arguments are settings of :class:`Config`.

    Args:
        late: the log answers only when the test says :meth:`write` or :meth:`refuse`.
        topics: the topics of the cluster; every topic exists if left out.
    """

    def __init__(self, *, late: bool = False, topics: TopicResolver | None = None, **settings: int) -> None:
        settings.setdefault("offsets_topic_num_partitions", 1)
        settings.setdefault("group_initial_rebalance_delay_ms", 3_000)
        self.config = Config(**settings)
        self.clock = ManualClock(START_MS)
        self.store = MemoryLogStore(acknowledge_late=late)
        self.topics = topics
        self._ids: Counter[str] = Counter()
        self._last_id: str | None = None
        self._outstanding: list[Sent] = []
        self.restart()

    def restart(self, **settings: int) -> None:
        """Kill the coordinator, with what the log did not take, and start another on the same log."""
        self.store.drop_waiting()
        self._outstanding.clear()
        if settings:
            self.config = evolve(self.config, **settings)
        self.coordinator = self.new_coordinator()
        self.coordinator.load_all()
        self.check()

    def new_coordinator(self) -> GroupCoordinator:
        """Return a coordinator on the same log and clock, with nothing loaded."""
        return GroupCoordinator(
            config=self.config,
            clock=self.clock,
            log_store=self.store,
            topics=self.topics,
            new_member_id=self._new_member_id,
        )

    def _new_member_id(self, prefix: str) -> str:
        self._ids[prefix] += 1
        self._last_id = f"{prefix}-{self._ids[prefix]}"
        return self._last_id

    # ------------------------------------------------------------ requests

    def send(self, request: Request) -> Sent:
        """Submit a request."""
        sent = Sent(self, request)
        self._outstanding.append(sent)
        self._last_id = None
        self.coordinator.submit(request, sent)
        sent.member_id = self._last_id or sent.member_id
        self.settle()
        return sent

    def settle(self) -> None:
        """Deliver the answers that there are, and check the laws."""
        for token, response in self.coordinator.take_replies():
            self._outstanding.remove(token)
            token.answers.append(response)
        self.check()

    def check(self) -> None:
        """Every law holds."""
        coordinator = self.coordinator
        coordinator.check()
        check_hard_state_is_the_log(coordinator)
        check_snapshot_rebuilds(coordinator)
        check_tokens(coordinator, self._outstanding)
        check_size(coordinator)
        for partition in range(self.config.offsets_topic_num_partitions):
            check_generations_grow(self.store, partition)

    def delete(self, *group_ids: str | None) -> Sent:
        """Delete groups."""
        return self.send(DeleteGroups(group_ids))

    # ------------------------------------------------------------ time

    @property
    def now_ms(self) -> int:
        """Time since the test began, in milliseconds."""
        return self.clock.now_ms() - START_MS

    def sleep(self, duration_ms: int) -> None:
        """Let time pass, from deadline to deadline, so that every timer fires at its moment."""
        end_ms = self.clock.now_ms() + duration_ms
        ticks = 0
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            ticks = 0 if deadline_ms > self.clock.now_ms() else ticks + 1
            assert ticks < MAX_TICKS_AT_ONE_MOMENT, "timers fire without end while time stands still"
            self.clock.advance_to(max(deadline_ms, self.clock.now_ms()))
            self.coordinator.tick()
            self.settle()
        self.clock.advance_to(end_ms)
        self.coordinator.tick()
        self.settle()

    def sleep_until(self, now_ms: int) -> None:
        """Let time pass until ``now_ms`` after the test began."""
        self.sleep(now_ms - self.now_ms)

    # ------------------------------------------------------------ the log

    def written(self, partition: int = 0) -> list[Record]:
        """Return the records of the log."""
        return [entry.record for entry in self.store.read(partition)]

    def write(self, count: int | None = None) -> None:
        """The log writes the oldest ``count`` appends that wait (all by default) and answers each."""
        for _ in self.store.waiting()[:count]:
            for ticket, base_offset in self.store.write_waiting(1):
                self.coordinator.appended(ticket, base_offset)
                self.settle()

    def write_together(self) -> None:
        """The log writes all appends that wait, and answers each log partition once, for the last of them."""
        last = {ticket.partition: (ticket, base_offset) for ticket, base_offset in self.store.write_waiting()}
        for ticket, base_offset in last.values():
            self.coordinator.appended(ticket, base_offset)
        self.settle()

    def refuse(self, error: LogStoreError, count: int | None = None) -> None:
        """The log refuses the oldest ``count`` appends that wait (all by default)."""
        tickets = self.store.waiting()[:count]
        del self.store._waiting[:count]
        for ticket in tickets:
            self.coordinator.append_failed(ticket, error)
            self.settle()


def protocols_of(*names: str, metadata: bytes = b"metadata") -> tuple[JoinProtocol, ...]:
    """Return protocols in this order of preference, all with the same metadata."""
    return tuple(JoinProtocol(name, metadata) for name in names)


class Group:
    """The clients of one group: what they send, under the group's id and with the generation of the moment."""

    def __init__(self, driver: Driver, group_id: str = "group") -> None:
        self.driver = driver
        self.group_id = group_id
        self._joins: dict[str, JoinGroup] = {}

    # ------------------------------------------------------------ looking

    @property
    def inside(self) -> GroupMetadata:
        """The group as the coordinator has it."""
        found = self.find()
        assert found is not None
        return found

    def find(self) -> GroupMetadata | None:
        """Return the group as the coordinator has it; None if it hasn't."""
        coordinator = self.driver.coordinator
        partition = coordinator.partition(coordinator.partition_of(self.group_id))
        return None if partition is None else partition.groups.get(self.group_id)

    @property
    def state(self) -> GroupState | None:
        """The state of the group; None if there is none."""
        found = self.find()
        return None if found is None else found.state

    @property
    def generation(self) -> int:
        """The generation of the group."""
        return self.inside.generation_id

    @property
    def members(self) -> list[str]:
        """The ids of the members, in the order in which they joined."""
        return list(self.inside.members)

    def describe(self) -> DescribedGroup:
        """Describe the group."""
        return self.driver.coordinator.call(DescribeGroups((self.group_id,))).groups[0]

    # ------------------------------------------------------------ membership

    def join(
        self,
        client_id: str = "a",
        *names: str,
        instance: str | None = None,
        member_id: str = "",
        protocols: tuple[JoinProtocol, ...] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        asks_for_id: bool = False,
        skips: bool = True,
    ) -> Sent:
        """A client joins with these protocols (``range`` if none are named).

        Args:
            instance: the instance id of a static member.
            member_id: the id that it already has.
            protocols: with their metadata, instead of names.
            asks_for_id: a dynamic newcomer is answered MEMBER_ID_REQUIRED first, as from request version 4.
            skips: as from request version 9.
        """
        request = JoinGroup(
            self.group_id,
            member_id,
            protocol_type,
            protocols_of(*(names or ("range",))) if protocols is None else protocols,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            group_instance_id=instance,
            client_id=client_id,
            client_host="/127.0.0.1",
            requires_known_member_id=asks_for_id,
            supports_skip_assignment=skips,
        )
        sent = self.driver.send(request)
        self._joins[sent.member_id] = request
        return sent

    def ask_for_id(self, client_id: str = "a", **changes: int) -> str:
        """A dynamic client joins and is handed out a member id; return it."""
        sent = self.join(client_id, asks_for_id=True, **changes)
        assert sent.error is ErrorCode.MEMBER_ID_REQUIRED
        return sent.joined.member_id

    def rejoin(self, member_id: str, *names: str, **changes: object) -> Sent:
        """A client joins as it did before, with the id that it has by now, but for what is given here."""
        if names:
            changes["protocols"] = protocols_of(*names)
        request = evolve(self._joins[member_id], **{"member_id": member_id, **changes})
        self._joins[member_id] = request
        return self.driver.send(request)

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Sent:
        """A member syncs; a leader brings ``assignments``."""
        return self.driver.send(
            SyncGroup(
                self.group_id,
                self._current(generation),
                member_id,
                instance,
                protocol_type,
                protocol_name,
                tuple(SyncAssignment(*entry) for entry in (assignments or {}).items()),
            )
        )

    def heartbeat(self, member_id: str, *, instance: str | None = None, generation: int | None = None) -> ErrorCode:
        """A member says that it lives; return what it is told."""
        return self.driver.send(Heartbeat(self.group_id, self._current(generation), member_id, instance)).error

    def leave(self, *entries: str | LeavingMember) -> Sent:
        """Members leave, all in one request."""
        members = tuple(LeavingMember(entry) if isinstance(entry, str) else entry for entry in entries)
        return self.driver.send(LeaveGroup(self.group_id, members))

    def left(self, *entries: str | LeavingMember) -> list[ErrorCode]:
        """Members leave, all in one request; return the result of each."""
        answer = self.leave(*entries).answer(LeaveGroupResponse)
        assert answer.error_code is ErrorCode.NONE
        return [entry.error_code for entry in answer.members]

    def _current(self, generation: int | None) -> int:
        found = self.find()
        return generation if generation is not None else 0 if found is None else found.generation_id

    # ------------------------------------------------------------ offsets

    def commit(
        self,
        offset: int | Mapping[int, int] = 1,
        *,
        member_id: str = "",
        generation: int | None = None,
        instance: str | None = None,
        topic: str = "orders",
        topic_id: UUID = ZERO_UUID,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
    ) -> Sent:
        """Commit ``offset`` for partition 0 of a topic (or one for each partition); without a member from outside."""
        if generation is None:
            generation = self.generation if member_id else -1
        offsets = offset if isinstance(offset, Mapping) else {0: offset}
        entries = tuple(OffsetToCommit(index, value, leader_epoch, metadata) for index, value in offsets.items())
        topics = (TopicToCommit(topic, entries, topic_id),)
        return self.driver.send(OffsetCommit(self.group_id, topics, generation, member_id, instance, retention_ms))

    def fetch(self, topic: str = "orders", index: int = 0, *, require_stable: bool = False) -> FetchedOffset:
        """Fetch the committed offset of one partition."""
        wanted = GroupToFetch(self.group_id, (TopicToFetch(topic, (index,)),))
        fetched = self.driver.coordinator.call(OffsetFetch((wanted,), require_stable=require_stable))
        return fetched.groups[0].topics[0].partitions[0]

    def committed(self) -> dict[str, dict[int, int]]:
        """Fetch all committed offsets, by topic and partition."""
        fetched = self.driver.coordinator.call(OffsetFetch((GroupToFetch(self.group_id),))).groups[0]
        assert fetched.error_code is ErrorCode.NONE
        return {t.name: {p.partition_index: p.committed_offset for p in t.partitions} for t in fetched.topics}

    # ------------------------------------------------------------ whole phases

    def generation_of(self, *clients: str, **how: object) -> list[str]:
        """Clients join an empty group (``@x`` is a static one with instance ``x``); return their ids.

        The generation stands: every join is answered, nobody has synced.
        """
        joins = [
            self.join(client.lstrip("@"), instance=client[1:] if client.startswith("@") else None, **how)
            for client in clients
        ]
        while any(join.is_waiting for join in joins):
            self.driver.sleep(self.driver.config.group_initial_rebalance_delay_ms)
        assert self.state is GroupState.COMPLETING_REBALANCE
        return [join.member_id for join in joins]

    def stable(self, *clients: str, **how: object) -> list[str]:
        """As :meth:`generation_of`, and everybody syncs: each is assigned its own id as bytes."""
        member_ids = self.generation_of(*clients, **how)
        self.assign()
        return member_ids

    def assign(self) -> list[Sent]:
        """The leader syncs, and then everybody else."""
        leader, members = self.inside.leader, self.members
        assert leader is not None
        syncs = [self.sync(leader, {member_id: member_id.encode() for member_id in members})]
        self.driver.write()
        syncs += [self.sync(member_id) for member_id in members if member_id != leader]
        assert self.state is GroupState.STABLE
        return syncs


def entry(result: PartitionResult) -> tuple[int, ErrorCode]:
    """Return a result of one partition as a plain pair."""
    return result.partition_index, result.error_code
