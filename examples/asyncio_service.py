"""A service that hands out work: three workers share eight shards, one crashes, the others carry on where it was.

The coordinator runs inside the service's event loop, with real timers and without a socket: ``AsyncCoordinator`` makes
every request something to await. Progress is committed after every item, so whoever takes a shard over starts at the
first item that isn't known to be done.

    pip install .
    python examples/asyncio_service.py
"""

from __future__ import annotations

import asyncio
from collections import Counter

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.aio import AsyncCoordinator
from groupcoord.messages import (
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
)

GROUP, JOB = "workers", "job"
SHARDS, ITEMS_PER_SHARD = 8, 6
ITEM_S = 0.02
SESSION_TIMEOUT_MS = 500


class Worker:
    """One member of the group.

    Args:
        name: what it is called.
        coordinator: where it joins.
        done: counts how often each (shard, item) was worked on, by anybody.
        crashes_after: how many items it works on before it crashes; None: it doesn't.
    """

    def __init__(
        self, name: str, coordinator: AsyncCoordinator, done: Counter[tuple[int, int]], crashes_after: int | None = None
    ) -> None:
        self.name = name
        self.items = 0
        self._coordinator = coordinator
        self._done = done
        self._crashes_after = crashes_after
        self._member_id = ""
        self._generation_id = -1

    async def run(self) -> None:
        """Work, one generation after the other, until the whole job is done."""
        while True:
            shards = await self._join_and_sync()
            if shards is not None and await self._work_on(shards):
                return

    async def _join_and_sync(self) -> list[int] | None:
        """Join the next generation; return this worker's shards, or None if there is a newer generation already."""
        joined = await self._coordinator.ask(
            JoinGroup(GROUP, self._member_id, JOB, (JoinProtocol("deal", b""),), SESSION_TIMEOUT_MS, 1_000)
        )
        self._member_id = "" if joined.error_code is ErrorCode.UNKNOWN_MEMBER_ID else joined.member_id
        if joined.error_code is not ErrorCode.NONE:  # MEMBER_ID_REQUIRED: join again with the id
            return None
        self._generation_id = joined.generation_id
        assignments = tuple(
            SyncAssignment(member.member_id, bytes(range(SHARDS))[i :: len(joined.members)])
            for i, member in enumerate(joined.members)  # the leader sees the members; for all others there are none
        )
        synced = await self._coordinator.ask(
            SyncGroup(GROUP, self._generation_id, self._member_id, assignments=assignments)
        )
        if synced.error_code is not ErrorCode.NONE:
            return None
        print(f"generation {self._generation_id}: {self.name} has shards {list(synced.assignment)}")
        return list(synced.assignment)

    async def _work_on(self, shards: list[int]) -> bool:
        """Work until the job is done or crashed out of (True), or until there is a rebalance (False)."""
        while True:
            if not await self._is_current():
                return False
            positions = await self._positions()
            if all(position == ITEMS_PER_SHARD for position in positions.values()):
                await self._coordinator.ask(LeaveGroup(GROUP, (LeavingMember(self._member_id),)))
                return True
            await asyncio.sleep(ITEM_S)
            shard = next((s for s in shards if positions[s] < ITEMS_PER_SHARD), None)
            if shard is None:
                continue  # nothing left to do here, but somebody else's shards may be ours one day
            self.items += 1
            self._done[shard, positions[shard]] += 1
            if self.items == self._crashes_after:
                print(f"{self.name} crashes at item {positions[shard]} of shard {shard}, before it is committed")
                return True
            await self._commit(shard, positions[shard] + 1)

    async def _is_current(self) -> bool:
        beat = await self._coordinator.ask(Heartbeat(GROUP, self._generation_id, self._member_id))
        if beat.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        return beat.error_code is ErrorCode.NONE

    async def _positions(self) -> dict[int, int]:
        fetched = await self._coordinator.ask(OffsetFetch((GroupToFetch(GROUP),)))
        positions = dict.fromkeys(range(SHARDS), 0)
        for topic in fetched.groups[0].topics:
            positions |= {offset.partition_index: offset.committed_offset for offset in topic.partitions}
        return positions

    async def _commit(self, shard: int, position: int) -> None:
        # If this is refused since a rebalance is under way, the item is done again: at least once, as with Kafka.
        topics = (TopicToCommit(JOB, (OffsetToCommit(shard, position),)),)
        await self._coordinator.ask(OffsetCommit(GROUP, topics, self._generation_id, self._member_id))


async def main() -> None:
    """Run the job to its end."""
    config = Config(group_initial_rebalance_delay_ms=100, group_min_session_timeout_ms=100)
    done: Counter[tuple[int, int]] = Counter()
    async with AsyncCoordinator(GroupCoordinator(config=config)) as coordinator:
        ann, ben = Worker("Ann", coordinator, done), Worker("Ben", coordinator, done, crashes_after=5)
        cleo = Worker("Cleo", coordinator, done)
        await asyncio.gather(ann.run(), ben.run(), cleo.run())
    again = sum(count - 1 for count in done.values())
    print(f"{len(done)} of {SHARDS * ITEMS_PER_SHARD} items done, {again} of them twice")


if __name__ == "__main__":
    asyncio.run(main())
