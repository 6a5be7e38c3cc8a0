"""A coordinator with everything around it, for random tests: whoever talks to it comes away with the laws checked."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from groupcoord import (
    Config,
    ErrorCode,
    GroupCoordinator,
    GroupState,
    LogRecord,
    ManualClock,
    MemoryLogStore,
    PartitionStatus,
)
from groupcoord.core.front.authorization import Operation, Resource, ResourceType
from groupcoord.core.records import OffsetCommitRecord
from groupcoord.messages import (
    DescribeGroups,
    ListGroups,
    Node,
    OffsetCommit,
    OffsetCommitResponse,
    Request,
    Response,
    SyncGroupResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.testing.fleet import PARTITIONS
from groupcoord.testing.laws import (
    check_bytes,
    check_compaction_rebuilds,
    check_fetch_is_the_log,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_size,
    check_snapshot_rebuilds,
    check_timers,
    check_tokens,
)
from tests.laws.actors import Actor
from tests.laws.denials import error_codes
from tests.laws.surroundings import Line, Topics
from tests.laws.witness import Retained, Witness

WORKERS = "workers"
GROUPS = ("alpha", "beta", WORKERS)
"""Two groups of consumers on log partition 0, and one of another protocol type on 1."""

LOG_PARTITIONS = 2
MAX_SIZE = 4
METADATA_LIMIT = 16
NOBODY, CLERK, PRODUCER, SOMEBODY = "User:nobody", "User:clerk", "User:producer", "User:somebody"
HERE, ELSEWHERE = Node(1, "here", 9092), Node(2, "elsewhere", 9092)
START_MS = 1_700_000_000_000

T = TypeVar("T")


def authorize(principal: str, operation: Operation, resource: Resource) -> bool:
    """Nobody may do anything; a clerk only deals with the topic ``orders``, a producer with transactions."""
    if principal == PRODUCER:
        return resource.resource_type is ResourceType.TRANSACTIONAL_ID
    if principal == CLERK:
        return resource.name == "orders" or resource.resource_type in (
            ResourceType.GROUP,
            ResourceType.TRANSACTIONAL_ID,
        )
    return principal != NOBODY


def commits_among(entries: Iterable[LogRecord]) -> set[tuple[str, str, int, int]]:
    """Return (group, topic, partition, offset) of the commits among records."""
    return {
        (record.group_id, record.topic, record.partition, record.offset)
        for record in (entry.record for entry in entries)
        if isinstance(record, OffsetCommitRecord)
    }


class Sent(NamedTuple):
    """A request under way: whose it is, and whether it speaks for a member that was gone when it was sent."""

    request: Request
    actor: Actor | None
    is_from_the_dead: bool


class World:
    """Consumers, a coordinator, its log, its clock and the topics. Every answer is given to who asked.

    Attributes:
        outstanding: token → the request that is not answered yet.
        acknowledged: (group, topic, partition, offset) of each commit that was answered without an error.
        refused: the same, of each that was answered with one; without those that may still be written, since the
            log hasn't answered or was given up. No two commits have the same offset.
    """

    coordinator: GroupCoordinator

    def begin(self, seed: int = 0, delay_ms: int = 0, late: bool = False) -> None:
        """Create the world; the log answers at once, or ``late``."""
        self.random = random.Random(seed)
        self.config = Config(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=MAX_SIZE,
            offsets_topic_num_partitions=LOG_PARTITIONS,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=30_000,
            offset_metadata_max_bytes=METADATA_LIMIT,
        )
        self.clock = ManualClock(START_MS)
        self.store = self.make_store(late)
        self.line = Line(self.store)
        self.topics = Topics(orders=PARTITIONS, audit=2, ledger=1)
        self.actors: list[Actor] = []
        self.outstanding: dict[int, Sent] = {}
        self.acknowledged: set[tuple[str, str, int, int]] = set()
        self.refused: set[tuple[str, str, int, int]] = set()
        self.leader_epoch = 0
        self._next_token = self._next_member = self._next_offset = 0
        self.boot()
        self.coordinator.load_all()
        self.deliver()

    def make_store(self, late: bool) -> MemoryLogStore:
        """Return the log to live on."""
        return MemoryLogStore(acknowledge_late=late)

    def boot(self) -> None:
        """Start a coordinator on the log, which has not loaded anything."""
        self.coordinator = GroupCoordinator(
            config=self.config,
            clock=self.clock,
            log_store=self.line,
            topics=self.topics,
            node=HERE,
            owner=self.owner,
            authorize=authorize,
            new_member_id=self.new_member_id,
        )
        self.coordinator.observe()
        self.witness = Witness()

    def owner(self, partition: int) -> Node | None:
        """Return who coordinates a log partition: while nobody does so here, it is somebody else, or nobody."""
        if self.coordinator.status(partition) is PartitionStatus.ACTIVE:
            return HERE
        return None if partition else ELSEWHERE

    def new_member_id(self, prefix: str) -> str:
        """Return an id that was never there."""
        self._next_member += 1
        return f"{prefix}-{self._next_member}"

    def new_offset(self) -> int:
        """Return an offset that nobody committed yet."""
        self._next_offset += 1
        return self._next_offset

    def pick(self, candidates: Sequence[T], which: int) -> T | None:
        """Return one of the candidates, if there are any."""
        return candidates[which % len(candidates)] if candidates else None

    # ------------------------------------------------------------ talking to the coordinator

    def submit(self, request: Request, actor: Actor | None = None, principal: str = SOMEBODY) -> int:
        """Send a request; the answer goes to ``actor``. Return its token."""
        self._next_token += 1
        token = self._next_token
        self.outstanding[token] = Sent(request, actor, self.witness.is_from_the_dead(request))
        if actor is not None:
            actor.is_waiting = True
        self.coordinator.submit(request, token, principal)
        self.deliver()
        return token

    def deliver(self) -> None:
        """Give every answer to who asked; an answer that nobody waits for is a KeyError."""
        for event in self.coordinator.take_events():
            self.witness.see(event, self.coordinator)
        for token, response in self.coordinator.take_replies():
            sent = self.outstanding.pop(token)
            if response is not None and sent.is_from_the_dead:
                assert ErrorCode.NONE not in error_codes(response)
            if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
                self._note_commit(sent.request, response)
            if sent.actor is not None:
                sent.actor.receive(response)
                if isinstance(response, SyncGroupResponse) and response.error_code is ErrorCode.NONE:
                    self.witness.note_owned(sent.actor)

    def _note_commit(self, request: Request, response: OffsetCommitResponse | TxnOffsetCommitResponse) -> None:
        assert isinstance(request, OffsetCommit | TxnOffsetCommit)
        committed = {}
        for topic in request.topics:
            for offset in topic.partitions:
                committed[topic.name or topic.topic_id, offset.partition_index] = offset.committed_offset
        for result in response.topics:
            for partition in result.partitions:
                key = result.name if (result.name, partition.partition_index) in committed else result.topic_id
                offset = committed.pop((key, partition.partition_index))
                name = result.name or self.topics.topic_name(result.topic_id) or ""
                entry = (request.group_id or "", name, partition.partition_index, offset)
                if partition.error_code is ErrorCode.NONE:
                    self.acknowledged.add(entry)
                elif self.coordinator.partition(self.coordinator.partition_of(entry[0])) is not None:
                    self.refused.update({entry} - self.waiting_commits())
        assert not committed

    def waiting_commits(self) -> set[tuple[str, str, int, int]]:
        """Return what waits for the log to be written."""
        return commits_among(entry for _, entries in self.store._waiting for entry in entries)

    def let_timers_fire(self) -> None:
        """Do what is due; offsets that a live group needs survive it."""
        retained, start = Retained(self.coordinator), len(self.line.appended)
        self.coordinator.tick()
        retained.check(self.coordinator, self.line.appended[start:])
        self.deliver()

    # ------------------------------------------------------------ laws

    def laws_hold(self) -> None:
        """Check every law."""
        coordinator = self.coordinator
        coordinator.check()
        check_hard_state_is_the_log(coordinator)
        check_fetch_is_the_log(coordinator, GROUPS)
        check_snapshot_rebuilds(coordinator)
        check_compaction_rebuilds(coordinator, self.random.random())
        check_tokens(coordinator, self.outstanding)
        check_timers(coordinator)
        check_size(coordinator)
        for partition in range(LOG_PARTITIONS):
            check_generations_grow(self.store, partition)
            check_bytes(self.store, partition)
        self.witness.check(coordinator)
        self.commits_are_as_answered()

    def commits_are_as_answered(self) -> None:
        """What was acknowledged is in the log, and what was refused is not."""
        written = commits_among(entry for index in range(LOG_PARTITIONS) for entry in self.store.read(index))
        assert self.acknowledged <= written
        assert not self.refused & written

    # ------------------------------------------------------------ the end

    def come_to_rest(self) -> None:
        """Once faults stop, every live consumer gets its share, every group comes to rest, and stays there."""
        self.line.mend()
        self.store._failures.clear()
        self.write_all()
        for partition in range(LOG_PARTITIONS):
            self.leader_epoch += 1
            self.coordinator.load(partition, self.leader_epoch)
            self.coordinator.continue_load(partition)
        self.deliver()
        for _ in range(140):
            self.go_on(2_500)
        self.laws_hold()
        rebalances_started = self.witness.rebalances_started
        for _ in range(20):
            self.go_on(2_500)
        assert self.witness.rebalances_started == rebalances_started
        self.everybody_is_served()
        self.close()

    def write_all(self) -> None:
        """Let the log write everything that waits."""
        while self.store.waiting():
            for ticket, base_offset in self.store.write_waiting():
                self.coordinator.appended(ticket, base_offset)
            self.deliver()

    def go_on(self, duration_ms: int) -> None:
        """Everybody does what is next, and time passes."""
        self.write_all()
        for actor in self.actors:
            if actor.is_alive and not actor.is_waiting:
                self.submit(actor.next_request(), actor)
        self.clock.advance(duration_ms)
        self.let_timers_fire()
        self.write_all()

    def everybody_is_served(self) -> None:
        """Live consumers have all partitions between them, as many of them as fit; the dead are gone."""
        for group_id in GROUPS:
            live = [a for a in self.actors if a.is_alive and a.group_id == group_id]
            described = self.coordinator.call(DescribeGroups((group_id,))).groups[0]
            if not live:
                assert described.group_state in ("Empty", "Dead")
                continue
            assert described.group_state == GroupState.STABLE.value
            members = {member.member_id for member in described.members}
            serving = [actor for actor in live if actor.member_id in members]
            assert len(serving) == len(members) == min(len(live), self.config.group_max_size)
            assert sorted(index for actor in serving for index in actor.owned or ()) == list(range(PARTITIONS))

    def close(self) -> None:
        """End the world: every request is answered, no timer is left, and nobody is served any more."""
        self.coordinator.close()
        self.deliver()
        assert not self.outstanding
        assert not any(self.witness.members.values())
        assert self.coordinator.next_deadline_ms() is None
        answer: Response = self.coordinator.call(ListGroups())
        assert error_codes(answer) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
