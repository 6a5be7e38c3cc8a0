"""Actions of the random tests in addition to those of the published machine. An action picks its subject by number;
without subjects it does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from attrs import evolve

from groupcoord import ErrorCode, LoadError, PartitionStatus
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.laws import error_codes
from groupcoord.log_store import (
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
)
from groupcoord.messages import (
    CoordinatorType,
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    GroupToFetch,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
    TopicToDelete,
    TopicToFetch,
    TxnOffsetCommit,
)
from groupcoord.testing.machine.consumers import (
    PARTITIONS,
    REBALANCE_TIMEOUT_MS,
    ClassicConsumer,
    Consumer,
    subscription,
)
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.machine.state_machine import CONSUMERS_MAX, PROTOCOLS
from groupcoord.testing.machine.world import LOG_PARTITIONS
from tests.laws.full_world import CLERK, ELSEWHERE, GROUPS, HERE, NOBODY, PRODUCER, UNREADABLE, WORKERS, FullWorld
from tests.laws.refusals import expected_refusal, is_allowed, requests_of_every_kind, requests_that_are_wrong

T = TypeVar("T")

KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"asks_for_id": False, "skips_assignment": False, "metadata": subscription("orders", "audit")},
    {"skips_assignment": False, "metadata": subscription("audit"), "rebalance_timeout_ms": 120_000},
    {"metadata": subscription(), "rebalance_timeout_ms": 6_000},
    {"metadata": UNREADABLE[0]},
    {"metadata": UNREADABLE[1]},
)
"""How consumers can differ: the version of their requests, their patience, and what they say of themselves."""

ERRORS: tuple[type[LogStoreError], ...] = (NotEnoughReplicasError, NotLeaderError, RecordTooLargeError, StorageError)
GROUP_STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")


def picked(candidates: Sequence[T], which: int) -> T | None:
    return candidates[which % len(candidates)] if candidates else None


class MemberActions(FullWorld):
    """Actions of members, and of clients that try to be members."""

    def a_consumer_of_some_kind_starts(
        self, group_id: str, instance_id: str | None, protocols: tuple[str, ...], kind: int
    ) -> Consumer:
        """A new consumer is there; with an instance id it takes the place of the one that has it."""
        if len(self.fleet.consumers) > CONSUMERS_MAX:
            return self.fleet.consumers[-1]
        protocol_type = "connect" if group_id == WORKERS else "consumer"
        name = f"c{len(self.fleet.consumers)}"
        consumer = ClassicConsumer(name, group_id, instance_id, protocols, protocol_type, **KINDS[kind])
        return self.start_consumer(consumer)

    def a_group_comes_to_be(self, group_id: str, instances: tuple[str | None, ...], kind: int) -> None:
        """Consumers start together and go on until all have their share, if nothing is in the way."""
        for instance in instances:
            self.a_consumer_of_some_kind_starts(group_id, instance, PROTOCOLS[0], kind)
        self.write_all()
        self.live_on(6, 1_000)

    def a_consumer_commits(self, who: int, by_id: bool) -> None:
        consumer = picked([consumer for consumer in self.fleet.ready() if consumer.member_id], who)
        if consumer is not None:
            self.submit(consumer.commit_request(self.offsets_of(consumer, by_id=by_id)), consumer)

    def offsets_of(self, consumer: Consumer, *, by_id: bool = False) -> tuple[TopicToCommit, ...]:
        """Return offsets for what a consumer owns (for partition 0, if it owns nothing), of both topics."""
        if isinstance(consumer, Kip848Consumer):
            return consumer.offsets() or self.offsets("orders", 0, by_id=by_id)
        return self.offsets("orders", *sorted(consumer.owned or {0}), by_id=by_id) + self.offsets("audit", 0)

    def offsets(self, name: str, *indexes: int, by_id: bool = False, metadata: str = "") -> tuple[TopicToCommit, ...]:
        """Return new offsets for partitions of a topic, which is named, or identified if there is such a topic."""
        topic_id = (self.topics.topic_id(name) if by_id else None) or ZERO_UUID
        offsets = tuple(OffsetToCommit(index, self.new_offset(), 3, metadata) for index in indexes)
        return (TopicToCommit(name if topic_id == ZERO_UUID else None, offsets, topic_id),)

    def a_consumer_joins_again(self, who: int, changes: bool) -> None:
        """Rejoin a consumer: a leader with changed topics, or a member with a changed subscription."""
        ready = [c for c in self.fleet.ready("stable", "syncing") if isinstance(c, ClassicConsumer)]
        consumer = picked(ready, who)
        if consumer is not None:
            if changes and consumer.instance_id is None:
                consumer.protocols = tuple(reversed(consumer.protocols))
                consumer.metadata = subscription("orders", "audit")
            consumer.rejoin()
            self.submit(consumer.next_request(), consumer)

    def a_static_consumer_returns(self, who: int, skips: bool) -> None:
        """A static consumer ends without a word and is back without its member id, in another version perhaps."""
        consumer = picked([c for c in self.fleet.consumers if c.is_alive and c.instance_id and c.member_id], who)
        if isinstance(consumer, ClassicConsumer):
            self.restart_static(consumer, skips_assignment=skips)
        elif consumer is not None:
            self.restart_static(consumer)

    def several_are_removed(self, group_id: str, by_instance: bool, count: int) -> None:
        """Remove members in one request of an administrator, some of them unknown."""
        chosen = [a for a in self.fleet.consumers if a.group_id == group_id and a.member_id][:count]
        entries = [
            LeavingMember("" if by_instance and a.instance_id else a.member_id, a.instance_id, "removed")
            for a in chosen
        ]
        self.submit(LeaveGroup(group_id, (*entries, LeavingMember("nobody"), LeavingMember("", "no-such-instance"))))

    def a_ghost_speaks(self, who: int, kind: str) -> None:
        """Let a removed or replaced consumer continue for a moment."""
        ghost = picked([a for a in self.fleet.consumers if not a.is_alive and a.member_id], who)
        if ghost is None:
            return
        match kind:
            case "commit":
                self.submit(ghost.commit_request(self.offsets_of(ghost)))
            case "leave":
                self.submit(ghost.leave_request())
            case _:
                self.submit(evolve(ghost, phase=kind).next_request())

    def a_stranger_joins(self, group_id: str, asks_for_id: bool, protocols: tuple[str, ...], *, misfit: bool) -> None:
        """Join a client that sends no second request: with unshared protocols or type, or none."""
        protocol_type = "other" if misfit else "connect" if group_id == WORKERS else "consumer"
        joins = tuple(JoinProtocol(name, b"") for name in protocols)
        self.submit(
            JoinGroup(
                group_id, "", protocol_type, joins, 10_000, REBALANCE_TIMEOUT_MS, requires_known_member_id=asks_for_id
            )
        )

    def a_consumer_commits_in_a_transaction(self, who: int, producer_id: int) -> None:
        """A consumer that also produces commits what it read in its transaction (KIP-447)."""
        consumer = picked([a for a in self.fleet.consumers if a.member_id], who)
        if consumer is not None:
            self.submit(
                TxnOffsetCommit(
                    consumer.group_id,
                    self.offsets_of(consumer),
                    producer_id,
                    0,
                    "tx",
                    consumer.generation_id,
                    consumer.member_id,
                    consumer.instance_id,
                )
            )


class OutsiderActions(MemberActions):
    """Actions of administrators, producers and other clients that are no members."""

    def somebody_commits_in_a_peculiar_way(self, group_id: str, by_id: bool, size: int, retention_ms: int) -> None:
        """Commit with metadata, perhaps too long, a retention of its own, and missing partitions."""
        topics = self.offsets("orders", 0, 1, metadata="é" * size)
        topics += self.offsets("audit", 0, 5, by_id=by_id) + self.offsets("nowhere", 0)
        topics += tuple(TopicToCommit(None, (OffsetToCommit(0, 0),), gone) for gone in self.topics.gone[-1:])
        self.submit(OffsetCommit(group_id, topics, retention_time_ms=retention_ms))

    def a_clerk_deals_with_offsets(self, group_id: str) -> None:
        """Requests with DESCRIBE on one topic are refused for the others, and served for that one."""
        self.submit_as(CLERK, OffsetCommit(group_id, self.offsets("orders", 0) + self.offsets("audit", 1)))
        topics = self.offsets("orders", 0) + self.offsets("audit", 1)
        self.submit_as(CLERK, TxnOffsetCommit(group_id, topics, 7, 0))
        doomed = (TopicToDelete("audit", (0,)), TopicToDelete("orders", (0, 9)), TopicToDelete("nowhere", (0,)))
        self.submit_as(CLERK, OffsetDelete(group_id, doomed))
        index = self.coordinator.partition_of(group_id)
        if self.coordinator.partition(index) is not None:
            everything = self.coordinator.call(OffsetFetch((GroupToFetch(group_id),)), CLERK).groups[0]
            assert {topic.name for topic in everything.topics} <= {"orders"}
            wanted = GroupToFetch(group_id, (TopicToFetch("audit", (0,)), TopicToFetch("orders", (0,))))
            named = self.coordinator.call(OffsetFetch((wanted,)), CLERK).groups[0]
            codes = {topic.name: topic.partitions[0].error_code for topic in named.topics}
            assert codes == {"audit": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders": ErrorCode.NONE}

    def somebody_deletes(self, group_ids: list[str]) -> None:
        """An administrator deletes groups, over several log partitions."""
        self.submit(DeleteGroups((*group_ids, "gamma", group_ids[0])))

    def somebody_deletes_offsets(self, group_id: str, indexes: set[int]) -> None:
        doomed = (TopicToDelete("orders", tuple(sorted(indexes))), TopicToDelete("audit", (0, 1)))
        self.submit(OffsetDelete(group_id, doomed))

    def a_topic_is_deleted(self, name: str) -> None:
        """Delete a topic, or create it again."""
        if self.topics.topic_id(name) is None:
            self.create_topic(name, {"orders": PARTITIONS, "audit": 2}[name])
        else:
            self.delete_topic(name)

    def somebody_without_permission_asks(self, group_id: str, member_id: str) -> None:
        """Every request of a principal without permissions is refused at once, in any state of the group."""
        for request in requests_of_every_kind(group_id, member_id):
            assert not is_allowed(self.coordinator.call(request, NOBODY))
        commit = TxnOffsetCommit(group_id, self.offsets("orders", 0), 7, 0, "tx")
        assert set(error_codes(self.coordinator.call(commit, PRODUCER))) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
        described = self.coordinator.call(DescribeGroups((group_id,), include_authorized_operations=True), CLERK)
        assert bin(described.groups[0].authorized_operations % 2**32).count("1") in (1, 5)

    def somebody_errs(self) -> None:
        """Errors of a request precede those of the group and its log partition."""
        for request, error_code in requests_that_are_wrong():
            assert set(error_codes(self.coordinator.call(request))) == {error_code}

    def somebody_asks_where_nobody_serves(self, group_id: str) -> None:
        """Every request for a log partition that isn't served here is refused at once, for the right reason."""
        status = self.coordinator.status(self.coordinator.partition_of(group_id))
        if status is not PartitionStatus.ACTIVE:
            for request in requests_of_every_kind(group_id, "nobody"):
                expected = expected_refusal(request, status, PartitionStatus.LOADING in self.all_statuses())
                if expected is not None:
                    assert set(error_codes(self.coordinator.call(request))) == {expected}

    def all_statuses(self) -> list[PartitionStatus]:
        return [self.coordinator.status(index) for index in range(LOG_PARTITIONS)]

    def an_observer_looks(self, group_id: str) -> None:
        """Describing, listing, finding and fetching are answered in every state, agree, and change nothing."""
        call = self.coordinator.call
        described = call(DescribeGroups((group_id, None), include_authorized_operations=True))
        assert [group.group_id for group in described.groups] == [group_id, ""]
        key = "g:AAAAAAAAAAAAAAAAAAAAAA:0"
        for kind, keys in [(CoordinatorType.SHARE, (key, "g:t:0")), (99, (key,)), (CoordinatorType.TRANSACTION, ("",))]:
            assert len(call(FindCoordinator(kind, keys)).coordinators) == len(keys)
        found = call(FindCoordinator(CoordinatorType.GROUP, (group_id,))).coordinators[0]
        expected = self.owner(self.coordinator.partition_of(group_id))
        assert (found.error_code is ErrorCode.NONE) == (expected is not None)
        assert expected in (None, found.node)
        assert found.node in (HERE, ELSEWHERE) or expected is None
        if PartitionStatus.LOADING not in self.all_statuses():
            by_type = {
                name: call(ListGroups((), (name,))).groups for name in ("Consumer", "classic", "SHARE", "streams")
            }
            assert all(group.group_type == name.lower() for name, groups in by_type.items() for group in groups)
            assert sorted(call(ListGroups()).groups) == sorted(group for groups in by_type.values() for group in groups)
            listed = {group.group_id: group.group_state for group in by_type["classic"] + by_type["SHARE"]}
            for state in GROUP_STATES:
                named = call(ListGroups((f" {state.upper()}",), ("Classic", "share"))).groups
                assert {g.group_id for g in named} == {key for key, value in listed.items() if value == state}
        named = (TopicToFetch("orders", (0, 9)), TopicToFetch(None, (0,), self.topics.ids.get("orders", ZERO_UUID)))
        for topics in (None, named):
            fetched = call(OffsetFetch((GroupToFetch(group_id, topics),), require_stable=True, uses_topic_ids=True))
            for topic in fetched.groups[0].topics:
                for partition in topic.partitions:
                    assert partition.error_code is ErrorCode.NONE or partition.committed_offset == -1


class Actions(OutsiderActions):
    """Time, the log and the process."""

    def the_log_refuses(self, error: type[LogStoreError], count: int | None) -> None:
        """The log refuses the oldest appends that wait (``count`` None: all), or the next one."""
        if not self.store.waiting():
            self.store.fail_next(error("injected"))
        self.refuse(error("injected"), count)

    def an_answer_is_lost(self) -> None:
        """The log writes the next append, and the coordinator never learns of it: its log partition is given up."""
        if not self.store.waiting():
            self.store.lose_next_answer()

    def another_writer_leaves_a_gap(self, partition: int, count: int) -> None:
        """Offsets of the log are not without gaps."""
        if not self.store.waiting():
            self.memory_log.skip_offsets(partition, count)

    def the_process_restarts(self, written: int, max_size: int, loads: bool, breaks_after: int | None) -> None:
        """Kill and restart the process, perhaps with another ``group.max.size``; pending requests get no response. Of
        the pending appends, a part is ``written``. Then the log is loaded, or is found broken, or not loaded yet.
        """
        self.config = evolve(self.config, group_max_size=max_size)
        self.kill(written)
        self.somebody_is_too_early()
        if loads:
            if breaks_after is not None:
                self.store.break_next_read(breaks_after)
            with suppress(LoadError):
                self.coordinator.load_all()
            self.store.mend()
            self.deliver()

    def somebody_is_too_early(self) -> None:
        """Before anything is loaded, no group is served, and none is listed."""
        self.somebody_asks_where_nobody_serves(GROUPS[0])
        assert self.coordinator.call(ListGroups()) == ListGroupsResponse(ErrorCode.NONE)

    def a_partition_moves_away(self, partition: int, is_late: bool) -> None:
        """Move a log partition to another node, by a present or an outdated election."""
        self.leader_epoch += not is_late
        self.coordinator.unload(partition, self.leader_epoch - is_late)
        self.deliver()

    def a_partition_moves_here(self, partition: int, is_late: bool, records_at_once: int | None) -> None:
        """This node becomes the coordinator of a log partition; it may load it bit by bit."""
        if self.coordinator.partition(partition) is None:
            self._forget_waiting(partition)
        self.leader_epoch += not is_late
        if self.coordinator.begin_load(partition, self.leader_epoch - is_late):
            self.coordinator.continue_load(partition, records_at_once)
        self.deliver()

    def _forget_waiting(self, partition: int) -> None:
        """Write or lose the pending appends of a partition's former leader before the next one reads."""
        for ticket in self.store.waiting():
            if ticket.partition == partition:
                error = None if self.random.random() < 0.5 else StorageError("injected")
                self.pass_on([self.store.settle(ticket, error)])

    def a_load_goes_on(self, partition: int, records_at_once: int | None) -> None:
        """A load under way reads on."""
        self.coordinator.continue_load(partition, records_at_once)
        self.deliver()

    def a_load_fails(self, partition: int, breaks_after: int) -> None:
        """The log of a partition that moves here can't be read to its end: it is refused until it is loaded again."""
        if self.coordinator.partition(partition) is None:
            self._forget_waiting(partition)
            self.leader_epoch += 1
            self.store.break_next_read(breaks_after)
            if self.coordinator.begin_load(partition, self.leader_epoch):
                with pytest.raises(LoadError):
                    self.coordinator.continue_load(partition)
                assert self.coordinator.status(partition) is PartitionStatus.FAILED
            self.store.mend()
            self.deliver()
