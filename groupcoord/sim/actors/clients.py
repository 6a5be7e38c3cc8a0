"""Scripted clients: administrators, transactional producers, simple consumers and writers of foreign records.

Each executes the steps of a script. :class:`Fault` is the base of these and of all other planned events.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from random import Random
from struct import pack
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.core.consumer_protocol import partitions_by_topic
from groupcoord.errors import ErrorCode
from groupcoord.laws import errors_in, require
from groupcoord.log_store import LogRecord
from groupcoord.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    CoordinatorType,
    DeleteGroups,
    DescribeGroups,
    DescribeGroupsResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    GroupToFetch,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    Response,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.sim.actors.environment import GuestGroup, Stage
from groupcoord.sim.actors.groups import Population, SimulatedGroup
from groupcoord.sim.actors.observations import TransactionState, head
from groupcoord.sim.kernel import SimulatedConnection, mixed, rank_of_deadline, stable_number, stream


@frozen(kw_only=True)
class Fault:
    """Planned event: a fault that lasts for a while, or a client that is active for a while.

    Attributes:
        start_ms, end_ms: its bounds in milliseconds since the start of the run; equal for a single moment.
    """

    start_ms: int
    end_ms: int

    @property
    def group_id(self) -> str | None:
        """Only group that it affects, its attribute ``group``; None: it may affect all."""
        group: str | None = getattr(self, "group", None)
        return group

    def affects(self, group_id: str) -> bool:
        """Return whether it may affect a group."""
        return self.group_id is None or self.group_id == group_id

    def begin(self, stage: Stage, population: Population) -> None:
        """Start the event."""

    def end(self, stage: Stage, population: Population) -> None:
        """End the event."""


NO_ANSWER = "no answer"
"""Outcome of a request, or of a coordinator lookup, without a response."""

RETRY_MS = 500
REQUEST_TIMEOUT_MS = 12_000
"""Time after which a request counts as lost."""


class Pause(NamedTuple):
    """Step: wait."""

    duration_ms: int


class Ask(NamedTuple):
    """Step: send a request to the coordinator of a group, after a lookup; None: to any node.

    Its result is the response, or None if the request or the lookup had none.
    """

    request: Request
    group_id: str | None


class AskNode(NamedTuple):
    """Step: send a request to a node on a kept connection, also of the APIs for partition leaders."""

    request: Any
    node_id: int


class HangUp(NamedTuple):
    """Step: close the kept connections. Without ``notifies``, nodes do not notice, as if the machine had failed."""

    notifies: bool


Script = Generator[Ask | AskNode | HangUp | Pause, Response | None, None]
"""Script of a client: a generator of steps, which receives the response of each."""


class ScriptedClient:
    """Client that executes a script. While it is active, the group that it can affect is not steady."""

    def __init__(self, stage: Stage, name: str, group: SimulatedGroup | GuestGroup | None, script: Script) -> None:
        self._stage = stage
        self._name = name
        self._group = group
        self._script = script
        self._number = next(stage.client_numbers)
        self._key = stable_number(stage.seed, "visitor", self._number)
        self._connection: SimulatedConnection | None = None
        self._kept: dict[int, SimulatedConnection] = {}
        self._request: Request | None = None
        self._query: Ask | None = None
        self._step = 0
        if group is not None:
            group.scripted_clients += 1
        self._go_on(None)

    def _go_on(self, answer: Response | None) -> None:
        self._step += 1
        if self._request is not None:
            outcome = NO_ANSWER if answer is None else next(iter(errors_in(answer)), ErrorCode.NONE).name
            self._stage.count(self._name, type(self._request).__name__, outcome)
            self._request = None
        try:
            step = self._script.send(answer)
        except StopIteration:
            if self._group is not None:
                self._group.scripted_clients -= 1
                self._group.disturbed()
            return
        if isinstance(step, Pause):
            self._wake_in(step.duration_ms)
            return
        if isinstance(step, HangUp):
            for connection in self._kept.values():
                connection.is_silent = connection.is_silent or not step.notifies
                self._stage.cluster.network.close(connection)
            self._kept.clear()
            self._wake_in(0)
            return
        self._request = step.request
        if isinstance(step, AskNode):
            self._send_to(step.node_id, step.request)
        elif step.group_id is None:
            self._send(step.request, mixed(self._key, self._stage.scheduler.time_ms))  # to a pseudo-random node
        else:
            self._query = step
            search = FindCoordinator(CoordinatorType.GROUP, (step.group_id,))
            self._send(search, mixed(self._key, self._stage.scheduler.time_ms))

    def _wake_in(self, duration_ms: int) -> None:
        scheduler = self._stage.scheduler
        scheduler.at(scheduler.time_ms + duration_ms, rank_of_deadline(self._number), self._wake, self._step)

    def _wake(self, step: int) -> None:
        if step == self._step:
            self._lose()

    def _send(self, request: Request, place: int) -> None:
        cluster = self._stage.cluster
        self._connection = cluster.network.connect(self, self._number, cluster.nodes[place % len(cluster.nodes)])
        self._wake_in(REQUEST_TIMEOUT_MS)
        cluster.network.send(self._connection, self._step, request)

    def _send_to(self, node_id: int, request: Request) -> None:
        cluster = self._stage.cluster
        if node_id not in self._kept:
            self._kept[node_id] = cluster.network.connect(self, self._number, cluster.nodes[node_id - 1])
        self._connection = self._kept[node_id]
        self._wake_in(REQUEST_TIMEOUT_MS)
        cluster.network.send(self._connection, self._step, request)

    def receive(self, connection: SimulatedConnection, correlation_id: int, response: Response) -> None:
        if connection is not self._connection:
            return
        if connection in self._kept.values():
            self._connection = None
        else:
            self._hang_up()
        query, self._query = self._query, None
        if query is None:
            self._go_on(response)
            return
        assert isinstance(response, FindCoordinatorResponse)
        (found,) = response.coordinators
        if found.error_code is ErrorCode.NONE:
            self._step += 1  # the timeout of the lookup no longer applies
            self._send(query.request, found.node.node_id - 1)
        else:
            self._go_on(None)

    def disconnected(self, connection: SimulatedConnection) -> None:
        if connection is self._connection:
            self._lose()
        else:
            self._forget(connection)

    def _lose(self) -> None:
        self._hang_up()
        self._query = None
        self._go_on(None)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._stage.cluster.network.close(self._connection)
            self._forget(self._connection)
            self._connection = None

    def _forget(self, connection: SimulatedConnection) -> None:
        for node_id in [node_id for node_id, kept in self._kept.items() if kept is connection]:
            del self._kept[node_id]


class AdminAction(Enum):
    """Operation of an administrator."""

    LOOK = "looks at"
    DELETE_GROUP = "deletes"
    DELETE_OFFSETS = "deletes offsets of"
    REMOVE_MEMBER = "puts a member out of"


@frozen(kw_only=True)
class Administrator(Fault):
    """Administrator of a group: describes it, deletes it or its offsets, or removes members.

    Attributes:
        group: its id, with or without consumers.
        action: the operation.
        looks, look_pause_ms: number of descriptions, and the pause between them.
        topic: topic of the deleted offsets; None: a random one.
    """

    group: str
    action: AdminAction
    looks: int = 5
    look_pause_ms: int = 700
    topic: str | None = None

    def begin(self, stage: Stage, population: Population) -> None:
        stage.record(f"an administrator {self.action.value} {self.group}")
        chance = stream(stage.seed, "administrator", self.group, self.start_ms)
        scripts = {
            AdminAction.LOOK: self._look,
            AdminAction.DELETE_GROUP: self._delete_group,
            AdminAction.DELETE_OFFSETS: self._delete_offsets,
            AdminAction.REMOVE_MEMBER: self._remove_member,
        }
        script = scripts[self.action](stage, chance)
        ScriptedClient(stage, "administrator", population.by_id.get(self.group), script)

    def _look(self, stage: Stage, chance: Random) -> Script:
        for _ in range(self.looks):
            yield Ask(ListGroups(), None)
            yield Ask(DescribeGroups((self.group,)), self.group)
            yield Ask(ConsumerGroupDescribe((self.group,)), self.group)
            yield Ask(OffsetFetch((GroupToFetch(self.group),), require_stable=chance.random() < 0.5), self.group)
            yield Pause(self.look_pause_ms)

    def _delete_group(self, stage: Stage, chance: Random) -> Script:
        yield Ask(DeleteGroups((self.group,)), self.group)

    def _delete_offsets(self, stage: Stage, chance: Random) -> Script:
        topic = chance.choice(stage.topics.remembered_names()) if self.topic is None else self.topic
        indexes = tuple(partition.partition for partition in stage.topics.remembered_partitions_of((topic,)))
        yield Ask(OffsetDelete(self.group, (TopicToDelete(topic, indexes),)), self.group)

    def _remove_member(self, stage: Stage, chance: Random) -> Script:
        members: list[tuple[str, str | None]] = []
        answer = yield Ask(ConsumerGroupDescribe((self.group,)), self.group)
        if isinstance(answer, ConsumerGroupDescribeResponse):
            members = [(member.member_id, member.instance_id) for member in answer.groups[0].members]
        if not members:
            answer = yield Ask(DescribeGroups((self.group,)), self.group)
            if isinstance(answer, DescribeGroupsResponse):
                members = [(member.member_id, member.group_instance_id) for member in answer.groups[0].members]
        if not members:
            return
        member_id, instance_id = chance.choice(members)
        # Kafka's tools name static members by their instance id alone.
        leaving = LeavingMember("" if instance_id is not None else member_id, instance_id, "an administrator says so")
        yield Ask(LeaveGroup(self.group, (leaving,)), self.group)


PRODUCER = "transactional producer"


@frozen(kw_only=True)
class TransactionalProducer(Fault):
    """Producer of consecutive transactions; the last one is ended even after ``end_ms``.

    Attributes:
        producer_id: its producer id.
        group: group whose offsets it commits.
        pauses_ms: possible pauses between two transactions.
        commit_pauses_ms: possible pauses after each commit of offsets.
        abort_percent: percentage of transactions that are aborted without an error.
        crash_percent: percentage of transactions that a crash leaves open.
        least_timeout_ms, most_timeout_ms: bounds of the time for which such a transaction stays open.
        zombie_percent: percentage of ended transactions that the producer tries to continue.
    """

    producer_id: int
    group: str
    pauses_ms: tuple[int, ...] = (0, 200, 5_000)
    commit_pauses_ms: tuple[int, ...] = (0, 50, 1_000)
    abort_percent: int = 30
    crash_percent: int = 20
    least_timeout_ms: int = 1_000
    most_timeout_ms: int = 20_000
    zombie_percent: int = 30

    def begin(self, stage: Stage, population: Population) -> None:
        group = population.by_id[self.group]
        chance = stream(stage.seed, "producer", self.producer_id, self.start_ms)
        ScriptedClient(stage, PRODUCER, group, _Producer(self, stage, group, chance).script())


@frozen
class _Producer:
    """Script of a producer."""

    fault: TransactionalProducer
    stage: Stage
    group: SimulatedGroup
    chance: Random

    def script(self) -> Script:
        stage, chance, fault, transactions = self.stage, self.chance, self.fault, self.stage.transactions
        producer_id = fault.producer_id
        end_ms = stage.start_ms + fault.end_ms
        while stage.scheduler.time_ms <= end_ms:
            began_ms = stage.scheduler.time_ms
            epoch, name = transactions.begin(producer_id)
            all_taken = True
            for _ in range(chance.randint(1, 3)):
                answer = yield Ask(self._commit(epoch, name), self.group.options.group_id)
                all_taken = all_taken and answer is not None and not errors_in(answer)
                yield Pause(chance.choice(fault.commit_pauses_ms))
            has_died = chance.random() < fault.crash_percent / 100
            if has_died:
                # The transaction stays open until its timeout.
                yield Pause(chance.randint(fault.least_timeout_ms, fault.most_timeout_ms))
            is_committed = all_taken and not has_died and chance.random() < 1 - fault.abort_percent / 100
            state = TransactionState.COMMITTED if is_committed else TransactionState.ABORTED
            transactions.states[name] = state
            stage.record(f"transaction {name} of {self.group.options.group_id} is {state.value}")
            stage.count(PRODUCER, "transaction", "timed out" if has_died else state.value)
            decided_ms = stage.scheduler.time_ms
            yield from self._end(epoch, state)
            ended_ms = stage.scheduler.time_ms
            late_ms = ended_ms - decided_ms if is_committed else None
            self.group.observations.transaction_ended(ended_ms - began_ms, late_ms)
            if chance.random() < fault.zombie_percent / 100:
                yield from self._continue_ended(epoch, name)
            yield Pause(chance.choice(fault.pauses_ms))

    def _commit(self, epoch: int, name: str) -> TxnOffsetCommit:
        """Return a commit for some partitions, with the identity of a consumer (KIP-447) or without.

        The metadata of each offset is the transaction's name.
        """
        stage, chance, group = self.stage, self.chance, self.group
        partitions = stage.topics.remembered_partitions_of(group.options.topics)
        chosen = chance.sample(partitions, chance.randint(1, min(3, len(partitions))))
        offset = head(stage.scheduler.time_ms, stage.start_ms)
        topics = tuple(
            TopicToCommit(topic, tuple(OffsetToCommit(index, offset, -1, name) for index in indexes))
            for topic, indexes in partitions_by_topic(chosen).items()
        )
        consumer = chance.choice(group.consumers)
        member = consumer.member if chance.random() < 0.5 else None
        if member is None:
            return TxnOffsetCommit(group.options.group_id, topics, self.fault.producer_id, epoch)
        return TxnOffsetCommit(
            group.options.group_id,
            topics,
            self.fault.producer_id,
            epoch,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=consumer.config.group_instance_id,
        )

    def _end(self, epoch: int, state: TransactionState) -> Script:
        group_id = self.group.options.group_id
        partition = self.stage.cluster.partition_of(group_id)
        marker = CompleteTransaction(partition, self.fault.producer_id, epoch, state is TransactionState.COMMITTED)
        while True:
            answer = yield Ask(marker, group_id)
            if isinstance(answer, CompleteTransactionResponse) and answer.error_code is ErrorCode.NONE:
                return
            yield Pause(RETRY_MS)

    def _continue_ended(self, epoch: int, name: str) -> Script:
        """Continue an ended transaction, which must fail."""
        answer = yield Ask(self._commit(epoch, name), self.group.options.group_id)
        if isinstance(answer, TxnOffsetCommitResponse):
            require(bool(errors_in(answer)), f"transaction {name} is over, and yet another commit of it is taken")


@frozen(kw_only=True)
class SimpleConsumer(Fault):
    """Client that commits and fetches offsets without being a member.

    Attributes:
        group: its group, with or without consumers.
        topics: topics of its offsets; all if empty.
        pauses_ms: possible pauses between two commits.
        metadata_lengths: lengths of the metadata; empty: up to the limit and beyond.
    """

    group: str
    topics: tuple[str, ...] = ()
    pauses_ms: tuple[int, ...] = (100, 1_000, 10_000)
    metadata_lengths: tuple[int, ...] = ()

    def begin(self, stage: Stage, population: Population) -> None:
        ScriptedClient(stage, "simple consumer", population.by_id.get(self.group), self._script(stage))

    def _script(self, stage: Stage) -> Script:
        chance = stream(stage.seed, "simple consumer", self.group, self.start_ms)
        limit = stage.cluster.config.offset_metadata_max_bytes
        while stage.scheduler.time_ms <= stage.start_ms + self.end_ms:
            topic = chance.choice(sorted(self.topics or stage.topics.remembered_names()))
            partition = chance.choice(stage.topics.remembered_partitions_of((topic,))).partition
            metadata = "x" * chance.choice(self.metadata_lengths or (0, 1, limit, limit + 1))
            offset = OffsetToCommit(partition, head(stage.scheduler.time_ms, stage.start_ms), -1, metadata)
            yield Ask(OffsetCommit(self.group, (TopicToCommit(topic, (offset,)),)), self.group)
            yield Ask(OffsetFetch((GroupToFetch(self.group),)), self.group)
            yield Pause(chance.choice(self.pauses_ms))


def _text(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


FOREIGN: dict[str, tuple[bytes, bytes | None]] = {
    "consumer-group": (pack(">h", 3) + _text("newer"), pack(">hi", 0, 17)),
    "consumer-group-member-tombstone": (pack(">h", 5) + _text("newer") + _text("member"), None),
    "share-group": (pack(">h", 11) + _text("share"), pack(">hi", 0, 1)),
    "unknown-type": (pack(">h", 99) + b"from the future", b"\x00\x00whatever"),
    "unknown-offset-commit-version": (
        pack(">h", 1) + _text("newer") + _text("topic0") + pack(">i", 0),
        pack(">hq", 77, 1_000),
    ),
    "unknown-group-metadata-version": (pack(">h", 2) + _text("newer"), pack(">h", 77) + b"members of the future"),
    "unreadable": (b"\x00", b"?"),
}
"""Keys and values by name: groups of other types (KIP-848, KIP-932), future types and versions, and malformed ones."""


@frozen(kw_only=True)
class ForeignRecords(Fault):
    """Record of another writer in a log partition.

    Attributes:
        partition: the log partition.
        kind: a key of :data:`FOREIGN`.
    """

    partition: int
    kind: str

    def begin(self, stage: Stage, population: Population) -> None:
        key, value = FOREIGN[self.kind]
        stage.record(f"somebody writes a record of a foreign kind ({self.kind}) to log partition {self.partition}")
        stage.count("other writer", self.kind, "written")
        entry = LogRecord.from_bytes(key, value, offset=-1, timestamp_ms=stage.scheduler.time_ms)
        stage.cluster.leading.write_foreign(self.partition, entry)
