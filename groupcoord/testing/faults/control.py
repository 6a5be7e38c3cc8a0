"""Control of faults in a running server: requests, nodes, groups, share groups, the log, the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from operator import methodcaller
from typing import NamedTuple

from groupcoord.broker.broker import Broker
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.share.share_partitions import LedPartition
from groupcoord.broker.topics.registry import Topic
from groupcoord.clock import LeapingClock, ManualClock
from groupcoord.core.javacompat import partition_for
from groupcoord.core.log.records import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from groupcoord.core.share_state.records import DeliveryState
from groupcoord.errors import ErrorCode, UnknownNameError, did_you_mean
from groupcoord.host.node_servers import NodeServers, NoSuchNodeError
from groupcoord.host.server import Server
from groupcoord.testing.asserting.groups import GroupDescription, describe_group, is_known, no_such_group
from groupcoord.testing.faults.log_faults import LogFaults, append_error
from groupcoord.testing.faults.rules import Call, Rule, Rules, Where, error_named, partition_chooser


class AcquiredRange(NamedTuple):
    """Consecutive records that a member of a share group has acquired; ``first`` and ``last`` are inclusive offsets."""

    topic: str
    partition: int
    first: int
    last: int
    member_id: str
    delivery_count: int
    locked_until_ms: int


class SharedRecords(NamedTuple):
    """Progress of a share group in a partition that its members read.

    Attributes:
        start_offset: offset before which all records are finished.
        acquired, available, finished: numbers of records from ``start_offset`` on in these states.
    """

    topic: str
    partition: int
    start_offset: int
    acquired: int
    available: int
    finished: int


LONGEST_ADVANCE_MS = 3_653 * 24 * 3_600_000
"""Limit of one advance: periodic timers would otherwise occupy the server without bound."""
DEADLINES_AT_ONCE = 50
FAILED_APPENDS_MAX = 10_000


class NoSuchMemberError(UnknownNameError):
    """The group or member does not exist, or its state does not allow the fault; the message has the reason."""


class NoSuchPartitionError(UnknownNameError):
    """The topic or partition does not exist."""


class NoSuchClientError(UnknownNameError):
    """No client with this client id is connected."""


class Control:
    """Faults of a running server. Call all methods in the server's thread, and :meth:`flush` afterwards.

    ``node`` is the id of a node; None selects all.
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
        """The first running node.

        Raises:
            NoSuchNodeError: no node runs.
        """
        return self._brokers[0]

    @property
    def _brokers(self) -> list[Broker]:
        brokers = [self._servers.running[node_id].broker for node_id in sorted(self._servers.running)]
        if not brokers:
            raise NoSuchNodeError("no node runs: all have crashed; restart() them")
        return brokers

    def flush(self) -> None:
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
        """Call a function for requests of an API; it can read, change, delay, drop or answer them.

        It runs in the server's thread and blocks it, so it must not wait.

        Args:
            api: Kafka's name of the API.
            function: receives the :class:`~groupcoord.testing.faults.Call`. It returns the response, an ``ErrorCode``
                for a response with that error, or None to continue with the request.
            where: condition on the requests; None for all.
            times: number of requests; None for all.
            after: call it after the request was handled, before the response is sent.
            node: only requests to this node; None for all.

        Returns:
            A handle that counts the requests and removes the rule.

        Raises:
            UnknownNameError: the API or a field does not exist.
        """

        def act(call: Call) -> None:
            answer = function(call)
            if isinstance(answer, ErrorCode):
                call.fail(answer)
            elif answer is not None:
                call.answer(answer)  # type: ignore[arg-type]  # which checks it

        effect = f"meets {getattr(function, '__name__', 'a function')}()"
        return self._add(Rule(api, act, effect, times, where, after, node))

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
        """Fail the next requests of an API without handling them; responses with entries have the error in every entry.

        With ``partition`` in ``where`` only these partitions fail (of ``topic``, if given); the others are handled.
        With ``after`` the request takes effect and only its response has the error.

        Raises:
            UnknownNameError: the API, error or field does not exist.
        """
        code = error_named(error)
        chosen = partition_chooser(where)

        def action(call: Call) -> None:
            if chosen is None:
                call.fail(code)
            else:
                call.fail_partitions(code, chosen)

        return self._add(Rule(api, action, f"fails with {code.name}", times, where, after, node))

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
        """Delay requests of an API before they are handled, or with ``after`` their responses, by the server's clock.

        Later requests of the same connections wait as well, as in Kafka.
        """
        if duration_ms < 0:
            raise ValueError(f"the duration must not be negative: delay({duration_ms})")
        delay = methodcaller("delay", duration_ms)
        return self._add(Rule(api, delay, f"is delayed by {duration_ms} ms", times, where, after, node))

    def drop_next(
        self,
        api: str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Send no response to the next requests of an API, nor to any later request of their connections."""
        return self._add(Rule(api, Call.drop, "is never answered", times, where, after, node))

    def disconnect_next(
        self,
        api: str,
        *,
        times: int | None = 1,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Close the connections of the next requests of an API instead of responding."""
        return self._add(Rule(api, Call.disconnect, "is disconnected", times, where, after, node))

    def hold(
        self,
        api: str,
        *,
        times: int | None = None,
        where: Where | None = None,
        after: bool = False,
        node: int | None = None,
    ) -> Rule:
        """Hold requests of an API, or with ``after`` their responses, until the fault is removed."""
        return self._add(Rule(api, None, "is held", times, where, after, node))

    def _add(self, rule: Rule) -> Rule:
        if rule.node is not None:
            self._servers.check_node(rule.node)
        self.rules.add(rule)
        return rule

    def drop_connections(self, client_id: str | None = None, *, node: int | None = None) -> int:
        """Close connections and return their number.

        Args:
            client_id: only those of this client, by the client id in its ApiVersions; None for all.
            node: only those to this node; None for all.

        Raises:
            NoSuchClientError: no client with this id is connected.
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
        """Crash a node, or all, like a killed process; other nodes take over its leaderships.

        Raises:
            NoSuchNodeError: the node does not exist or does not run.
        """
        self._servers.crash(node)
        for node_id in self._servers.addresses:
            if node_id not in self._servers.running:
                self.rules.forget_node(node_id)

    def restart(self, node: int | None = None) -> None:
        """Schedule the restart of a node, or of all, on the same ports; a running node is stopped first.

        Raises:
            NoSuchNodeError: the node does not exist.
        """
        self._servers.restart_soon(node)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the node that leads a partition; -1 if there is no leader."""
        return self._servers.nodes.leadership.leader(self._topic(topic, partition), partition).node_id

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Move the leadership of a partition to another node, with the next leader epoch.

        Args:
            topic: name of the topic.
            partition: number of the partition.
            to: id of the node; None for the next running one.

        Returns:
            The id of the new leader.

        Raises:
            NoSuchPartitionError: the topic or partition does not exist.
            NoSuchNodeError: the node does not exist, does not run, or leads the partition already.
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
        node_id = self.coordinator(group_id)
        if node_id not in self._servers.running:
            raise NoSuchNodeError(f"node {node_id}, which coordinates group {group_id!r}, does not run")
        return self._servers.running[node_id].broker

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the id of the node that coordinates a transactional id."""
        return self._servers.nodes.leadership.leader(*self._place_of(transactional_id)).node_id

    def _place_of(self, transactional_id: str) -> tuple[Topic, int]:
        topic = self.broker.transactions.prepare()
        if topic is None:
            raise NoSuchPartitionError(f"{TRANSACTIONS_TOPIC} can't be made")
        return topic, partition_for(transactional_id, topic.partition_count)

    def move_transaction_coordinator(self, transactional_id: str, to: int | None = None) -> int:
        """Move the coordinator of a transactional id to another node, and return its id.

        Raises:
            NoSuchNodeError: the node does not exist, does not run, or is the coordinator already.
        """
        return self._servers.move(*self._place_of(transactional_id), to)

    # ------------------------------------------------------------ groups

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Expire the session of a member now.

        A classic member with a pending join or sync stays, as in Kafka.

        Raises:
            NoSuchMemberError: the group has no such member.
        """
        if not any(broker.coordinator.end_session(group_id, member_id) for broker in self._brokers):
            members = [member.member_id for member in self._group(group_id).members]
            raise _no_member(group_id, member_id, members)
        self._deliver_replies()

    def begin_rebalance(self, group_id: str) -> None:
        """Begin a rebalance of a group without a change of its members.

        Members of a classic group must join again, as after a join of their leader. A group of another type starts a
        new epoch with a new target assignment; partitions or tasks move only if the assignor moves them.

        Raises:
            NoSuchMemberError: the group is empty, rebalances already, or has a write in flight.
        """
        if not any(broker.coordinator.begin_rebalance(group_id) for broker in self._brokers):
            if not is_known(self.broker, group_id):
                raise NoSuchMemberError(no_such_group(self.broker, group_id))
            raise NoSuchMemberError(
                f"group {group_id!r} cannot begin a rebalance: it is empty, rebalances already, or waits for the log"
            )
        self._deliver_replies()

    def acquired_records(self, group_id: str) -> tuple[AcquiredRange, ...]:
        """Return the acquired records of a group's members, by topic and offset, with equal neighbours merged."""
        ranges: list[AcquiredRange] = []
        for _, led in self._led(group_id):
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

    def shared_records(self, group_id: str) -> tuple[SharedRecords, ...]:
        """Return a group's progress in each partition that its members read."""
        found = []
        for _, led in self._led(group_id):
            if (records := led.records) is None:
                continue
            counts = dict.fromkeys(DeliveryState, 0)
            for run in records.runs():
                counts[run.state.state] += run.size
            place = led.topic.name, led.key.partition, records.start_offset
            pending = counts[DeliveryState.ACQUIRED], counts[DeliveryState.AVAILABLE]
            found.append(SharedRecords(*place, *pending, records.delivery_complete_count()))
        return tuple(found)

    def release_records(self, group_id: str, member_id: str | None = None) -> int:
        """Release the acquired records of a share group's member, or of all; return their number."""
        members = self._share_members(group_id)
        if member_id is not None and member_id not in members:
            raise _no_member(group_id, member_id, members)
        held = [entry for entry in self.acquired_records(group_id) if member_id in (None, entry.member_id)]
        for broker, led in self._led(group_id):
            for holder in dict.fromkeys(entry.member_id for entry in held):
                broker.share_requests.partitions.release(led, holder)
        return sum(entry.last - entry.first + 1 for entry in held)

    def expire_locks(self, group_id: str) -> int:
        """Expire the locks of all records that members of a share group have acquired; return their number."""
        self._share_members(group_id)
        held = self.acquired_records(group_id)
        latest_ms = max((entry.locked_until_ms for entry in held), default=0)
        for broker, led in self._led(group_id):
            broker.share_requests.partitions.expire_locks(led, broker.clock.now_ms(), latest_ms)
        return sum(entry.last - entry.first + 1 for entry in held)

    def _led(self, group_id: str) -> list[tuple[Broker, LedPartition]]:
        led = [(broker, each) for broker in self._brokers for each in broker.share_requests.partitions.all()]
        own = [(broker, each) for broker, each in led if each.key.group_id == group_id]
        return sorted(own, key=lambda found: (found[1].topic.name, found[1].key.partition))

    def _group(self, group_id: str) -> GroupDescription:
        group = describe_group(self.broker, group_id)
        if group is None:
            raise NoSuchMemberError(no_such_group(self.broker, group_id))
        return group

    def _share_members(self, group_id: str) -> list[str]:
        """Return the members of a share group, and former members that still have acquired records."""
        group = describe_group(self.broker, group_id)
        if group is None and not self.shared_records(group_id):
            raise NoSuchMemberError(no_such_group(self.broker, group_id))
        if group is not None and group.type != "share":
            raise NoSuchMemberError(f"group {group_id!r} is no share group: {group}")
        members = () if group is None else group.members
        holders = (entry.member_id for entry in self.acquired_records(group_id))
        return list(dict.fromkeys([*(member.member_id for member in members), *holders]))

    def _deliver_replies(self) -> None:
        for broker in self._brokers:
            broker.deliver_replies()

    def move_coordinator(self, group_id: str, to: int | None = None) -> int:
        """Move the coordinator of a group to another node; with one node it moves away and back.

        Pending requests fail with NOT_COORDINATOR, and the log partition, which may hold other groups, is loaded from
        the log. Sessions restart; pending joins and held appends are lost.

        Args:
            group_id: the group.
            to: id of the node; None for the next running one.

        Returns:
            The id of the node.

        Raises:
            NoSuchNodeError: the node does not exist, does not run, or coordinates the group already.
            NoSuchMemberError: the only node does not serve the log partition of the group.
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
        """Advance the server's clock; each timer that expires in between fires at its deadline.

        Raises:
            ValueError: the duration is negative or longer than ten years.
            TypeError: the clock cannot be advanced.
        """
        for _ in self.advancing(duration_ms):
            pass

    def advancing(self, duration_ms: int) -> Iterator[None]:
        """Advance the clock like :meth:`advance`, and yield after every ``DEADLINES_AT_ONCE`` deadlines."""
        clock = self._brokers[0].clock
        if not isinstance(clock, ManualClock | LeapingClock):
            raise TypeError(f"a {type(clock).__name__} can't be turned")
        if duration_ms < 0:
            raise ValueError(f"the duration must not be negative: advance({duration_ms})")
        if duration_ms > LONGEST_ADVANCE_MS:
            raise ValueError(f"the duration must be at most ten years: advance({duration_ms})")
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
        """Fail the next appends to ``__consumer_offsets``: nothing is written, and clients get the errors that Kafka
        returns.

        After KAFKA_STORAGE_ERROR and NOT_LEADER_OR_FOLLOWER clients look up their coordinator again. After
        REQUEST_TIMED_OUT the outcome is unknown, so the log partition is loaded again.

        Raises:
            UnknownNameError: the error does not exist, or is not an error of appends.
            ValueError: ``times`` exceeds ``FAILED_APPENDS_MAX``.
        """
        if times > FAILED_APPENDS_MAX:
            raise ValueError(f"no more than {FAILED_APPENDS_MAX} appends can be made to fail: times={times}")
        self._log_faults.fail_next(*(append_error(error) for _ in range(times)))

    def hold_appends(self) -> None:
        """Hold appends to ``__consumer_offsets`` from now on."""
        self._log_faults.hold()

    def held_appends(self) -> int:
        return self._log_faults.waiting()

    def release_appends(self) -> None:
        """Write the waiting appends and stop holding."""
        self._log_faults.release()

    def refuse_appends(self, error: ErrorCode | str | int = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """Fail the waiting appends."""
        self._log_faults.refuse(append_error(error))

    def clear(self) -> None:
        """Remove every rule and append fault; continue held requests and appends."""
        self.rules.clear()
        self._log_faults.clear()

    def describe_faults(self) -> list[str]:
        """Return descriptions of the present faults: rules, append faults, nodes that do not run."""
        down = [node_id for node_id in self._servers.addresses if node_id not in self._servers.running]
        return [
            *map(str, self.rules.all()),
            *self._log_faults.describe(),
            *(f"node {node_id} does not run" for node_id in down),
        ]

    def raise_errors(self) -> None:
        """Raise the oldest exception of a test's function that was not raised yet, if any.

        Raises:
            FaultFunctionError: the exception is its cause.
        """
        error = self.rules.take_error()
        if error is not None:
            raise error


def _no_member(group_id: str, member_id: str, members: list[str]) -> NoSuchMemberError:
    listed = ", ".join(map(repr, members)) or "none"
    hint = did_you_mean(member_id, members)
    return NoSuchMemberError(f"group {group_id!r} has no member {member_id!r}{hint} (members: {listed})")
