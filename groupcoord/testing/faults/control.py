"""Control of faults in a running server: requests, nodes, groups, share groups, the log, the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from groupcoord.broker.broker import Broker
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.share.share_partitions import LedPartition
from groupcoord.broker.topics.registry import Topic
from groupcoord.clock import LeapingClock, ManualClock
from groupcoord.core.javacompat.hashing import partition_for
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.share_state.records import DeliveryState
from groupcoord.core.topics import TRANSACTIONS_TOPIC
from groupcoord.errors import ErrorCode, UnknownNameError, did_you_mean
from groupcoord.host.node_servers import NodeServers, NoSuchNodeError
from groupcoord.host.server import Server
from groupcoord.testing.asserting.groups import GroupDescription, describe_group, is_known, no_such_group
from groupcoord.testing.faults.log_faults import LogFaults, append_error
from groupcoord.testing.faults.rules import Call, Rule, Rules, Where, error_named, partition_chooser


class AcquiredRange(NamedTuple):
    """Records that a member of a share group has to itself.

    Attributes:
        topic, partition: where they are.
        first, last: from which offset to which.
        member_id: whose they are.
        delivery_count: how often they were given out.
        locked_until_ms: until when they are the member's, by the server's clock.
    """

    topic: str
    partition: int
    first: int
    last: int
    member_id: str
    delivery_count: int
    locked_until_ms: int


class SharedRecords(NamedTuple):
    """How far a share group is with a partition that its members read.

    Attributes:
        topic, partition: which one.
        start_offset: all before it is finished.
        acquired, available, finished: how many records at and behind it somebody has, are free again, and are done.
    """

    topic: str
    partition: int
    start_offset: int
    acquired: int
    available: int
    finished: int


def acquired(brokers: list[Broker], group_id: str) -> tuple[AcquiredRange, ...]:
    """Return what members of a group have, by topic and offset; what one has in one go is one entry."""
    ranges: list[AcquiredRange] = []
    for led in _led(brokers, group_id):
        for run in () if led.records is None else led.records.runs():
            state = run.state
            if state.state is not DeliveryState.ACQUIRED:
                continue
            found = AcquiredRange(
                *(led.topic.name, led.key.partition, run.first, run.last),
                *(state.member_id, state.count, state.locked_until_ms),
            )
            last = ranges[-1] if ranges else None
            if last is not None and last == found._replace(first=last.first, last=found.first - 1):
                ranges[-1] = last._replace(last=found.last)
            else:
                ranges.append(found)
    return tuple(ranges)


def progress(brokers: list[Broker], group_id: str) -> tuple[SharedRecords, ...]:
    """Return how far a group is with the partitions that its members read."""
    told = []
    for led in _led(brokers, group_id):
        records = led.records
        if records is None:
            continue
        counts = dict.fromkeys(DeliveryState, 0)
        for run in records.runs():
            counts[run.state.state] += run.size
        told.append(
            SharedRecords(
                *(led.topic.name, led.key.partition, records.start_offset),
                counts[DeliveryState.ACQUIRED],
                counts[DeliveryState.AVAILABLE],
                records.delivery_complete_count(),
            )
        )
    return tuple(told)


def release(brokers: list[Broker], group_id: str, member_id: str | None) -> int:
    """Let go of what a member has, or all; return how many records that were."""
    held = [entry for entry in acquired(brokers, group_id) if member_id in (None, entry.member_id)]
    for broker in brokers:
        partitions = broker.share_requests.partitions
        for led in partitions.all():
            if led.key.group_id == group_id:
                for holder in dict.fromkeys(entry.member_id for entry in held):
                    partitions.release(led, holder)
    return sum(entry.last - entry.first + 1 for entry in held)


def expire_locks(brokers: list[Broker], group_id: str) -> int:
    """Let all locks of a group be over; return how many records that were."""
    held = acquired(brokers, group_id)
    latest_ms = max((entry.locked_until_ms for entry in held), default=0)
    for broker in brokers:
        partitions = broker.share_requests.partitions
        for led in partitions.all():
            if led.key.group_id == group_id:
                partitions.expire_locks(led, broker.clock.now_ms(), latest_ms)
    return sum(entry.last - entry.first + 1 for entry in held)


def _led(brokers: list[Broker], group_id: str) -> Iterator[LedPartition]:
    led = [each for broker in brokers for each in broker.share_requests.partitions.all()]
    yield from sorted(
        (each for each in led if each.key.group_id == group_id), key=lambda each: (each.topic.name, each.key.partition)
    )


LONGEST_ADVANCE_MS = 3_653 * 24 * 3_600_000
"""What is due every ten minutes would otherwise keep the server for as long as somebody likes."""
DEADLINES_AT_ONCE = 50
FAILED_APPENDS_MAX = 10_000


class NoSuchMemberError(UnknownNameError):
    """There is no such group or member, or it is in no state for that. The message says why."""


class NoSuchPartitionError(UnknownNameError):
    """There is no such topic, or it has no such partition."""


class NoSuchClientError(UnknownNameError):
    """No client with this client id is connected."""


class Control:
    """Faults on purpose for a running server. Call everything from the server's thread, and flush afterwards.

    ``node`` says of which node something is, by its id; None means all of them.

    Args:
        servers: the nodes of the server, whether they run or not.
        rules: rules that were made before; they outlast crashes.

    Attributes:
        rules: those that hold.
    """

    def __init__(self, servers: NodeServers, rules: Rules | None = None) -> None:
        self.rules = Rules() if rules is None else rules
        self._servers = servers
        self._nodes: Nodes | None = None
        self._log_faults = LogFaults(servers.running)
        servers.on_start = self._has_started
        for server in servers.running.values():
            self._has_started(server)

    def _has_started(self, server: Server) -> None:
        broker = server.broker
        if broker.nodes is not self._nodes:
            self._nodes = broker.nodes
            self._nodes.before_unload = self._log_faults.fence
            self._log_faults.forget()
        self._log_faults.stand_before(broker)
        self.rules.follow(broker)

    @property
    def broker(self) -> Broker:
        """The first node that runs.

        Raises:
            NoSuchNodeError: none does.
        """
        return self._brokers[0]

    @property
    def _brokers(self) -> list[Broker]:
        brokers = [self._servers.running[node_id].broker for node_id in sorted(self._servers.running)]
        if not brokers:
            raise NoSuchNodeError("no node runs: all have crashed; restart() them")
        return brokers

    def flush(self) -> None:
        """Send what there is to say."""
        for server in list(self._servers.running.values()):
            server.flush()

    # ------------------------------------------------------------ requests

    def on(
        self,
        api: str,
        function: Callable[[Call], object],
        *,
        where: Where | None = None,
        times: int | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Call a function for requests of an API: it sees them, changes them, delays, drops or answers them.

        It is called in the server's thread, which serves nobody meanwhile: it must not wait for anything.

        Args:
            api: Kafka's name of the API.
            function: gets the :class:`~groupcoord.testing.faults.Call`. What it returns is the answer: a response, or
                an ``ErrorCode`` for one that carries nothing else; None lets the request go on.
            where: which requests are meant; all by default.
            times: how many; all by default.
            after: call it when the request was handled, and its answer is to leave.

        Returns:
            A handle, to count them and to remove the rule.

        Raises:
            UnknownNameError: there is no such API, or its requests have no such field.
        """

        def act(call: Call) -> None:
            answer = function(call)
            if isinstance(answer, ErrorCode):
                call.fail(answer)
            elif answer is not None:
                call.answer(answer)  # type: ignore[arg-type]  # which checks it

        effect = f"meets {getattr(function, '__name__', 'a function')}()"
        return self._add(Rule(api, act, where=where, times=times, after=after, node=node, effect=effect))

    def fail_next(
        self,
        api: str,
        error: ErrorCode | str | int,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Answer the next requests of an API with an error, at every entry where the answer has entries.

        With ``partition`` in ``where`` these partitions alone fail, of ``topic`` if that is given, too; the others are
        handled.

        They have no effect, unless ``after`` says that only the answer shall tell so.

        Raises:
            UnknownNameError: there is no such API, error or field.
        """
        code = error_named(error)
        effect = f"fails with {code.name}"
        chosen = partition_chooser(where)

        def action(call: Call) -> None:
            if chosen is None:
                call.fail(code)
            else:
                call.fail_partitions(code, chosen)

        return self._add(Rule(api, action, where=where, times=times, after=after, node=node, effect=effect))

    def delay(
        self,
        api: str,
        duration_ms: int,
        *,
        times: int | None = None,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Let requests of an API wait before they are handled, or (``after``) their answers before they leave.

        As with Kafka, what comes behind them on their connections waits as well. Time is that of the server's clock.
        """
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: delay({duration_ms})")
        effect = f"is delayed by {duration_ms} ms"
        return self._add(
            Rule(
                api,
                lambda call: call.delay(duration_ms),
                where=where,
                times=times,
                after=after,
                node=node,
                effect=effect,
            )
        )

    def drop_next(
        self,
        api: str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Never answer the next requests of an API, nor anything that comes behind them on their connections."""
        return self._add(
            Rule(api, Call.drop, where=where, times=times, after=after, node=node, effect="is never answered")
        )

    def disconnect_next(
        self,
        api: str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Close the connections of the next requests of an API instead of an answer."""
        return self._add(
            Rule(api, Call.disconnect, where=where, times=times, after=after, node=node, effect="is disconnected")
        )

    def hold(
        self,
        api: str,
        *,
        times: int | None = None,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Let requests of an API, or their answers, wait until the fault is removed."""
        rule = Rule(
            api, lambda call: rule.hold(call), where=where, times=times, after=after, node=node, effect="is held"
        )
        rule.holds = True
        return self._add(rule)

    def _add(self, rule: Rule) -> Rule:
        if rule.node is not None:
            self._servers.check_node(rule.node)
        self.rules.add(rule)
        return rule

    def drop_connections(self, client_id: str | None = None, *, node: int | None = None) -> int:
        """Break connections off without a word; return how many there were.

        Args:
            client_id: of the clients that called themselves so when they asked for ApiVersions; None: of all.
            node: those to this node; None: to any.

        Raises:
            NoSuchClientError: no client with this id is connected to any node.
        """
        if node is not None:
            self._servers.check_node(node)
        running = self._servers.running.items()
        connected = {name for _, server in running for name in server.client_ids()}
        if client_id is not None and client_id not in connected:
            listed = ", ".join(map(repr, sorted(connected))) or "none"
            hint = did_you_mean(client_id, connected)
            raise NoSuchClientError(f"no client {client_id!r} is connected{hint} (clients: {listed})")
        return sum(server.drop_connections(client_id) for node_id, server in running if node in (None, node_id))

    # ------------------------------------------------------------ nodes

    def crash(self, node: int | None = None) -> None:
        """Let a node, or all, stop as a process does that is killed; others lead and coordinate what it did.

        Raises:
            NoSuchNodeError: there is no such node, or it does not run.
        """
        self._servers.crash(node)
        for node_id in self._servers.addresses:
            if node_id not in self._servers.running:
                self.rules.forget_node(node_id)

    def restart(self, node: int | None = None) -> None:
        """Let a node, or all, run again on the same ports, soon; one that runs is stopped in order before.

        Raises:
            NoSuchNodeError: there is no such node.
        """
        self._servers.restart_soon(node)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the node that leads a partition; -1 while nobody does."""
        return self._servers.nodes.leadership.leader(self._topic(topic, partition), partition).node_id

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Let another node lead a partition, with the next leader epoch.

        Args:
            topic: the topic.
            partition: which of its partitions.
            to: the node; None: the next one that runs.

        Returns:
            The id of the node.

        Raises:
            NoSuchPartitionError: there is no such topic, or partition.
            NoSuchNodeError: there is no such node, or it does not run, or leads the partition already.
        """
        return self._servers.move(self._topic(topic, partition), partition, to)

    def _topic(self, name: str, partition: int) -> Topic:
        topic = self._servers.storage.topics.get(name)
        if topic is None or not topic.has_partition(partition):
            names = [known.name for known in self._servers.storage.topics]
            hint = did_you_mean(name, names) if topic is None else f"; the topic has {topic.partition_count}"
            raise NoSuchPartitionError(f"there is no partition {name}-{partition}{hint}")
        return topic

    def coordinator(self, group_id: str) -> int:
        """Return the id of the node that coordinates a group."""
        return self.leader(OFFSETS_TOPIC, self.broker.coordinator.partition_of(group_id))

    def coordinating(self, group_id: str) -> Broker:
        """Return the node that coordinates a group.

        Raises:
            NoSuchNodeError: it doesn't run.
        """
        node_id = self.coordinator(group_id)
        if node_id not in self._servers.running:
            raise NoSuchNodeError(f"node {node_id}, which coordinates group {group_id!r}, does not run")
        return self._servers.running[node_id].broker

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the id of the node that coordinates the transactions of a transactional id."""
        return self._servers.nodes.leadership.leader(*self._place_of(transactional_id)).node_id

    def _place_of(self, transactional_id: str) -> tuple[Topic, int]:
        """Return the partition that a transactional id is in."""
        topic = self.broker.transactions.prepare()
        if topic is None:
            raise NoSuchPartitionError(f"{TRANSACTIONS_TOPIC} can't be made")
        return topic, partition_for(transactional_id, topic.partition_count)

    def move_transaction_coordinator(self, transactional_id: str, to: int | None = None) -> int:
        """Let another node coordinate the transactions of a transactional id, and return its id.

        Raises:
            NoSuchNodeError: there is no such node, or it does not run, or coordinates them already.
        """
        return self._servers.move(*self._place_of(transactional_id), to)

    # ------------------------------------------------------------ groups

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Let a member's session end now, as if it had been silent for too long.

        A classic member whose join or sync waits for others is alive for Kafka, and stays.

        Raises:
            NoSuchMemberError: the group has no such member.
        """
        if not any(broker.coordinator.end_session(group_id, member_id) for broker in self._brokers):
            members = [member.member_id for member in self._group(group_id).members]
            raise _no_member(group_id, member_id, members)
        self._deliver_replies()

    def begin_rebalance(self, group_id: str) -> None:
        """Let a group rebalance though nothing has happened to it.

        Members of a classic group are told to join again, as when their leader has. A group of another kind
        begins a new epoch, whose target its assignor makes; partitions or tasks move only if it wants them to.

        Raises:
            NoSuchMemberError: nobody is in the group, it rebalances already, or a write of it is in flight.
        """
        if not any(broker.coordinator.begin_rebalance(group_id) for broker in self._brokers):
            if not is_known(self.broker, group_id):
                raise NoSuchMemberError(no_such_group(self.broker, group_id))
            raise NoSuchMemberError(
                f"group {group_id!r} can't begin a rebalance: nobody is in it, it rebalances already, "
                "or the log is awaited"
            )
        self._deliver_replies()

    def acquired_records(self, group_id: str) -> tuple[AcquiredRange, ...]:
        """Return what members of a share group have to themselves, by topic and offset."""
        return acquired(self._brokers, group_id)

    def shared_records(self, group_id: str) -> tuple[SharedRecords, ...]:
        """Return how far a share group is with the partitions that its members read."""
        return progress(self._brokers, group_id)

    def release_records(self, group_id: str, member_id: str | None = None) -> int:
        """Let a share group have again what one of its members has, as if that had given it back.

        Args:
            group_id: the group.
            member_id: the member; None: all of them.

        Returns:
            How many records that were.

        Raises:
            NoSuchMemberError: there is no such share group, or it has no such member.
        """
        members = self._share_members(group_id)
        if member_id is not None and member_id not in members:
            raise _no_member(group_id, member_id, members)
        return release(self._brokers, group_id, member_id)

    def expire_locks(self, group_id: str) -> int:
        """Let the locks of all records be over that members of a share group have; return how many those were.

        Raises:
            NoSuchMemberError: there is no such share group.
        """
        self._share_members(group_id)
        return expire_locks(self._brokers, group_id)

    def _group(self, group_id: str) -> GroupDescription:
        group = describe_group(self.broker, group_id)
        if group is None:
            raise NoSuchMemberError(no_such_group(self.broker, group_id))
        return group

    def _share_members(self, group_id: str) -> list[str]:
        """Return the members of a share group, and those that have records without being members any more."""
        group = describe_group(self.broker, group_id)
        if group is None and not progress(self._brokers, group_id):
            raise NoSuchMemberError(no_such_group(self.broker, group_id))
        if group is not None and group.type != "share":
            raise NoSuchMemberError(f"group {group_id!r} is no share group: {group}")
        members = () if group is None else group.members
        holders = (entry.member_id for entry in acquired(self._brokers, group_id))
        return list(dict.fromkeys([*(member.member_id for member in members), *holders]))

    def _deliver_replies(self) -> None:
        for broker in self._brokers:
            broker.deliver_replies()

    def move_coordinator(self, group_id: str, to: int | None = None) -> int:
        """Let another node coordinate a group; with one node it moves away and back again.

        Whoever waits for it is told NOT_COORDINATOR and looks for it anew. Then the log partition, in which other
        groups may live as well, is loaded from the log: members are in it, and their sessions begin again; what wasn't
        written is lost, such as joins that waited and appends that are held.

        Args:
            group_id: the group.
            to: the node; None: the next one that runs.

        Returns:
            The id of the node.

        Raises:
            NoSuchNodeError: there is no such node, or it does not run, or coordinates the group already.
        """
        coordinator = self.broker.coordinator
        index = coordinator.partition_of(group_id)
        if not self.broker.nodes.leadership.is_sole:
            return self.move_leader(OFFSETS_TOPIC, index, to)
        if to is not None:
            self._servers.check_node(to)
        if coordinator.partition(index) is None:
            raise NoSuchMemberError(f"the log partition of group {group_id!r} isn't served")
        self._log_faults.fence(index)
        coordinator.unload(index)
        self.broker.deliver_replies()
        coordinator.load(index)
        self.broker.deliver_replies()
        return self.broker.node.node_id

    # ------------------------------------------------------------ time

    def advance(self, duration_ms: int) -> None:
        """Let time pass on the server's clock; whatever falls due on the way happens at its moment.

        Raises:
            ValueError: the duration is negative, or longer than ten years.
            TypeError: the clock can't be turned.
        """
        for _ in self.advancing(duration_ms):
            pass

    def advancing(self, duration_ms: int) -> Iterator[None]:
        """Let time pass as :meth:`advance` does, and yield after every ``DEADLINES_AT_ONCE`` moments at which something
        was due.
        """
        clock = self._brokers[0].clock
        if not isinstance(clock, ManualClock | LeapingClock):
            raise TypeError(f"a {type(clock).__name__} can't be turned")
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: advance({duration_ms})")
        if duration_ms > LONGEST_ADVANCE_MS:
            raise ValueError(f"that is longer than ten years: advance({duration_ms})")
        end_ms = clock.now_ms() + duration_ms
        for step in count(1):
            due_ms = self._next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            clock.advance_to(max(due_ms, clock.now_ms()))
            for broker in self._brokers:
                broker.tick()
                broker.handle_waiting()
            self.flush()
            if step % DEADLINES_AT_ONCE == 0:
                yield
        clock.advance_to(max(end_ms, clock.now_ms()))
        for server in list(self._servers.running.values()):
            server.clock_has_leapt()

    def _next_deadline_ms(self) -> int | None:
        deadlines_ms = [broker.next_deadline_ms() for broker in self._brokers]
        return min((deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None), default=None)

    # ------------------------------------------------------------ the log

    def fail_next_append(self, error: ErrorCode | str | int = ErrorCode.NOT_ENOUGH_REPLICAS, *, times: int = 1) -> None:
        """Let the next appends to ``__consumer_offsets`` fail: nothing is written, and clients are told as by Kafka.

        After KAFKA_STORAGE_ERROR and NOT_LEADER_OR_FOLLOWER clients look for their coordinator anew. After
        REQUEST_TIMED_OUT nobody knows whether it was written, and the log partition is loaded again.

        Raises:
            UnknownNameError: there is no such error, or no append fails with it.
            ValueError: ``times`` is more than ``FAILED_APPENDS_MAX``.
        """
        if times > FAILED_APPENDS_MAX:
            raise ValueError(f"no more than {FAILED_APPENDS_MAX} appends can be made to fail: times={times}")
        self._log_faults.fail_next(*(append_error(error) for _ in range(times)))

    def hold_appends(self) -> None:
        """Let appends of records of groups and offsets wait from now on."""
        self._log_faults.hold()

    def held_appends(self) -> int:
        """Return how many appends wait."""
        return self._log_faults.waiting()

    def release_appends(self) -> None:
        """Write what waits, and let appends wait no longer."""
        self._log_faults.release()

    def refuse_appends(self, error: ErrorCode | str | int = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """Refuse the appends that wait."""
        self._log_faults.refuse(append_error(error))

    def clear(self) -> None:
        """Remove every rule, forget the faults of the log that are to come, and let go on whatever waits."""
        self.rules.clear()
        self._log_faults.clear()

    def describe_faults(self) -> list[str]:
        """Return what goes wrong on purpose at the moment, in words: rules, faults of the log, nodes that don't run."""
        down = [node_id for node_id in self._servers.addresses if node_id not in self._servers.running]
        return [
            *map(str, self.rules.all()),
            *self._log_faults.describe(),
            *(f"node {node_id} does not run" for node_id in down),
        ]

    def raise_errors(self) -> None:
        """Raise what a function of the test raised, if anything, once.

        Raises:
            FaultFunctionError: what it raised is its cause.
        """
        error = self.rules.take_error()
        if error is not None:
            raise error


def _no_member(group_id: str, member_id: str, members: list[str]) -> NoSuchMemberError:
    listed = ", ".join(map(repr, members)) or "none"
    hint = did_you_mean(member_id, members)
    return NoSuchMemberError(f"group {group_id!r} has no member {member_id!r}{hint} (members: {listed})")
