"""Log partition: dispatch of requests, timers and the log's answers to groups and offsets, and its life cycle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from uuid import UUID

from groupcoord.core.administration import Administration
from groupcoord.core.events import Cause
from groupcoord.core.groups.group import Group
from groupcoord.core.groups.group_types import Environments, GroupKinds
from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.host_queries import Found
from groupcoord.core.log.log_partition import HardState, LogPartition, PartitionWriter
from groupcoord.core.log.records import Record
from groupcoord.core.messages import OffsetCommit, OffsetDelete, Token, TxnOffsetCommit, Waiting
from groupcoord.core.messages.request import GroupRequest
from groupcoord.core.offsets.commits import Commits
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from groupcoord.errors import ErrorCode, InvariantError


class Partition(LogPartition):
    """Coordinator of the groups of one log partition.

    Inputs are method calls with the time; outputs go to the ``effects``. Load it once, before anything else. It holds
    no closures or handles, so ``copy.deepcopy`` with effects and timers is a snapshot.

    Attributes:
        repeaters: class of a heartbeat → :meth:`.GroupKind.repeat_heartbeat`.
        describers: class of a request that describes groups → :meth:`.GroupKind.describe`.
    """

    NOT_STATE = ("_writings", "index")  # "_writings": the context's

    writer: PartitionWriter
    _context: HandlerContext

    def __init__(self, context: HandlerContext, environments: Environments) -> None:
        self.index = context.partition
        self._context = context
        context.handle, context.on_timer = self.handle, self.on_timer
        self._effects = context.effects
        self.writer = context.writer
        self._writings = context.writings
        self.administration = Administration(self._context)
        self._kinds = kinds = GroupKinds(self._context, environments)
        self.commits = Commits(self._context, kinds.create_for_commit)
        # Commits and deletions of offsets are the same for every type of group.
        self._handlers: dict[type, Handler] = {
            OffsetCommit: self.commits.commit,
            TxnOffsetCommit: self.commits.commit_transactional,
            OffsetDelete: self.commits.delete,
        }
        self._timer_handlers: dict[TimerKind, Callable[[TimerKey, int], None]] = {
            TimerKind.APPEND: self.on_append_timer,
            TimerKind.EXPIRY: self.administration.on_expiry_timer,
        }
        self._guest_handlers: dict[type, Mapping[type, Handler]] = {}
        # A guest handler replaces the protocol's own one for groups of its type.
        for kind in kinds.rows:
            if kind.guest_handlers:
                self._guest_handlers[kind.group_class] = kind.guest_handlers
            self._handlers.update(kind.handlers)
        self.repeaters = {kind.heartbeat_request: kind.repeat_heartbeat for kind in kinds.rows}
        self.describers = {kind.describe_request: kind.describe for kind in kinds.rows}
        self._answers = {kind.answer_class: kind.found_out for kind in kinds.rows}

    # ------------------------------------------------------------ requests

    def handle(self, request: GroupRequest, token: Token, now_ms: int) -> None:
        kind = type(request)
        handler = self._handlers[kind]
        # The existence and the type of the group depend on the write in flight.
        if self._writings and request.group_id in self._writings:
            self._writings[request.group_id].waiting.append(Waiting(request, token))
            return
        # Without a modern group the lookup of guests is skipped.
        if self._context.has_modern_groups:
            guests = self._guest_handlers.get(type(self._context.groups.get(request.group_id or "")))
            if guests is not None and kind in guests:
                handler = guests[kind]
        handler(request, token, now_ms)

    def answered(self, answer: Found, now_ms: int) -> None:
        # An answer may be late: the type of group checks that it is still wanted.
        self._answers[type(answer)](answer, now_ms)

    def topics_changed(self, names: Collection[str]) -> None:
        for group in self._context.groups.values():
            group.topics_changed(names)

    def topic_deleted(self, name: str, topic_id: UUID, now_ms: int) -> None:
        self.administration.forget_topic(name, topic_id)
        for kind in self._kinds.rows:
            kind.topic_deleted(topic_id, now_ms)
        self.topics_changed((name,))

    def begin_rebalance(self, group_id: str, now_ms: int) -> bool:
        """Start a rebalance without a cause, for tests of members; return False if that is impossible now."""
        group = self._context.groups.get(group_id)
        # While a write decides about the group, its type is open.
        if group is None or group_id in self._writings:
            return False
        return bool(self._context.kinds[type(group)].begin_rebalance(group, now_ms))

    # ------------------------------------------------------------ time

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        # First those of the log partition, which have the empty group id.
        if key.kind in self._timer_handlers:
            self._timer_handlers[key.kind](key, now_ms)
        # A write that ends or converts the group makes its timers void.
        elif key.group_id in self._writings:
            self._writings[key.group_id].overdue.append(key)
        # Timers are cancelled with their group.
        elif (group := self._context.groups.get(key.group_id)) is not None:
            self._context.kinds[type(group)].on_timer(key, now_ms)

    def revert(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        self.writer.hard.offsets.pending.pop(number, None)
        # First the groups that the append would have shown, so that later steps do not find them.
        self._context.discard_groups(number, error_code, now_ms)
        for kind in self._kinds.rows:
            # Kafka's timeline reverts all soft state of the log partition, not only the group's.
            kind.append_refused()

    # ------------------------------------------------------------ life cycle

    def loaded(self, now_ms: int) -> None:
        """Create the groups of the loaded records, and start their timers."""
        # A group of offsets alone has an entry, too: it becomes an Empty classic group (KAFKA-4704).
        for group_id, records in self.writer.hard.groups.items():
            self._kinds.of_records(records).load(group_id, now_ms)
        self.administration.start(now_ms)

    def take_waiting(self) -> list[Waiting]:
        # Fired timers are void, because the partition stops.
        return [entry for group in self._all_groups() for entry in group.take_waiting()]

    def fail_appends(self, now_ms: int, error_code: ErrorCode) -> None:
        """Fail all appends in flight, with an unknown outcome; :meth:`take_waiting` has been called before."""
        # A copy, because each failure removes an append.
        for entry in list(self.writer.in_flight):
            self.append_failed(entry.number, error_code, now_ms)

    def unload(self, now_ms: int) -> None:
        """Stop coordinating, without appends in flight: waiting requests fail with NOT_COORDINATOR."""
        for group in self._context.groups.values():
            self._context.disarm(group)
            # Every parked request is answered, or its client would wait for its timeout (KAFKA-16148).
            self._effects.replies += group.refuse_waiting(ErrorCode.NOT_COORDINATOR)
            group.end(now_ms)
            self._context.observer.group_removed(group, Cause.UNLOAD, now_ms)
        for kind in self._kinds.rows:
            self._effects.replies += kind.refuse_waiting(ErrorCode.NOT_COORDINATOR)
        self._context.groups.clear()
        # tick() expects that the partition of a timer is served.
        self._context.timers.cancel(self.administration.timer)
        self._context.timers.cancel(self.writer.timer)

    # ------------------------------------------------------------ looking inside

    @property
    def groups(self) -> dict[str, Group]:
        return self._context.groups

    @property
    def hard(self) -> HardState:
        return self.writer.hard

    def _all_groups(self) -> Iterable[Group]:
        # A group that is being deleted is not among the groups, but may come back.
        return {**self._writings, **self._context.groups}.values()

    def offset_count(self) -> int:
        committed = self.writer.hard.offsets.committed
        return sum(len(partitions) for topics in committed.values() for partitions in topics.values())

    def snapshot(self) -> Iterator[tuple[int, Record]]:
        """Return the minimal records of hard state with their log offsets, as after compaction."""
        return self.writer.hard.snapshot()

    def parked_tokens(self) -> list[Token]:
        """Return the token of every request that waits here: for joins, syncs, queries and the log."""
        tokens = [token for group in self._all_groups() for token in group.parked_tokens()]
        tokens += [reply.token for append in self.writer.in_flight for reply in append.held]
        # Requests that are handled after the log's answer, such as a join that converts a group.
        tokens += [token for append in self.writer.in_flight for token in append.continuation.parked_tokens()]
        tokens += [token for kind in self._kinds.rows for token in kind.parked_tokens()]
        return tokens

    def check(self, armed: Iterable[Timer]) -> None:
        """Raise InvariantError unless all structures fit together."""
        self.writer.check()
        owned: set[int] = {id(self.administration.timer), id(self.writer.timer)}
        for group_id, group in self._context.groups.items():
            if group_id != group.group_id:
                raise InvariantError(f"group {group.group_id!r} is kept under {group_id!r}")
            group.check()
            self._check_seen(group)
            group.check_durable(self.writer.hard.groups.get(group_id))
            if group.waiting and getattr(group, "writing", None) is None and group_id not in self._writings:
                raise InvariantError(f"requests wait in {group!r} without a write")
        for group in self._all_groups():
            owned.update(id(timer) for timer in group.timers())
        if self.administration.timer.deadline_ms is None and self._context.groups:
            raise InvariantError("there are groups, but no sweep will come")
        for timer in armed:
            if id(timer) not in owned:
                raise InvariantError(f"{timer!r} has no owner")
        # Hard state keeps a deleted group until its tombstones are durable.
        forgotten = self.writer.hard.groups.keys() - self._context.groups.keys() - self._writings.keys()
        if forgotten:
            raise InvariantError(f"the log has groups that memory lacks: {forgotten}")

    def _check_seen(self, group: Group) -> None:
        is_seen = self._context.is_seen(group)
        if is_seen == (group in self.writer.unseen.get(group.first_append, ())):
            raise InvariantError(f"{group!r} is seen and waits to be, or neither")
        if group.group_id in self.writer.hard.groups and not is_seen:
            raise InvariantError(f"{group!r} is not seen, but the log has it")
