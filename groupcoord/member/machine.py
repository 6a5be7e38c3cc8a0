"""Kafka consumer's part in its group: a state machine without I/O, clock or randomness."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages import Node, Response
from groupcoord.errors import ErrorCode
from groupcoord.member.assignors import Assignor, Cluster
from groupcoord.member.config import MemberConfig
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.membership import IllegalCallError, MemberState
from groupcoord.member.offsets import Commit, CommitKind, Fetch
from groupcoord.member.outputs import ComputedAssignment, MetadataNeeded, OffsetAndMetadata, Output, Send
from groupcoord.member.parts import Dispatcher, assemble, no_jitter
from groupcoord.member.protocol import CloseOperation
from groupcoord.member.subscription import SubscriptionPattern, to_offset


class Member:
    """Consumer as the coordinator sees it: joins, sends heartbeats, rebalances, commits, leaves.

    It behaves as the Java consumer of Kafka 4.4, with ``group.protocol=classic`` or ``consumer``. The host calls its
    methods, executes their outputs (:meth:`take_outputs`) and calls :meth:`tick` at :meth:`next_deadline_ms`. Every
    call with ``now_ms`` may produce outputs. Times are milliseconds of one monotonic clock.

    As in the Java consumer, joins and the events of assignments happen only inside of :meth:`poll`; heartbeats and
    responses do not wait for it. An application that does not poll for ``max.poll.interval.ms`` leaves the group.

    Args:
        config: the settings of the consumer.
        assignors: the assignors of this member, in the classic protocol; by default new ones as
            ``partition.assignment.strategy`` names them. Do not share them between members.
        now_ms: the time; the first automatic commit is due ``auto.commit.interval.ms`` from now.
        random: returns numbers in [0, 1) for the jitter of waits; by default there is no jitter.
        waits_for_listener: whether to wait for :meth:`listener_returned` after each :class:`PartitionsRevoked`,
            :class:`PartitionsAssigned` and :class:`PartitionsLost` event, as the Java consumer waits for its
            ``ConsumerRebalanceListener``. Offsets of revoked partitions can be committed until then.
        member_id: the member id with ``group.protocol=consumer``, for the whole life of the member (KIP-1082); by
            default generated from ``random``, or a random one without jitter.

    Raises:
        ConfigError: an assignor is unknown, the assignors have no rebalance protocol in common, or assignors are given
            although the coordinator assigns.
    """

    __slots__ = ("_config", "_dispatcher", "_last_id", "_parts", "_protocol")

    def __init__(
        self,
        config: MemberConfig,
        assignors: Sequence[Assignor] | None = None,
        *,
        now_ms: int = 0,
        random: Callable[[], float] = no_jitter,
        waits_for_listener: bool = False,
        member_id: str | None = None,
    ) -> None:
        self._config = config
        self._parts, self._protocol = assemble(
            config, assignors, random, member_id, waits_for_listener=waits_for_listener
        )
        self._parts.commits.restart_interval(now_ms)
        self._dispatcher = Dispatcher(self._parts, self._protocol)
        self._last_id = 0

    # ------------------------------------------------------------ what the application calls

    def subscribe(self, topics: Iterable[str], now_ms: int) -> None:
        """Subscribe to topics; no topics mean :meth:`unsubscribe`. The next poll joins or rejoins.

        Raises:
            IllegalCallError: the member is closed, has no group or assignor, or has assigned itself partitions,
                or has subscribed to a pattern.
            ValueError: these are not names.
        """
        wanted = tuple(topics)
        if isinstance(topics, str) or not all(isinstance(topic, str) and topic.strip() for topic in wanted):
            raise ValueError(f"topics are a list of names, not {topics!r}")
        self._check_may_subscribe()
        if not wanted:
            self.unsubscribe(now_ms)
            return
        self._parts.subscription.subscribe(wanted)
        self._want_topics()
        self._dispatcher.settle(now_ms)

    def subscribe_pattern(self, pattern: str | SubscriptionPattern, now_ms: int) -> None:
        """Subscribe to all topics whose whole names match a regular expression.

        Args:
            pattern: a Python expression, which the member matches with all topics of the cluster, or a
                :class:`SubscriptionPattern`, which the coordinator resolves (``group.protocol=consumer``).
            now_ms: the time.

        Raises:
            IllegalCallError: as for :meth:`subscribe`, or a SubscriptionPattern is used with the classic protocol.
            ValueError: the expression is invalid.
        """
        self._check_may_subscribe()
        if isinstance(pattern, SubscriptionPattern):
            if not self._config.is_consumer_protocol:
                raise IllegalCallError("a SubscriptionPattern needs 'group.protocol' to be 'consumer'")
            self._parts.subscription.subscribe_regex(pattern)
            self._dispatcher.settle(now_ms)
            return
        try:
            self._parts.subscription.subscribe_pattern(pattern, self._parts.topic_metadata.cluster.topics)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        self._dispatcher.settle(now_ms)

    def assign(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Own these partitions without group management; no partitions mean :meth:`unsubscribe`.

        Raises:
            IllegalCallError: the member is closed or subscribed.
        """
        self._check_open()
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            self.unsubscribe(now_ms)
            return
        self._parts.subscription.assign(wanted)
        self._want_topics()
        self._dispatcher.settle(now_ms)

    def unsubscribe(self, now_ms: int) -> None:
        """Give up all partitions and the subscription, and leave the group as :meth:`close` does."""
        self._check_open()
        self._protocol.drop_all()
        self._dispatcher.is_unsubscribing = True
        self._dispatcher.settle(now_ms)

    def poll(self, now_ms: int, timeout_ms: int = 0) -> None:
        """Start a poll of the application, which ends at ``now_ms + timeout_ms``; join and rejoin as needed.

        The next call, also with timeout 0, replaces this one. If the application does nothing but poll, one call with a
        very long timeout is enough.
        """
        self._check_open()
        self._dispatcher.poll_until_ms = now_ms + timeout_ms
        self._protocol.polled(now_ms + timeout_ms)
        self._dispatcher.progress(now_ms)
        self._dispatcher.settle(now_ms)

    def enforce_rebalance(self, now_ms: int, reason: str = "") -> None:
        """Rejoin with the next poll (KIP-568). Does nothing in a consumer group."""
        self._check_open()
        self._protocol.request_rejoin(reason or "rebalance enforced by user")
        self._dispatcher.settle(now_ms)

    def consumed(self, positions: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Set the positions of the application: the next offset to read of each partition. Automatic commits commit
        them.

        Partitions that the member does not own are ignored.
        """
        self._parts.subscription.consumed(positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Exclude these partitions from fetches until :meth:`resume` or a new assignment."""
        self._parts.subscription.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo :meth:`pause`."""
        self._parts.subscription.resume(partitions)

    def commit_sync(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        now_ms: int,
        timeout_ms: int | None = None,
    ) -> int:
        """Commit with retries; a :class:`CommitCompleted` event holds the result.

        Without offsets, it ends when all asynchronous commits in flight have ended.

        Args:
            offsets: the offsets.
            now_ms: the time.
            timeout_ms: the time limit; ``default.api.timeout.ms`` by default.

        Returns:
            The id in the event.

        Raises:
            IllegalCallError: the member is closed or has no group.
            ValueError: an offset is negative.
        """
        wait_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        commit = self._new_commit(offsets, CommitKind.SYNC, now_ms + wait_ms)
        self._parts.commits.begin_sync(commit, now_ms)
        self._dispatcher.settle(now_ms)
        return commit.commit_id

    def commit_async(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], now_ms: int) -> int:
        """Commit once; a :class:`CommitCompleted` event during a later poll or commit holds the result.

        Returns and raises what :meth:`commit_sync` does.
        """
        commit = self._new_commit(offsets, CommitKind.ASYNC, 0)
        self._parts.commits.begin_async(commit, now_ms)
        self._dispatcher.settle(now_ms)
        return commit.commit_id

    def fetch_offsets(self, partitions: Iterable[TopicPartition], now_ms: int, timeout_ms: int | None = None) -> int:
        """Request committed offsets; an :class:`OffsetsFetched` event with the returned id holds them.

        Raises:
            IllegalCallError: the member is closed or has no group.
        """
        self._check_has_group()
        wait_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        wanted = tuple(dict.fromkeys(TopicPartition(*partition) for partition in partitions))
        self._last_id += 1
        fetch = Fetch(self._last_id, wanted, now_ms + wait_ms)
        self._parts.fetches.begin(fetch, now_ms)
        self._dispatcher.settle(now_ms)
        return fetch.fetch_id

    def close(self, now_ms: int, timeout_ms: int = 30_000, operation: CloseOperation = CloseOperation.DEFAULT) -> None:
        """Commit (with ``enable.auto.commit``), give up the partitions and leave; a :class:`Closed` event follows.

        Further calls change nothing.

        Args:
            now_ms: the time.
            timeout_ms: the time limit for responses.
            operation: the choice whether to leave the group.
        """
        if self._dispatcher.closing is None:
            self._dispatcher.close(now_ms, now_ms + timeout_ms, operation)
        self._dispatcher.settle(now_ms)

    def recover(self, now_ms: int) -> None:
        """Continue after a :class:`Failed` event: the next poll rejoins, and the owned partitions count as lost.

        In Java, the application catches the exception of ``poll`` and polls again.

        Raises:
            IllegalCallError: the member has not failed, or belongs to a consumer group, in which failures are final.
        """
        if self._parts.membership.state is not MemberState.FAILED:
            raise IllegalCallError(f"the member has not failed: it is {self._parts.membership.state.value}")
        self._protocol.recover()
        self._parts.gate.is_shut = False
        self._dispatcher.settle(now_ms)

    # ------------------------------------------------------------ what the host brings

    def receive(self, request_id: int, response: Response, now_ms: int) -> None:
        """Handle a response. Responses to requests that were given up are ignored."""
        send = self._parts.link.in_flight.pop(request_id, None)
        if send is None:
            return
        self._dispatcher.receive(send, response, now_ms)

    def request_failed(self, request_id: int, error_code: ErrorCode, now_ms: int) -> None:
        """Handle a request without a response.

        Args:
            request_id: the id of the request.
            error_code: NETWORK_EXCEPTION if the connection was lost or refused, UNSUPPORTED_VERSION if the broker
                supports no version that can express the request.
            now_ms: the time.
        """
        send = self._parts.link.in_flight.pop(request_id, None)
        if send is None:
            return
        if send.to is not None and error_code is ErrorCode.NETWORK_EXCEPTION:
            # All requests to the coordinator share one connection, so they fail together.
            self._parts.link.broken.append(send)
            self._parts.link.lose("disconnected")
        else:
            self._dispatcher.failed(send, error_code, now_ms)
        self._dispatcher.settle(now_ms)

    def disconnected(self, now_ms: int) -> None:
        """Handle the loss of the connection to the coordinator: all requests to it have failed."""
        self._parts.link.lose("disconnected")
        self._dispatcher.settle(now_ms)

    def update_metadata(self, cluster: Cluster, now_ms: int) -> None:
        """Replace the known topics of the cluster.

        Args:
            cluster: at least all of :attr:`metadata_topics` that exist.
            now_ms: the time.
        """
        self._parts.topic_metadata.update(
            cluster, (*self._parts.subscription.watched_topics(), *(self.metadata_topics or ()))
        )
        self._parts.subscription.match(cluster.topics)
        self._protocol.metadata_updated(now_ms)
        self._dispatcher.settle(now_ms)

    def assignment_computed(self, computed: ComputedAssignment, now_ms: int) -> None:
        """Handle the result of :meth:`AssignmentNeeded.compute`. An outdated one is ignored."""
        self._protocol.assignment_computed(computed, now_ms)
        self._dispatcher.settle(now_ms)

    def listener_returned(self, now_ms: int) -> None:
        """Continue after an event that the member waits for (``waits_for_listener``); do nothing without one."""
        if not self._parts.gate.is_shut:
            return
        self._parts.gate.is_shut = False
        self._dispatcher.progress(now_ms)
        self._dispatcher.settle(now_ms)

    def tick(self, now_ms: int) -> None:
        """Handle everything that is due."""
        if now_ms >= self._dispatcher.deadline_ms:
            self._dispatcher.tick(now_ms)

    # ------------------------------------------------------------ what the host takes

    def take_outputs(self) -> list[Output]:
        """Return and clear the outputs, in order."""
        outputs = self._parts.outputs.copy()
        self._parts.outputs.clear()
        return outputs

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is due, or None if nothing is due without an input."""
        deadline_ms = self._dispatcher.deadline_ms
        return deadline_ms if deadline_ms < NEVER_MS else None

    @property
    def in_flight(self) -> Mapping[int, Send]:
        """Requests without a response, by id; responses to other requests are ignored."""
        return self._parts.link.in_flight

    @property
    def state(self) -> MemberState:
        """State of the member."""
        return self._parts.membership.state

    @property
    def member_id(self) -> str:
        """Id from the coordinator, empty outside of the group; in a consumer group the member's own and constant."""
        return self._protocol.member_id

    @property
    def generation_id(self) -> int:
        """Generation, or in a consumer group the member epoch; -1 outside of the group."""
        return self._protocol.generation_id

    @property
    def is_leader(self) -> bool:
        """True if it assigned in this generation and watches the topics for changes."""
        return self._protocol.is_leader

    @property
    def heartbeat_interval_ms(self) -> int:
        """Interval of heartbeats. In a consumer group the coordinator sends it; 0 before."""
        return self._protocol.heartbeat_interval_ms

    @property
    def coordinator(self) -> Node | None:
        """The coordinator, or None if it is unknown."""
        return self._parts.link.node

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The owned partitions, sorted."""
        return tuple(self._parts.subscription.positions)

    @property
    def fetchable(self) -> tuple[TopicPartition, ...]:
        """The partitions to fetch, sorted: neither paused nor about to be revoked."""
        return self._parts.subscription.fetchable()

    @property
    def metadata_topics(self) -> tuple[str, ...] | None:
        """The topics that :meth:`update_metadata` must include, sorted: the member's, and in the leader the group's.

        None stands for all topics of the cluster, because the subscription is a pattern.
        """
        return self._parts.subscription.metadata_topics()

    @property
    def is_steady(self) -> bool:
        """True if heartbeats are the only requests that the member sends without an input or another deadline."""
        return (
            self._parts.membership.state is MemberState.STABLE
            and self._parts.link.node is not None
            and not self._parts.link.in_flight
            and self._parts.commits.is_idle
            and self._parts.fetches.is_idle
            and self._dispatcher.closing is None
            and not self._protocol.is_busy
        )

    # ------------------------------------------------------------ inside

    def _check_open(self) -> None:
        if self._dispatcher.closing is not None:
            raise IllegalCallError("the member is closed")
        if self._dispatcher.is_unsubscribing:
            raise IllegalCallError("the member unsubscribes: its listener has not returned")

    def _check_has_group(self) -> None:
        self._check_open()
        if self._config.group_id is None:
            raise IllegalCallError("the member has no group: 'group.id' is not set")

    def _check_may_subscribe(self) -> None:
        self._check_has_group()
        if not self._protocol.can_subscribe:
            raise IllegalCallError("the member has no assignor: 'partition.assignment.strategy' is empty")

    def _new_commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], kind: CommitKind, deadline_ms: int
    ) -> Commit:
        self._check_has_group()
        converted = {TopicPartition(*partition): to_offset(offset) for partition, offset in offsets.items()}
        self._last_id += 1
        return Commit(self._last_id, converted, kind, deadline_ms)

    def _want_topics(self) -> None:
        if self._parts.topic_metadata.missing(self._parts.subscription.metadata_topics() or ()):
            self._parts.outputs.append(MetadataNeeded(self._parts.subscription.metadata_topics()))
