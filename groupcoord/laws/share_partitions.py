"""Laws of records in a share group (KIP-932).

A record is acquired by one member at a time, within the delivery limit and never after acceptance. In the end each one
was delivered, and accepted or archived.
"""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.core.share_partition.in_flight import Acquired
from groupcoord.core.share_partition.partition import SharePartition
from groupcoord.core.share_state.records import DeliveryState, ShareStates
from groupcoord.laws.coordinator import require
from groupcoord.log_store import LogRecord


class ShareLedger:
    """Records of a share-partition according to the responses to members.

    The caller adds to ``accepted`` and ``archived``.

    Args:
        count_limit: maximum number of deliveries.
    """

    def __init__(self, count_limit: int) -> None:
        self.count_limit = count_limit
        self.delivered: set[int] = set()
        self.accepted: set[int] = set()
        self.archived: set[int] = set()
        self._holders: dict[int, tuple[str, int]] = {}  # by offset: member and end of its lock

    def acquired(self, member_id: str, ranges: Iterable[Acquired], now_ms: int, locked_until_ms: int) -> None:
        """Note records that a member acquired.

        Raises:
            LawBrokenError: it does not hold.
        """
        for first, last, count in ranges:
            require(1 <= count <= self.count_limit, f"{first}-{last} is delivered {count} times")
            for offset in range(first, last + 1):
                # After its lock has expired a record is free, although its holder may not know.
                holder, until_ms = self._holders.get(offset, (member_id, -1))
                is_free = now_ms >= until_ms
                require(is_free, f"{offset} is given to {member_id} while {holder} has it until {until_ms}")
                require(offset not in self.accepted, f"{offset} is given to {member_id}, and was accepted")
                require(offset not in self.archived, f"{offset} is given to {member_id}, and was archived")
                self._holders[offset] = member_id, locked_until_ms
                self.delivered.add(offset)

    def renewed(self, offsets: Iterable[int], locked_until_ms: int) -> None:
        for offset in offsets:
            if offset in self._holders:
                holder, _ = self._holders[offset]
                self._holders[offset] = holder, locked_until_ms

    def let_go(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._holders.pop(offset, None)

    def forget_holders(self) -> None:
        self._holders.clear()

    def held_by(self, member_id: str) -> list[int]:
        return sorted(offset for offset, (holder, _) in self._holders.items() if holder == member_id)

    def check_done(self, end_offset: int) -> None:
        """Check that every record was delivered, and accepted or archived.

        Raises:
            LawBrokenError: it does not hold.
        """
        for offset in range(end_offset):
            require(offset in self.accepted or offset in self.archived, f"{offset} is lost")
            require(offset in self.delivered, f"{offset} was never delivered")


def check_share_partition(partition: SharePartition, ledger: ShareLedger, locks_max: int) -> None:
    """Check the in-memory state of a share-partition's leader against the responses to members.

    ``locks_max`` is ``share.partition.max.record.locks`` plus the longest batch of the log.

    Raises:
        LawBrokenError: it does not hold.
    """
    partition.check()
    require(partition.in_flight_count <= locks_max, f"{partition.in_flight_count} records are in flight")
    for offset in ledger.accepted:
        if offset >= partition.start_offset and offset <= partition.end_offset:
            states = [run.state for run in partition.runs() if run.first <= offset <= run.last]
            is_done = any(state.state is DeliveryState.ACKNOWLEDGED for state in states)
            require(is_done, f"{offset} was accepted, and is {states}")


def check_states_are_the_log(states: ShareStates, log: Iterable[LogRecord]) -> None:
    """Check that a share coordinator's state is the replay of its log.

    Raises:
        LawBrokenError: it does not hold.
    """
    replayed = ShareStates()
    for record in log:
        replayed.apply(record.record, record.offset)
    require(replayed.facts() == states.facts(), f"in memory {states.facts()}, in the log {replayed.facts()}")
