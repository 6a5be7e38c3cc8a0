"""A world with topics, permissions and other nodes in it, that checks more laws than the published one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator, LogRecord, LogStore, MemoryLogStore, PartitionStatus, Ticket
from groupcoord.config import MigrationPolicy
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from groupcoord.core.log.records import OffsetCommitRecord, Record
from groupcoord.core.router.authorization import Operation, Resource, ResourceType
from groupcoord.events import Event
from groupcoord.laws import error_codes
from groupcoord.messages import ListGroups, Node, OffsetCommit, Request, Response, TxnOffsetCommit
from groupcoord.testing.machine.consumers import PARTITIONS, ClassicConsumer, Consumer, Sent
from groupcoord.testing.machine.world import LOG_PARTITIONS, Commit, World
from groupcoord.testing.topics import Topics
from tests.laws.event_laws import EventLaws

WORKERS = "workers"
GROUPS = ("alpha", "beta", WORKERS)
"""Two groups of consumers on log partition 0, and one of another protocol type on 1."""

METADATA_LIMIT = 16
UNREADABLE = (b"nobody can read this", b"\x00\x00\x00\x00\x00\x02\x00\x06orders")
"""Subscriptions that are none: members of a classic group may say what they like, those of a consumer group may not."""
NOBODY, CLERK, PRODUCER, SOMEBODY = "User:nobody", "User:clerk", "User:producer", "User:somebody"
HERE, ELSEWHERE = Node(1, "here", 9092), Node(2, "elsewhere", 9092)


def authorize(principal: str, operation: Operation, resource: Resource) -> bool:
    """Deny everything to ``nobody``; allow a clerk only the topic ``orders``, and a producer transactions."""
    if principal == PRODUCER:
        return resource.resource_type is ResourceType.TRANSACTIONAL_ID
    if principal == CLERK:
        return resource.name == "orders" or resource.resource_type in (
            ResourceType.GROUP,
            ResourceType.TRANSACTIONAL_ID,
        )
    return principal != NOBODY


def commits_among(entries: Iterable[LogRecord]) -> set[Commit]:
    return {
        (record.group_id, record.topic, record.partition, record.offset)
        for record in (entry.record for entry in entries)
        if isinstance(record, OffsetCommitRecord)
    }


class ObservedLogStore:
    """Passes all calls to a log store, and keeps every record that the coordinator appends."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.appended: list[Record] = []

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        self.appended += [entry.record for entry in records]
        return self.store.append(partition, ticket, records)

    def read(self, partition: int) -> Iterator[LogRecord]:
        return iter(self.store.read(partition))


class FullWorld(World):
    """The published world, with more around the coordinator, and with laws that need to know what happened before.

    Attributes:
        topics: those of the cluster.
        principal: who sends the next requests.
        refused: every commit that was answered with an error, without those that may still be written, since the log
            hasn't answered or was given up, and without those that somebody has sent a second time.
    """

    group_ids = GROUPS

    def make_config(
        self,
        initial_delay_ms: int = 0,
        policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
        assignment_interval_ms: int = 0,
    ) -> Config:
        """Return the published settings, with a limit on metadata that is soon reached."""
        config = super().make_config(initial_delay_ms, policy, assignment_interval_ms)
        return evolve(config, offset_metadata_max_bytes=METADATA_LIMIT)

    def begin(self, config: Config, *, log_is_late: bool = False, seed: int = 0) -> None:
        """Start a coordinator on an empty log."""
        self.principal = SOMEBODY
        self.refused: set[Commit] = set()
        self._sent_commits: Counter[Commit] = Counter()
        self._tokens_of_gone: set[int] = set()
        self._last_offset = 0
        super().begin(config, log_is_late=log_is_late, seed=seed)
        self.deliver()

    def make_topics(self) -> Topics:
        return Topics(orders=PARTITIONS, audit=2, ledger=1)

    def make_log_store(self) -> LogStore:
        self.memory_log = MemoryLogStore()
        return self.memory_log

    def make_coordinator(self, config: Config, log_store: LogStore) -> GroupCoordinator:
        """Return a coordinator with nothing loaded, that knows topics, permissions and other nodes."""
        self.observed_store = ObservedLogStore(log_store)
        self.event_laws = EventLaws()
        return GroupCoordinator(
            config=config,
            clock=self.clock,
            log_store=self.observed_store,
            topics=self.topics,
            regexes=self.topics,
            node=HERE,
            owner=self.owner,
            authorize=authorize,
            new_member_id=self.new_member_id,
            new_uuid=self.new_uuid,
        )

    def is_kept_out(self, consumer: Consumer, kind: type[Consumer]) -> bool:
        """Return whether a consumer can't join a group of the other type with its metadata."""
        if super().is_kept_out(consumer, kind):
            return True
        if kind is ClassicConsumer:
            return is_no_use(consumer)
        return isinstance(consumer, kind) and any(map(is_no_use, self.fleet.living(consumer.group_id)))

    def owner(self, partition: int) -> Node | None:
        """Return the node that coordinates a log partition: this one, another one, or none."""
        if self.coordinator.status(partition) is PartitionStatus.ACTIVE:
            return HERE
        return None if partition else ELSEWHERE

    def new_offset(self) -> int:
        """Return an offset that is not committed by chance: those of random commits are smaller."""
        self._last_offset += 1
        return 10_000 + self._last_offset

    # ------------------------------------------------------------ talking to the coordinator

    def submit_as(self, principal: str, request: Request) -> Sent:
        """Send a request as another principal."""
        self.principal = principal
        try:
            return self.submit(request)
        finally:
            self.principal = SOMEBODY

    def send(self, request: Request, token: int) -> None:
        """Bring a request to the coordinator; who speaks for a member that is gone is remembered."""
        if self.event_laws.speaks_for_gone(request):
            self._tokens_of_gone.add(token)
        if isinstance(request, OffsetCommit | TxnOffsetCommit):
            for topic in request.topics:
                name = topic.name or self.topic_name(topic.topic_id) or ""
                for sent in topic.partitions:
                    commit = (request.group_id or "", name, sent.partition_index, sent.committed_offset)
                    self._sent_commits[commit] += 1
        self.coordinator.submit(request, token, self.principal)

    def on_event(self, event: Event) -> None:
        """Events agree with each other and with the coordinator."""
        super().on_event(event)
        self.event_laws.see(event, self.coordinator)

    def on_answer(self, sent: Sent, response: Response | None) -> None:
        """Check that requests of removed members are refused."""
        super().on_answer(sent, response)
        if response is not None and sent.token in self._tokens_of_gone:
            assert ErrorCode.NONE not in error_codes(response)

    def on_commit_answered(self, commit: Commit, error_code: ErrorCode) -> None:
        """Remember which commits must not be in the log."""
        super().on_commit_answered(commit, error_code)
        is_served = self.coordinator.partition(self.coordinator.partition_of(commit[0])) is not None
        if error_code is not ErrorCode.NONE and is_served:
            self.refused.update({commit} - commits_among(self.store.waiting_records()))

    # ------------------------------------------------------------ laws

    def check_laws(self) -> None:
        super().check_laws()
        self.event_laws.check(self.coordinator)
        written = commits_among(entry for index in range(LOG_PARTITIONS) for entry in self.store.read(index))
        assert not {commit for commit in self.refused & written if self._sent_commits[commit] == 1}

    def come_to_rest(self) -> None:
        """Once faults stop, every live consumer gets its share, every group comes to rest, and stays there."""
        self.recover()
        self.check_laws()
        rebalances_started = self.event_laws.rebalances_started
        self.live_on(20)
        assert self.event_laws.rebalances_started == rebalances_started
        for group_id in self.group_ids:
            self.check_all_are_served(group_id)
        self.close()

    def close(self) -> None:
        """End the world: every request is answered, no timer is left, and no partition is served."""
        self.coordinator.close()
        self.deliver()
        assert not self.fleet.outstanding
        assert not any(self.event_laws.members.values())
        assert self.coordinator.next_deadline_ms() is None
        answer: Response = self.coordinator.call(ListGroups())
        assert error_codes(answer) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def is_no_use(consumer: Consumer) -> bool:
    """Return whether no consumer group can accept the member: a Connect worker, or unreadable metadata."""
    if not isinstance(consumer, ClassicConsumer):
        return False
    return consumer.metadata in UNREADABLE or consumer.protocol_type != CONSUMER_PROTOCOL_TYPE
