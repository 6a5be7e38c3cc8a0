"""A coordinator on a virtual clock and a log in memory, driven by verbs of the domain; every step checks the laws.

``Driver`` owns the coordinator, time and the log; ``Group`` speaks for the clients of one group. A member id is the
client's (for static members the instance's) id and a running number: the first id of client ``a`` is ``a-1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator, GroupState, LogStore, MemoryLogStore, TopicResolver
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.log.records import ZERO_UUID, Record
from groupcoord.laws import check_generations_grow
from groupcoord.laws.modern_groups import check_epochs_grow
from groupcoord.messages import (
    DeleteGroups,
    FetchedOffset,
    GroupToFetch,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
    TopicToFetch,
)
from groupcoord.testing.machine.consumers import Sent
from groupcoord.testing.machine.world import START_MS, World
from groupcoord.testing.topics import Topics

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Driver(World):
    """Coordinator with its clock, log and topics; keyword arguments are settings of :class:`Config`. Args: late:
    appends wait for :meth:`write` or :meth:`refuse`. topics: the topics of the cluster; by default every topic exists.
    """

    coordinator_class = GroupCoordinator

    def __init__(self, *, late: bool = False, topics: TopicResolver | None = None, **settings: int) -> None:
        settings.setdefault("offsets_topic_num_partitions", 1)
        settings.setdefault("group_initial_rebalance_delay_ms", 3_000)
        self._topics = topics
        self.begin(Config(**settings), log_is_late=late)
        self.check_laws()

    def boot(self) -> None:
        """Start a coordinator on the log; tests that want its events ask for them."""
        self.coordinator = self.make_coordinator(self.config, self.store)

    def restart(self, **settings: int) -> None:
        """Kill the coordinator, with what the log did not take, and start another on the same log."""
        self.config = evolve(self.config, **settings)
        self.kill()
        self.coordinator.load_all()
        self.check_laws()

    def make_topics(self) -> TopicResolver | None:
        """Return what the test has brought."""
        return self._topics

    def make_log_store(self) -> MemoryLogStore:
        """Return a log in memory, which the driver keeps at hand."""
        self.log = MemoryLogStore()
        return self.log

    def make_coordinator(self, config: Config, log_store: LogStore) -> GroupCoordinator:
        return self.coordinator_class(
            config=config,
            clock=self.clock,
            log_store=log_store,
            topics=self.topics,
            regexes=self.topics if isinstance(self.topics, Topics) else None,
            new_member_id=self.new_member_id,
            new_uuid=self.new_uuid,
        )

    def topic_name(self, topic_id: UUID) -> str | None:
        if isinstance(self.topics, Topics):
            return super().topic_name(topic_id)
        return None if self.topics is None else self.topics.topic_name(topic_id)

    def deliver(self) -> None:
        """Deliver the answers that there are, and check the laws."""
        self.fleet.deliver()
        self.check_laws()

    def check_log(self, partition: int) -> None:
        """Check what must hold of a log partition; some tests commit what no bytes can hold."""
        check_generations_grow(self.store, partition)
        check_epochs_grow(self.store, partition)

    def delete(self, *group_ids: str | None) -> Sent:
        return self.submit(DeleteGroups(group_ids))

    @property
    def now_ms(self) -> int:
        """Time since the test began, in milliseconds."""
        return self.clock.now_ms() - START_MS

    def sleep_until(self, now_ms: int) -> None:
        """Advance the clock to ``now_ms`` after the start of the test."""
        self.sleep(now_ms - self.now_ms)

    def written(self, partition: int = 0) -> list[Record]:
        """Return the records of the log."""
        return [entry.record for entry in self.store.read(partition)]


def protocols_of(*names: str, metadata: bytes = b"metadata") -> tuple[JoinProtocol, ...]:
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
        found = self.find()
        return None if found is None else found.state

    @property
    def generation(self) -> int:
        return self.inside.generation_id

    @property
    def members(self) -> list[str]:
        """The ids of the members, in the order in which they joined."""
        return list(self.inside.members)

    # ------------------------------------------------------------ membership

    def join(
        self,
        client_id: str = "a",
        *,
        instance: str | None = None,
        protocols: tuple[JoinProtocol, ...] | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        asks_for_id: bool = False,
    ) -> Sent:
        """Send the join of a client.

        Args:
            instance: the instance id of a static member.
            protocols: with their metadata; by default ``range``.
            asks_for_id: a dynamic newcomer is answered MEMBER_ID_REQUIRED first, as from request version 4.
        """
        request = JoinGroup(
            self.group_id,
            "",
            "consumer",
            protocols or protocols_of("range"),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            group_instance_id=instance,
            client_id=client_id,
            client_host="/127.0.0.1",
            requires_known_member_id=asks_for_id,
            supports_skip_assignment=True,
        )
        sent = self.driver.submit(request)
        self._joins[sent.member_id] = request
        return sent

    def ask_for_id(self, client_id: str = "a", **changes: int) -> str:
        """A dynamic client joins and is handed out a member id; return it."""
        sent = self.join(client_id, asks_for_id=True, **changes)
        assert sent.error is ErrorCode.MEMBER_ID_REQUIRED
        return sent.answer(JoinGroupResponse).member_id

    def rejoin(self, member_id: str, *names: str, **changes: object) -> Sent:
        """A client joins as it did before, with the id that it has by now, but for what is given here."""
        if names:
            changes["protocols"] = protocols_of(*names)
        request = evolve(self._joins[member_id], **{"member_id": member_id, **changes})
        self._joins[member_id] = request
        return self.driver.submit(request)

    def sync(self, member_id: str, assignments: Mapping[str, bytes] | None = None) -> Sent:
        """Send the sync of a member; a leader brings ``assignments``."""
        brought = tuple(SyncAssignment(*entry) for entry in (assignments or {}).items())
        return self.driver.submit(SyncGroup(self.group_id, self.generation, member_id, assignments=brought))

    def leave(self, *entries: str | LeavingMember) -> Sent:
        """Members leave, all in one request."""
        members = tuple(LeavingMember(entry) if isinstance(entry, str) else entry for entry in entries)
        return self.driver.submit(LeaveGroup(self.group_id, members))

    # ------------------------------------------------------------ offsets

    def commit(
        self,
        offset: int | Mapping[int, int] = 1,
        *,
        member_id: str = "",
        instance: str | None = None,
        topic: str = "orders",
        topic_id: UUID = ZERO_UUID,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> Sent:
        """Commit ``offset`` for partition 0 of a topic (or one for each partition); without a member from outside."""
        generation = self.generation if member_id else -1
        offsets = offset if isinstance(offset, Mapping) else {0: offset}
        entries = tuple(OffsetToCommit(index, value, -1, metadata) for index, value in offsets.items())
        topics = (TopicToCommit(topic, entries, topic_id),)
        return self.driver.submit(OffsetCommit(self.group_id, topics, generation, member_id, instance, retention_ms))

    def fetch(self) -> FetchedOffset:
        """Fetch the committed offset of partition 0 of ``orders``."""
        wanted = GroupToFetch(self.group_id, (TopicToFetch("orders", (0,)),))
        return self.driver.coordinator.call(OffsetFetch((wanted,))).groups[0].topics[0].partitions[0]

    def committed(self) -> dict[str, dict[int, int]]:
        """Fetch all committed offsets, by topic and partition."""
        fetched = self.driver.coordinator.call(OffsetFetch((GroupToFetch(self.group_id),))).groups[0]
        assert fetched.error_code is ErrorCode.NONE
        return {t.name: {p.partition_index: p.committed_offset for p in t.partitions} for t in fetched.topics}

    # ------------------------------------------------------------ whole phases

    def generation_of(self, *clients: str, **how: object) -> list[str]:
        """Join an empty group with clients (``@x`` is a static member with instance ``x``); return their ids. All joins
        are answered, and no member has synced.
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
