"""Driver of a share coordinator with one log partition."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.coordinator.share_coordinator import ShareCoordinator
from groupcoord.core.messages import share_state as messages
from groupcoord.core.share_state.records import StateBatch
from groupcoord.errors import ErrorCode

TOPIC = UUID(int=7)
START_MS = 1_700_000_000_000


class Driver:
    """Sends requests about partition 0 of one topic for group ``g`` by default."""

    def __init__(self, **settings: Any) -> None:
        settings = {"share_coordinator_state_topic_num_partitions": 1, **settings}
        self.config = Config(**settings)
        self.clock = ManualClock(START_MS)
        self.store = MemoryLogStore()
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> ShareCoordinator:
        coordinator = ShareCoordinator(config=self.config, clock=self.clock, log_store=self.store)
        coordinator.load_all()
        return coordinator

    def restart(self) -> None:
        """Forget the coordinator, and load the log in a new one."""
        self.coordinator = self.new_coordinator()

    def submit(self, request: Any, token: Any = None) -> None:
        """Ask, without waiting for the answer."""
        self.coordinator.submit(request, token)

    def initialize(self, state_epoch: int = 0, start_offset: int = 0, partition: int = 0) -> Any:
        entry = messages.StateToInitialize(partition, state_epoch, start_offset)
        topic = messages.StateTopicToInitialize(TOPIC, (entry,))
        return self._result(messages.InitializeShareGroupState("g", (topic,)))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = -1,
        count: int = 0,
        partition: int = 0,
    ) -> Any:
        return self._result(
            written(
                *batches,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                count=count,
                partition=partition,
            )
        )

    def read(self, leader_epoch: int = 0, partition: int = 0) -> Any:
        topic = messages.StateTopicToRead(TOPIC, (messages.StateToRead(partition, leader_epoch),))
        return self._result(messages.ReadShareGroupState("g", (topic,)))

    def summarize(self, partition: int = 0) -> Any:
        topic = messages.StateTopicToRead(TOPIC, (messages.StateToRead(partition, 0),))
        return self._result(messages.ReadShareGroupStateSummary("g", (topic,)))

    def delete(self, partition: int = 0) -> Any:
        topic = messages.StateTopicToDelete(TOPIC, (messages.StateToDelete(partition),))
        return self._result(messages.DeleteShareGroupState("g", (topic,)))

    def _result(self, request: Any) -> Any:
        result = self.coordinator.call(request).results[0].partitions[0]
        self.coordinator.check()
        return result

    def values(self) -> list[str | None]:
        return [None if record.value is None else record.value.hex() for record in self.store.read(0)]


def written(
    *batches: tuple[int, int, int, int],
    state_epoch: int = 0,
    leader_epoch: int = 0,
    start_offset: int = -1,
    count: int = 0,
    partition: int = 0,
) -> messages.WriteShareGroupState:
    """Return the request to write these batches: first and last offset, state and delivery count."""
    changed = tuple(StateBatch(*batch) for batch in batches)
    entry = messages.StateToWrite(partition, state_epoch, leader_epoch, start_offset, changed, count)
    return messages.WriteShareGroupState("g", (messages.StateTopicToWrite(TOPIC, (entry,)),))


def code(result: Any) -> ErrorCode:
    error_code: ErrorCode = result.error_code
    return error_code
