"""A share-partition, the share coordinator that keeps its state, and members: late, slow, killed, in any order."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from attrs import evolve

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.coordinator.share_coordinator import ShareCoordinator
from groupcoord.core.messages import share_state as messages
from groupcoord.core.share_partition.in_flight import (
    Acknowledgement,
    AcknowledgeType,
    LogBatch,
    RefusedAcknowledgementError,
    Wanted,
)
from groupcoord.core.share_partition.partition import SharePartition, StateWrite
from groupcoord.core.share_state.partition import OVERDUE
from groupcoord.core.share_state.records import DeliveryState
from groupcoord.errors import ErrorCode
from groupcoord.laws import ShareLedger, check_share_partition, check_states_are_the_log
from groupcoord.log_store import NotEnoughReplicasError

TOPIC = UUID(int=1)
LOCK_MS = 30_000
BATCH_MAX = 7


class ShareWorld:
    """One partition that a share group consumes. Attributes: ledger: the members' acquisitions. end_offset: of the
    partition's log.
    """

    def __init__(self, count_limit: int = 3, locks_max: int = 20) -> None:
        config = Config(
            share_coordinator_state_topic_num_partitions=1, share_coordinator_snapshot_update_records_per_snapshot=2
        )
        usual = ShareGroupSettings.of(config)
        self.settings = evolve(usual, delivery_count_limit=count_limit, partition_max_record_locks=locks_max)
        self.clock = ManualClock(1_000_000)
        self.store = MemoryLogStore()
        self._new_coordinator = partial(ShareCoordinator, config=config, clock=self.clock, log_store=self.store)
        self.coordinator = self._new_coordinator()
        self.coordinator.load_all()
        self.ledger = ShareLedger(count_limit)
        self.log: list[LogBatch] = []
        self.end_offset = 0
        self._log_start = 0
        self._leader_epoch = 0
        begin = messages.StateTopicToInitialize(TOPIC, (messages.StateToInitialize(0, 1, 0),))
        self.coordinator.call(messages.InitializeShareGroupState("g", (begin,)))
        self.partition = self._lead()

    # ------------------------------------------------------------ the leader

    def _lead(self) -> SharePartition:
        self._ask_for_state()
        self.settle()
        return self.partition

    def _ask_for_state(self) -> None:
        entry = messages.StateTopicToRead(TOPIC, (messages.StateToRead(0, self._leader_epoch),))
        self.coordinator.submit(messages.ReadShareGroupState("g", (entry,)), "read")

    def kill_leader(self) -> None:
        """The leader's memory is gone: the next one reads what is known, with the next epoch."""
        self._leader_epoch += 1
        self.ledger.forget_holders()
        self._lead()

    def kill_coordinator(self) -> None:
        """The share coordinator's memory is gone, and what it had not written: its writers are refused."""
        waiting = set(self.store.drop_waiting())
        for ticket in sorted(waiting):
            self.coordinator.append_failed(ticket, NotEnoughReplicasError("killed"))
        self.settle()
        self.store.drop_waiting()
        self.coordinator = self._new_coordinator()
        self.coordinator.load_all()

    def settle(self) -> None:
        """Let the log answer all appends, and then waiting requests."""
        while True:
            for ticket, offset in self.store.write_waiting():
                self.coordinator.appended(ticket, offset)
            replies = self.coordinator.take_replies()
            if not replies and not self.store.waiting():
                return
            for token, response in replies:
                self._told(token, response.results[0].partitions[0])

    def _told(self, token: Any, result: Any) -> None:
        if token == "read":
            if result.error_code is OVERDUE:  # behind a write for which the log took too long
                self._ask_for_state()
                return
            assert result.error_code is ErrorCode.NONE
            self.partition = SharePartition(result.start_offset, result.state_batches)
            return
        partition, write, offsets = token
        if partition is not self.partition:
            self._note(write, offsets if result.error_code is ErrorCode.NONE else [])
            return
        if result.error_code is ErrorCode.NONE:
            self._note(write, offsets)
            partition.written(write)
        else:
            partition.refused(write)

    def _note(self, write: StateWrite, offsets: list[int]) -> None:
        """Record the durable state, which must hold from now on."""
        for first, last, state, _ in write.batches if offsets else ():
            changed = set(range(first, last + 1)).intersection(offsets)
            if state == DeliveryState.ACKNOWLEDGED:
                self.ledger.accepted |= changed
            elif state == DeliveryState.ARCHIVED:
                self.ledger.archived |= changed
        self.ledger.let_go(offsets)

    def _write(self, write: StateWrite | None) -> None:
        if write is None:
            return
        offsets = [offset for first, last, *_ in write.batches for offset in range(first, last + 1)]
        entry = messages.StateToWrite(
            0, 1, self._leader_epoch, write.start_offset, write.batches, write.delivery_complete_count
        )
        request = messages.WriteShareGroupState("g", (messages.StateTopicToWrite(TOPIC, (entry,)),))
        self.coordinator.submit(request, (self.partition, write, offsets))
        if not self.store.acknowledge_late:
            self.settle()

    # ------------------------------------------------------------ producers and members

    def produce(self, count: int) -> None:
        """Append a batch of a number of records."""
        self.log.append(LogBatch(self.end_offset, self.end_offset + count - 1))
        self.end_offset += count

    def fetch(
        self, member_id: str, max_records: int = 500, *, is_limit: bool = False, read_max: int = 100
    ) -> list[int]:
        self.partition.log_starts_at(self._log_start)
        offset = self.partition.next_fetch_offset()
        read = [batch for batch in self.log if batch.last >= offset][:read_max]
        if not read or not self.partition.can_acquire(self.settings):
            return []
        wanted = Wanted(member_id, max_records, 4, is_limit)
        now_ms = self.clock.now_ms()
        acquired = self.partition.acquire(wanted, read, self.settings, now_ms)
        self.ledger.acquired(member_id, acquired, now_ms, now_ms + LOCK_MS)
        return [offset for first, last, _ in acquired for offset in range(first, last + 1)]

    def acknowledge(self, member_id: str, *acknowledgements: tuple[int, int, tuple[int, ...]]) -> ErrorCode:
        """Acknowledge records as a member; return the error."""
        now_ms = self.clock.now_ms()
        said = [Acknowledgement(*each) for each in acknowledgements]
        try:
            write = self.partition.acknowledge(member_id, said, self.settings, now_ms)
        except RefusedAcknowledgementError as error:
            return error.error_code
        for first, last, types in said:
            kinds = types if len(types) > 1 else types * (last - first + 1)
            renewed = [first + place for place, kind in enumerate(kinds) if kind == AcknowledgeType.RENEW]
            self.ledger.renewed(renewed, now_ms + LOCK_MS)
        self._write(write)
        return ErrorCode.NONE

    def leave(self, member_id: str) -> None:
        """A member's session ends."""
        self._write(self.partition.release(member_id, self.settings))

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self._write(self.partition.expire_locks(self.settings, self.clock.now_ms()))
        self.coordinator.tick()

    def delete_before(self, offset: int) -> None:
        """Move the start of the log to an offset."""
        self._log_start = offset = max(self._log_start, offset)
        gone = range(self.partition.start_offset, offset)
        self.partition.log_starts_at(offset)
        self.ledger.archived.update(gone)
        self.ledger.delivered.update(gone)
        self.ledger.let_go(gone)

    def check(self) -> None:
        """Hold everything against the laws."""
        check_share_partition(self.partition, self.ledger, self.settings.partition_max_record_locks + BATCH_MAX)
        self.coordinator.check()
        states = self.coordinator.partition(0)
        assert states is not None
        check_states_are_the_log(states.hard, self.store.read(0))

    def work_off(self) -> None:
        """Accept everything that is left, and check that nothing was lost."""
        self.store.acknowledge_late = False
        self.settle()
        self.pass_time(10 * LOCK_MS)
        self.settle()
        for _ in range(20 + 4 * self.end_offset):
            for offset in self.fetch("last", 500):
                assert self.acknowledge("last", (offset, offset, (AcknowledgeType.ACCEPT,))) is ErrorCode.NONE
        self.ledger.check_done(self.end_offset)
