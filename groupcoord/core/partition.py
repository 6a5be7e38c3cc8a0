"""One log partition: its groups and offsets, what requests, timers and the log do to them, and its life cycle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from attrs import evolve, frozen

from groupcoord.config import Config
from groupcoord.core.administration import Administration
from groupcoord.core.append_errors import for_client, refused
from groupcoord.core.append_timeouts import AppendTimeouts
from groupcoord.core.classic.continuations import WhenAssigned, WhenCreated, WhenEmptied, WhenReplaced
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.classic.membership import Membership
from groupcoord.core.classic.rebalance import CAN_REBALANCE, Rebalance
from groupcoord.core.classic.static_members import StaticMembers
from groupcoord.core.consumer.classic_requests import ClassicRequests
from groupcoord.core.consumer.conversion import WhenConverted
from groupcoord.core.consumer.group import ConsumerGroup
from groupcoord.core.consumer.member_timers import MemberTimers
from groupcoord.core.consumer.membership import ConsumerMembership, WhenDrafted
from groupcoord.core.consumer.rules import Rules
from groupcoord.core.context import HandlerContext
from groupcoord.core.creation import Creation
from groupcoord.core.effects import Append, Continuation, Effects
from groupcoord.core.events import Cause, Trigger
from groupcoord.core.groups import AnyGroup, Group
from groupcoord.core.hard_state import HardState
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    SyncGroup,
    TopicToCommit,
    TxnOffsetCommit,
)
from groupcoord.core.messages.request import GroupRequest
from groupcoord.core.observer import Observer
from groupcoord.core.offsets.commits import Commits
from groupcoord.core.offsets.continuations import WhenCommitted, WhenDeleted, WhenWritten
from groupcoord.core.offsets.retention import Retention
from groupcoord.core.questions import ResolvedRegexes
from groupcoord.core.records import CommitRecords, Record
from groupcoord.core.replies import Token, Waiting
from groupcoord.core.timers import Timer, TimerKey, TimerKind, TimerQueue
from groupcoord.errors import ErrorCode, InvariantError


def _nothing(written: Continuation, *_: object) -> None:
    """Nothing follows."""


@frozen
class Outcome:
    """What follows an append besides the answers that it holds, as the log decides.

    Attributes:
        durable: its records are in the log.
        refused: they are not, and never will be; the error is what clients see.
        overdue: nobody waits longer (``offsets.commit.timeout.ms``). Durable or refused is still to come.
    """

    durable: Callable[[Any, int], None] = _nothing
    refused: Callable[[Any, ErrorCode, int], None] = _nothing
    overdue: Callable[[Any, ErrorCode, int], None] = _nothing


class Partition:
    """The coordinator of the groups of one log partition.

    Inputs are method calls that carry the time; outputs land in the ``effects`` given at construction. Load it
    once, before anything else. No closures or handles live inside: ``copy.deepcopy`` of the whole (with its effects
    and timers) is a full snapshot.

    Attributes:
        index: the number of the log partition.
        administration: lists, describes and deletes its groups.
        append_timeouts: is told of each append that the log store answers later.
        commits: offsets and transactions.
        journal: the way to the log, and what the log says.
        retention: expiry, and what follows when topics are deleted.
        beat_again: answers heartbeats of the consumer protocol that change nothing; see
            :meth:`.ConsumerMembership.beat_again`.
    """

    def __init__(
        self,
        index: int,
        *,
        config: Config,
        effects: Effects,
        timers: TimerQueue,
        observer: Observer,
        new_member_id: Callable[[str], str],
        new_uuid: Callable[[], str],
        rules: Rules,
        first_append: int = 0,
    ) -> None:
        self.index = index
        self._context = HandlerContext(
            index,
            config=config,
            effects=effects,
            timers=timers,
            observer=observer,
            new_member_id=new_member_id,
            new_uuid=new_uuid,
            first_append=first_append,
        )
        self._effects = effects
        self.journal = self._context.journal
        self._writings = self._context.writings
        self._rebalance = Rebalance(self._context)
        self._static_members = StaticMembers(self._context, self._rebalance)
        self.administration = Administration(self._context)
        self.retention = Retention(self._context, self.administration)
        self._creation = Creation(self._context, self.retention)
        self._membership = Membership(self._context, self._creation, self._rebalance, self._static_members)
        member_timers = MemberTimers(timers, rules)
        self._consumer_membership = ConsumerMembership(
            self._context, self._creation, rules, member_timers, self._membership, self._rebalance, self.handle
        )
        self.beat_again = self._consumer_membership.beat_again
        self._classic_requests = ClassicRequests(self._context, rules, member_timers)
        self.commits = Commits(self._context, self._creation)
        self.append_timeouts = AppendTimeouts(self._context)
        self._handlers = self._handlers_by_request()
        self._consumer_handlers = self._handlers_in_consumer_groups()
        self._timer_handlers = self._handlers_by_timer()
        self._outcomes = self._outcomes_by_continuation()

    def _handlers_by_request(self) -> dict[type, Callable[[Any, Token, int], None]]:
        """Return who takes each request."""
        return {
            JoinGroup: self._membership.join,
            SyncGroup: self._membership.sync,
            Heartbeat: self._membership.heartbeat,
            LeaveGroup: self._membership.leave,
            ConsumerGroupHeartbeat: self._consumer_membership.heartbeat,
            OffsetCommit: self.commits.commit,
            TxnOffsetCommit: self.commits.commit_transactional,
            OffsetDelete: self.commits.delete,
        }

    def _handlers_in_consumer_groups(self) -> dict[type, Callable[[Any, Token, int], None]]:
        """Return who takes requests of the classic protocol that are for a consumer group."""
        return {
            JoinGroup: self._consumer_membership.join,
            SyncGroup: self._classic_requests.sync,
            Heartbeat: self._classic_requests.heartbeat,
            LeaveGroup: self._consumer_membership.leave,
        }

    def _handlers_by_timer(self) -> dict[TimerKind, Callable[[TimerKey, int], None]]:
        """Return who goes on when a timer fires."""
        return {
            TimerKind.SESSION: self._rebalance.on_session_timer,
            TimerKind.JOIN: self._rebalance.on_join_timer,
            TimerKind.SYNC: self._rebalance.on_sync_timer,
            TimerKind.CONSUMER_SESSION: self._consumer_membership.on_timer,
            TimerKind.REVOCATION: self._consumer_membership.on_timer,
            TimerKind.MEMBER_JOIN: self._consumer_membership.on_timer,
            TimerKind.MEMBER_SYNC: self._consumer_membership.on_timer,
            TimerKind.APPEND: self._on_append_timer,
            TimerKind.EXPIRY: self.retention.on_timer,
        }

    def _outcomes_by_continuation(self) -> dict[type[Continuation], Outcome]:
        """Return what follows each kind of append."""
        return {
            WhenCommitted: Outcome(self.commits.on_durable),
            WhenWritten: Outcome(self.commits.on_written),
            WhenDeleted: Outcome(self._on_deleted, self._on_deletion_failed),
            WhenCreated: Outcome(),
            WhenEmptied: Outcome(),
            WhenAssigned: Outcome(
                self._rebalance.assign, self._rebalance.fail_assignment, overdue=self._rebalance.fail_assignment
            ),
            WhenConverted: Outcome(self._on_converted, self._on_conversion_failed),
            WhenDrafted: Outcome(
                self._consumer_membership.on_durable,
                self._consumer_membership.on_failure,
                self._consumer_membership.on_overdue,
            ),
            WhenReplaced: Outcome(
                self._static_members.on_durable,
                self._static_members.on_failure,
                overdue=self._static_members.on_failure,
            ),
        }

    # ------------------------------------------------------------ requests

    def handle(self, request: GroupRequest, token: Token, now_ms: int) -> None:
        """Take a request that concerns one group."""
        kind = type(request)
        handler = self._handlers[kind]
        if self._writings and request.group_id in self._writings:
            self._writings[request.group_id].waiting.append(Waiting(request, token))
            return
        if self._context.has_consumer_groups and kind in self._consumer_handlers:
            group = self._context.groups.get(request.group_id or "")
            if type(group) is ConsumerGroup:
                handler = self._consumer_handlers[kind]
        handler(request, token, now_ms)

    def commit(self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], token: Token, now_ms: int) -> None:
        """Take a commit of these topics in place of its own: they were looked up, and none of them is refused."""
        if self._writings and request.group_id in self._writings:
            self.handle(evolve(request, topics=topics), token, now_ms)
        else:
            self.commits.commit_topics(request, topics, token, now_ms)

    def regexes_resolved(self, resolved: ResolvedRegexes, now_ms: int) -> None:
        """The host has matched regular expressions against the topics."""
        self._consumer_membership.regexes_resolved(resolved, now_ms)

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics came, grew or went."""
        self._consumer_membership.topics_changed(names)

    def begin_rebalance(self, group_id: str, now_ms: int) -> bool:
        """Let a group rebalance though nothing has happened to it: for those who test what its members do then.

        A classic group collects joins, as when its leader joins again; a consumer group begins a new epoch.

        Returns:
            False if there is no such group, nobody is in it, it rebalances already, or a write of it is in flight.
        """
        if group_id in self._writings:
            return False
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumer_membership.begin_epoch(group, now_ms)
        if group is None or group.is_empty or group.state not in CAN_REBALANCE:
            return False
        self._rebalance.start(group, Trigger(Cause.LEADER_REJOIN), now_ms)
        return True

    # ------------------------------------------------------------ time

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        """A timer of this partition is due."""
        if key.group_id in self._writings:
            self._writings[key.group_id].overdue.append(key)
            return
        self._timer_handlers[key.kind](key, now_ms)

    # ------------------------------------------------------------ the log's answers

    def appended(self, number: int, base_offset: int, now_ms: int) -> None:
        """The appends up to ``number`` are durable; the first record of ``number`` lies at ``base_offset``.

        Raises:
            StoreContractError: the log store broke its contract.
        """
        for append in self.journal.acknowledge(number, base_offset):
            self._effects.replies += append.held
            written = append.continuation
            self._outcomes[type(written)].durable(written, now_ms)

    def append_failed(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """The append ``number`` was refused, with Kafka's code for the reason.

        Raises:
            StoreContractError: it isn't the oldest append in flight.
        """
        append = self.journal.fail(number)
        if append is not None:
            self._creation.undo(number, for_client(error_code), now_ms)
            self._refuse_held(append, error_code)
            written = append.continuation
            self._outcomes[type(written)].refused(written, for_client(error_code), now_ms)
            self.retention.wake(now_ms)

    def _on_append_timer(self, key: TimerKey, now_ms: int) -> None:
        for append in self.append_timeouts.take_overdue(now_ms):
            self._stop_waiting(append, now_ms)

    def _stop_waiting(self, append: Append, now_ms: int) -> None:
        """Tell whoever waits for an append that it takes too long.

        Its records may still come to the log, and then they count; only the answer has been given.
        """
        self._refuse_held(append, ErrorCode.REQUEST_TIMED_OUT)
        written = append.continuation
        self._outcomes[type(written)].overdue(written, for_client(ErrorCode.REQUEST_TIMED_OUT), now_ms)

    def _refuse_held(self, append: Append, append_error: ErrorCode) -> None:
        self._effects.replies += [refused(reply, append_error) for reply in append.held]
        append.held.clear()

    def _on_deleted(self, written: WhenDeleted, now_ms: int) -> None:
        self.administration.on_durable(written, now_ms)
        self._end_writings(written.groups, now_ms)

    def _on_deletion_failed(self, written: WhenDeleted, error_code: ErrorCode, now_ms: int) -> None:
        self.administration.on_failure(written, now_ms)
        self._go_on_as_before(written.groups, now_ms)

    def _on_converted(self, written: WhenConverted, now_ms: int) -> None:
        self._consumer_membership.on_converted(written, now_ms)
        self._end_writings((written.group,), now_ms)

    def _on_conversion_failed(self, written: WhenConverted, error_code: ErrorCode, now_ms: int) -> None:
        self._consumer_membership.on_conversion_failed(written, error_code, now_ms)
        self._go_on_as_before((written.group,), now_ms)

    def _go_on_as_before(self, groups: Collection[Group], now_ms: int) -> None:
        """Groups stay as they were; timers that have fired meanwhile do so now."""
        overdue = [key for group in groups for key in self._writings[group.group_id].overdue]
        for group in groups:
            self._writings[group.group_id].overdue.clear()
        self._end_writings(groups, now_ms)
        for key in overdue:
            if key.group_id in self._context.groups:
                self.on_timer(key, now_ms)

    def _end_writings(self, groups: Iterable[Group], now_ms: int) -> None:
        """The log has answered what the requests of these groups waited for."""
        ended = [self._writings.pop(group.group_id) for group in groups]
        for request, token in [entry for writing in ended for entry in writing.waiting]:
            self.handle(request, token, now_ms)

    # ------------------------------------------------------------ life cycle

    def replay(self, log_offset: int, record: Record | CommitRecords) -> None:
        """Take over one record of the log, or those of a commit that lie there from ``log_offset`` on.

        They come in order, all of them before :meth:`loaded`.

        Raises:
            StoreContractError: the offset does not grow.
        """
        self.journal.load(record, log_offset)

    def loaded(self, now_ms: int) -> None:
        """The log was replayed: bring the groups to life and start the clocks."""
        hard = self.journal.hard
        for group_id in hard.groups:
            if hard.has_consumer_group(group_id):
                self._consumer_membership.load(group_id, now_ms)
            else:
                self._membership.load(group_id, now_ms)
        self.retention.start(now_ms)

    def take_waiting(self) -> list[Waiting]:
        """Return the requests that wait for a write of their group; they are not handled any more."""
        waiting = [entry for writing in self._writings.values() for entry in writing.waiting]
        for writing in self._writings.values():
            writing.waiting.clear()
            writing.overdue.clear()
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                waiting += group.take_waiting()
        return waiting

    def unload(self, now_ms: int, error_code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Stop coordinating: appends in flight fail with ``error_code``, then what waits is told NOT_COORDINATOR.

        Requests that wait for a write of their group are to be taken before.
        """
        for entry in list(self.journal.in_flight):
            self.append_failed(entry.number, error_code, now_ms)
        for group in self._context.groups.values():
            self._context.disarm(group)
            if isinstance(group, GroupMetadata):
                self._context.refuse_waiting(group, ErrorCode.NOT_COORDINATOR)
            group.end(now_ms)
            self._context.observer.group_removed(group, Cause.UNLOAD, now_ms)
        self._context.groups.clear()
        self._context.timers.cancel(self.retention.timer)
        self._context.timers.cancel(self.append_timeouts.timer)

    # ------------------------------------------------------------ looking inside

    @property
    def groups(self) -> dict[str, AnyGroup]:
        """The groups that requests meet, by id. For observers and tests: change nothing."""
        return self._context.groups

    @property
    def hard(self) -> HardState:
        """What a restart would know. For observers and tests: change nothing."""
        return self.journal.hard

    def offset_count(self) -> int:
        """Return how many offsets are committed."""
        committed = self.journal.hard.offsets.committed
        return sum(len(partitions) for topics in committed.values() for partitions in topics.values())

    def snapshot(self) -> Iterator[tuple[int, Record]]:
        """Return the fewest records that rebuild hard state, with their log offsets: what compaction would leave."""
        hard = self.journal.hard
        found: list[tuple[int, Record]] = list(hard.group_records())
        for topics in hard.offsets.committed_records().values():
            found += [entry for partitions in topics.values() for entry in partitions.values()]
        for keys in hard.offsets.transactions.values():
            found += keys.values()
        return iter(sorted(found, key=lambda entry: entry[0]))

    def parked_tokens(self) -> list[Token]:
        """Return the token of every request that waits here, for joins, syncs and the log."""
        tokens = [token for group in self._context.groups.values() for token in group.parked_tokens()]
        tokens += [reply.token for append in self.journal.in_flight for reply in append.held]
        tokens += [entry.token for writing in self._writings.values() for entry in writing.waiting]
        conversions = [e.continuation for e in self.journal.in_flight if isinstance(e.continuation, WhenConverted)]
        tokens += [conversion.joiner.token for conversion in conversions if conversion.joiner is not None]
        return tokens

    def check(self, armed: Iterable[Timer]) -> None:
        """Prove the invariants of everything inside.

        Args:
            armed: the timers of this log partition that are armed.

        Raises:
            InvariantError: one does not hold.
        """
        self.journal.check()
        owned: set[int] = {id(self.retention.timer), id(self.append_timeouts.timer)}
        for group_id, group in self._context.groups.items():
            if group_id != group.group_id:
                raise InvariantError(f"group {group.group_id!r} is kept under {group_id!r}")
            group.check()
            self._check_seen(group)
            group.check_durable(self.journal.hard.groups.get(group_id))
            owned.update(id(timer) for timer in group.timers())
        for writing in self._writings.values():
            owned.update(id(timer) for timer in writing.group.timers())
        if self.retention.timer.deadline_ms is None and self._context.groups:
            raise InvariantError("there are groups, but no sweep will come")
        for timer in armed:
            if id(timer) not in owned:
                raise InvariantError(f"{timer!r} has no owner")
        forgotten = self.journal.hard.groups.keys() - self._context.groups.keys() - self._writings.keys()
        if forgotten:
            raise InvariantError(f"the log has groups that memory lacks: {forgotten}")

    def _check_seen(self, group: Group) -> None:
        is_seen = self._context.is_seen(group)
        if is_seen == (group in self.journal.unseen.get(group.first_append, ())):
            raise InvariantError(f"{group!r} is seen and waits to be, or neither")
        if group.group_id in self.journal.hard.groups and not is_seen:
            raise InvariantError(f"{group!r} is not seen, but the log has it")
