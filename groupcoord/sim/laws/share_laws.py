"""Laws of share groups (KIP-932) in a simulated world: owners of records, delivery counts, outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupcoord.broker.share.share_partitions import LedPartition
from groupcoord.core.share_partition.in_flight import FINISHED, AcknowledgeType
from groupcoord.core.share_state.records import SharePartitionKey, StateBatch
from groupcoord.errors import ErrorCode
from groupcoord.laws import ShareLedger, check_share_partition, check_states_are_the_log, require
from groupcoord.messages import Request, Response
from groupcoord.sim.cluster.nodes import CoordinatorNode
from groupcoord.sim.cluster.topics import STATES, SharedTopics
from groupcoord.wire.share_messages import (
    AcquiredRecords,
    ShareAcknowledge,
    ShareAcknowledgeResponse,
    ShareFetch,
    ShareFetchResponse,
)

FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
"""Acknowledgements that must be durable before their response."""


class ShareLaws:
    """Laws of responses to members of share groups, and of their durable state.

    Records acquired from a former leader that has not been notified count only as delivered.
    """

    def __init__(self, shared: SharedTopics, batch_max: int) -> None:
        self._shared = shared
        shared.on_written, shared.on_emptied = self._written, self._emptied
        self._batch_max = batch_max
        self._ledgers: dict[SharePartitionKey, ShareLedger] = {}
        self._led: dict[SharePartitionKey, LedPartition | None] = {}  # to which the holders in a ledger belong

    def _ledger(self, key: SharePartitionKey) -> ShareLedger:
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers[key] = ShareLedger(self._shared.settings.delivery_count_limit)
        return ledger

    def _written(self, key: SharePartitionKey, batches: tuple[StateBatch, ...]) -> None:
        for first, last, *_ in batches:
            self._ledger(key).let_go(range(first, last + 1))

    def _emptied(self, key: SharePartitionKey) -> None:
        """Forget outcomes that the log has lost: these records are delivered again."""
        ledger = self._ledger(key)
        ledger.accepted.clear()
        ledger.archived.clear()

    def _current(self, node: CoordinatorNode, key: SharePartitionKey) -> LedPartition | None:
        """Return a share-partition at its leader, or None if the node is not the leader."""
        topic = self._shared.registry.get_by_id(key.topic_id)
        if topic is None or node.shares is None:
            return None
        leads = node.leads(self._shared.log_partition_of(topic, key.partition))
        return node.shares.requests.partitions.known(key) if leads else None

    # ------------------------------------------------------------ responses

    def on_answer(self, node: CoordinatorNode, request: Request, response: Response, now_ms: int) -> None:
        sent: Any = request
        if isinstance(sent, ShareFetch | ShareAcknowledge):
            self._shared.follow()
            assert isinstance(response, ShareFetchResponse | ShareAcknowledgeResponse)
            for key, kinds in _taken(sent, response):
                self._check_taken(node, key, kinds, now_ms + response.acquisition_lock_timeout_ms)
            if isinstance(response, ShareFetchResponse):
                for topic in response.responses:
                    for data in topic.partitions:
                        key = SharePartitionKey(sent.group_id or "", topic.topic_id, data.partition_index)
                        until_ms = now_ms + response.acquisition_lock_timeout_ms
                        self._check_acquired(node, key, sent.member_id or "", data.acquired_records, now_ms, until_ms)

    def _check_acquired(
        self,
        node: CoordinatorNode,
        key: SharePartitionKey,
        member_id: str,
        acquired: tuple[AcquiredRecords, ...],
        now_ms: int,
        until_ms: int,
    ) -> None:
        led, ledger = self._current(node, key), self._ledger(key)
        if led is None:
            ledger.delivered.update(offset for first, last, _ in acquired for offset in range(first, last + 1))
        elif acquired:
            if self._led.get(key) is not led:
                self._led[key] = led
                ledger.forget_holders()
            ledger.acquired(member_id, acquired, now_ms, until_ms)  # type: ignore[arg-type]

    def _check_taken(
        self, node: CoordinatorNode, key: SharePartitionKey, kinds: dict[int, AcknowledgeType], until_ms: int
    ) -> None:
        """Extend renewed locks; check that accepted or rejected records are finished in the log or below the start."""
        led, ledger = self._current(node, key), self._ledger(key)
        for offset, kind in kinds.items():
            if kind is AcknowledgeType.RENEW:
                if led is not None and led is self._led.get(key):
                    ledger.renewed((offset,), until_ms)
            elif kind in FINAL:
                is_durable = self._is_finished(key, offset)
                start_offset = -1 if node.shares is None else node.shares.start_offset(key)
                is_past = start_offset < 0 or offset < start_offset
                require(is_durable or is_past, f"{offset} of {key} counts as {kind.name}, but not in the log")
                if is_durable:
                    (ledger.accepted if kind is AcknowledgeType.ACCEPT else ledger.archived).add(offset)

    def _is_finished(self, key: SharePartitionKey, offset: int) -> bool:
        state = self._shared.follow().states.get(key)
        if state is None:
            return False
        batches = state.snapshot.state_batches
        return offset < state.snapshot.start_offset or any(
            first <= offset <= last and delivery_state in FINISHED for first, last, delivery_state, _ in batches
        )

    # ------------------------------------------------------------ costly laws

    def look_at(self, node: CoordinatorNode) -> None:
        """Check a node's share coordinator and share-partitions against the log and the responses."""
        shares = node.shares
        if shares is None:
            return
        shares.states.check()
        states = shares.states.partition(STATES)
        if states is not None and node.leads(STATES):
            check_states_are_the_log(states.hard, self._shared.state_log.memory.read(STATES))
        locks_max = self._shared.settings.partition_max_record_locks + self._batch_max
        for led in shares.requests.partitions.all():
            if led.records is not None and self._current(node, led.key) is led:
                check_share_partition(led.records, self._ledger(led.key), locks_max)

    def conclude(self) -> None:
        self._shared.follow()
        for key, end_offset in self._shared.worked_off.items():
            unfinished, ledger = self._shared.unfinished(key, end_offset), self._ledger(key)
            require(unfinished is None, f"{unfinished} of {key} is lost")
            for offset in range(end_offset if self._shared.registry.get_by_id(key.topic_id) else 0):
                require(offset in ledger.delivered, f"{offset} of {key} was never delivered")


def _taken(
    request: ShareFetch | ShareAcknowledge, response: ShareFetchResponse | ShareAcknowledgeResponse
) -> Iterator[tuple[SharePartitionKey, dict[int, AcknowledgeType]]]:
    results: dict[tuple[object, int], ErrorCode] = {}
    for topic in response.responses:
        for result in topic.partitions:
            code = getattr(result, "acknowledge_error_code", result.error_code)
            results[topic.topic_id, result.partition_index] = code
    for sent in request.topics:
        for index, batches in sent.partitions:
            if batches and results.get((sent.topic_id, index)) is ErrorCode.NONE:
                kinds = {
                    first + place: AcknowledgeType(types[0] if len(types) == 1 else types[place])
                    for first, last, types in batches
                    for place in range(last - first + 1)
                }
                yield SharePartitionKey(request.group_id or "", sent.topic_id, index), kinds
