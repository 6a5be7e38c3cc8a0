"""Producers that commit a group's offsets in transactions (KIP-98), and the coordinator that ends these.

Each transaction has an epoch of its own (KIP-890), so that nothing that is late can belong to the next one, and a name
that its offsets carry as metadata: whoever reads an offset can tell where it comes from.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from attrs import define, frozen

from groupcoord.consumer_protocol import partitions_by_topic
from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    OffsetToCommit,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.sim.answers import errors_of
from groupcoord.sim.faults import Fault
from groupcoord.sim.observations import head
from groupcoord.sim.randomness import stream
from groupcoord.sim.visitors import Ask, Errand, Pause, Visitor

if TYPE_CHECKING:
    from groupcoord.sim.groups import SimulatedGroup
    from groupcoord.sim.world import World

PRODUCER = "transactional producer"

RETRY_MS = 500
"""A marker that was not taken is sent again after so long, for as long as it takes."""


class Fate(Enum):
    """Where a transaction is in its life, or how it ended."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@define
class _Producer:
    """What the transaction coordinator knows of a producer."""

    epoch: int = -1
    is_open: bool = False


class Transactions:
    """The book of the transaction coordinator, which nodes ask before they take a transactional commit.

    Attributes:
        fates: the name of each transaction → its fate.
    """

    def __init__(self) -> None:
        self.fates: dict[str, Fate] = {}
        self._producers: dict[int, _Producer] = {}

    def begin(self, producer_id: int) -> tuple[int, str]:
        """Begin a producer's next transaction; return its epoch and name."""
        producer = self._producers.setdefault(producer_id, _Producer())
        producer.epoch += 1
        producer.is_open = True
        name = f"t{producer_id}.{producer.epoch}"
        self.fates[name] = Fate.OPEN
        return producer.epoch, name

    def decide(self, producer_id: int, name: str, fate: Fate) -> None:
        """Decide a transaction: from now on nothing can be added to it."""
        self._producers[producer_id].is_open = False
        self.fates[name] = fate

    def verify(self, request: TxnOffsetCommit) -> ErrorCode:
        """Tell whether a producer may commit now, as nodes ask it (see :class:`groupcoord.GroupCoordinator`)."""
        producer = self._producers[request.producer_id]
        if request.producer_epoch != producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.NONE if producer.is_open else ErrorCode.INVALID_TXN_STATE

    def check_read(self, group_id: str, metadata: str) -> None:
        """An offset that a reader is told belongs to no transaction, or to one that was committed."""
        fate = self.fates.get(metadata)
        require(
            fate is None or fate is Fate.COMMITTED,
            f"an offset of {group_id!r} is visible, but its transaction {metadata} is {fate and fate.value}",
        )


@frozen(kw_only=True)
class TransactionalProducer(Fault):
    """A producer has one transaction after the other; the last one is ended too, however long that takes.

    Attributes:
        producer_id: tells it from other producers.
        group: whose offsets it commits.
        pauses_ms: it pauses for one of these between two transactions.
        commit_pauses_ms: and after each commit of offsets.
        abort_percent: so many transactions are aborted though nothing went wrong.
        crash_percent: so many are left open, since the producer has died.
        least_timeout_ms, most_timeout_ms: that transaction then stays open so long.
        zombie_percent: after so many it tries to go on.
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

    @property
    def group_id(self) -> str | None:
        """The only group that it touches."""
        return self.group

    def begin(self, world: World) -> None:
        """Let it start."""
        group = world.group(self.group)
        life = _Life(self, world, group, stream(world.seed, "producer", self.producer_id, self.start_ms))
        Visitor(world, PRODUCER, [group], life.errand())


@frozen
class _Life:
    """A producer's life, as an errand."""

    fault: TransactionalProducer
    world: World
    group: SimulatedGroup
    chance: Random

    def errand(self) -> Errand:
        """Have transactions until the fault ends."""
        world, chance, fault, book = self.world, self.chance, self.fault, self.world.transactions
        producer_id = fault.producer_id
        end_ms = world.start_ms + fault.end_ms
        while world.scheduler.time_ms <= end_ms:
            began_ms = world.scheduler.time_ms
            epoch, name = book.begin(producer_id)
            all_taken = True
            for _ in range(chance.randint(1, 3)):
                answer = yield Ask(self._commit(epoch, name), self.group.options.group_id)
                all_taken = all_taken and answer is not None and not errors_of(answer)
                yield Pause(chance.choice(fault.commit_pauses_ms))
            has_died = chance.random() < fault.crash_percent / 100
            if has_died:
                # Its transaction stays open until it times out.
                yield Pause(chance.randint(fault.least_timeout_ms, fault.most_timeout_ms))
            is_committed = all_taken and not has_died and chance.random() < 1 - fault.abort_percent / 100
            fate = Fate.COMMITTED if is_committed else Fate.ABORTED
            book.decide(producer_id, name, fate)
            world.tell(f"transaction {name} of {self.group.options.group_id} is {fate.value}")
            world.count(PRODUCER, "transaction", "timed out" if has_died else fate.value)
            decided_ms = world.scheduler.time_ms
            yield from self._end(epoch, fate)
            ended_ms = world.scheduler.time_ms
            late_ms = ended_ms - decided_ms if is_committed else None
            self.group.observations.transaction_ended(ended_ms - began_ms, late_ms)
            if chance.random() < fault.zombie_percent / 100:
                yield from self._fail_as_zombie(epoch, name)
            yield Pause(chance.choice(fault.pauses_ms))

    def _commit(self, epoch: int, name: str) -> TxnOffsetCommit:
        """Return a commit for some partitions: in the name of a consumer (KIP-447), or of nobody."""
        world, chance, group = self.world, self.chance, self.group
        partitions = world.partitions_of(group.options.topics)
        chosen = chance.sample(partitions, chance.randint(1, min(3, len(partitions))))
        offset = head(world.scheduler.time_ms, world.start_ms)
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

    def _end(self, epoch: int, fate: Fate) -> Errand:
        """Send the marker until it is in the log."""
        group_id = self.group.options.group_id
        partition = self.world.cluster.partition_of(group_id)
        marker = CompleteTransaction(partition, self.fault.producer_id, epoch, fate is Fate.COMMITTED)
        while True:
            answer = yield Ask(marker, group_id)
            if isinstance(answer, CompleteTransactionResponse) and answer.error_code is ErrorCode.NONE:
                return
            yield Pause(RETRY_MS)

    def _fail_as_zombie(self, epoch: int, name: str) -> Errand:
        """Go on with a transaction that is over: nobody may take that."""
        answer = yield Ask(self._commit(epoch, name), self.group.options.group_id)
        if isinstance(answer, TxnOffsetCommitResponse):
            require(bool(errors_of(answer)), f"transaction {name} is over, and yet another commit of it is taken")
