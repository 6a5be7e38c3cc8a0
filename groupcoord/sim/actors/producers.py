"""Producers that commit a group's offsets in transactions (KIP-98)."""

from __future__ import annotations

from random import Random

from attrs import frozen

from groupcoord.core.consumer_protocol import partitions_by_topic
from groupcoord.errors import ErrorCode
from groupcoord.laws import errors_in, require
from groupcoord.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    OffsetToCommit,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.sim.actors.fault import Fault
from groupcoord.sim.actors.groups import SimulatedGroup
from groupcoord.sim.actors.observations import head
from groupcoord.sim.actors.population import Population
from groupcoord.sim.actors.scripted_clients import Ask, Pause, Script, ScriptedClient
from groupcoord.sim.actors.stage import Stage
from groupcoord.sim.actors.transactions import TransactionState
from groupcoord.sim.kernel.randomness import stream

PRODUCER = "transactional producer"

RETRY_MS = 500
"""A marker that was not taken is sent again after so long, for as long as it takes."""


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
        """The only group that it affects."""
        return self.group

    def begin(self, stage: Stage, population: Population) -> None:
        """Let it start."""
        group = population.group(self.group)
        chance = stream(stage.seed, "producer", self.producer_id, self.start_ms)
        ScriptedClient(stage, PRODUCER, group, _Producer(self, stage, group, chance).script())


@frozen
class _Producer:
    """What a producer does."""

    fault: TransactionalProducer
    stage: Stage
    group: SimulatedGroup
    chance: Random

    def script(self) -> Script:
        """Have transactions until the fault ends."""
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
                # Its transaction stays open until it times out.
                yield Pause(chance.randint(fault.least_timeout_ms, fault.most_timeout_ms))
            is_committed = all_taken and not has_died and chance.random() < 1 - fault.abort_percent / 100
            state = TransactionState.COMMITTED if is_committed else TransactionState.ABORTED
            transactions.decide(producer_id, name, state)
            stage.record(f"transaction {name} of {self.group.options.group_id} is {state.value}")
            stage.count(PRODUCER, "transaction", "timed out" if has_died else state.value)
            decided_ms = stage.scheduler.time_ms
            yield from self._end(epoch, state)
            ended_ms = stage.scheduler.time_ms
            late_ms = ended_ms - decided_ms if is_committed else None
            self.group.observations.transaction_ended(ended_ms - began_ms, late_ms)
            if chance.random() < fault.zombie_percent / 100:
                yield from self._fail_as_zombie(epoch, name)
            yield Pause(chance.choice(fault.pauses_ms))

    def _commit(self, epoch: int, name: str) -> TxnOffsetCommit:
        """Return a commit for some partitions: in the name of a consumer (KIP-447), or of nobody."""
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
        """Send the marker until it is in the log."""
        group_id = self.group.options.group_id
        partition = self.stage.cluster.partition_of(group_id)
        marker = CompleteTransaction(partition, self.fault.producer_id, epoch, state is TransactionState.COMMITTED)
        while True:
            answer = yield Ask(marker, group_id)
            if isinstance(answer, CompleteTransactionResponse) and answer.error_code is ErrorCode.NONE:
                return
            yield Pause(RETRY_MS)

    def _fail_as_zombie(self, epoch: int, name: str) -> Script:
        """Go on with a transaction that is over: nobody may take that."""
        answer = yield Ask(self._commit(epoch, name), self.group.options.group_id)
        if isinstance(answer, TxnOffsetCommitResponse):
            require(bool(errors_in(answer)), f"transaction {name} is over, and yet another commit of it is taken")
