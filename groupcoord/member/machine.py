"""Kafka consumer's part in its group: a state machine without I/O, clock or randomness."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages import FindCoordinator, Node, OffsetCommit, OffsetFetch, Response
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.member.assignors import Assignor, Cluster
from groupcoord.member.classic.heartbeats import MembershipManager
from groupcoord.member.classic.leader import chosen_assignors, common_protocol
from groupcoord.member.classic.protocol import ClassicProtocol
from groupcoord.member.config import MemberConfig
from groupcoord.member.consumer import ConsumerMembership, ConsumerProtocol, new_member_id
from groupcoord.member.coordinator_link import NEVER_MS, ExponentialBackoff, no_jitter
from groupcoord.member.membership import IllegalCallError, MemberState
from groupcoord.member.offsets import Commit, CommitKind, Commits, Fetch, Fetches
from groupcoord.member.outputs import Closed, ComputedAssignment, MetadataNeeded, OffsetAndMetadata, Output, Send
from groupcoord.member.parts import CloseOperation, Closing, ClosingStep, Parts
from groupcoord.member.subscription import SubscriptionKind, SubscriptionPattern, to_offset

_UNSUBSCRIBE_REASON = "the consumer unsubscribed from all topics"
_CLOSE_REASON = "the consumer is being closed"


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

    __slots__ = (
        *("_closing", "_config", "_deadline_ms", "_is_quiet", "_is_unsubscribing", "_last_id", "_others_ms", "_parts"),
        *("_poll_due_ms", "_poll_until_ms", "_protocol"),
    )

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
        outputs: list[Output] = []
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._protocol: ClassicProtocol | ConsumerProtocol
        if config.is_consumer_protocol:
            if assignors is not None:
                raise ConfigError("setting 'group.protocol' is 'consumer': the coordinator assigns, not the member")
            consumer = ConsumerMembership(config.group_instance_id, outputs, member_id or new_member_id(random))
            self._parts = Parts(config, consumer, outputs, backoff, waits_for_listener)
            self._protocol = ConsumerProtocol(self._parts, consumer)
        else:
            chosen = chosen_assignors(config.partition_assignment_strategy) if assignors is None else tuple(assignors)
            by_name = {assignor.name: assignor for assignor in chosen}
            classic = MembershipManager(config.group_instance_id, outputs)
            self._parts = Parts(config, classic, outputs, backoff, waits_for_listener)
            self._protocol = ClassicProtocol(self._parts, classic, by_name, common_protocol(chosen))
        self._parts.commits.restart_interval(now_ms)
        self._last_id = 0
        self._closing: Closing | None = None
        self._is_unsubscribing = False  # leaves once the listener has handled the revocation of all partitions
        self._is_quiet = False  # in the group, with nothing due but heartbeats and automatic commits
        self._poll_until_ms = 0
        self._poll_due_ms = NEVER_MS  # when the application's poll has something to do
        self._others_ms = NEVER_MS  # deadline of all but heartbeats and their responses
        self._deadline_ms = NEVER_MS

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
        self._settle(now_ms)

    def subscribe_pattern(self, pattern: str | SubscriptionPattern, now_ms: int) -> None:
        """Subscribe to all topics with names that match, as a whole, a regular expression.

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
            self._settle(now_ms)
            return
        try:
            self._parts.subscription.subscribe_pattern(pattern, self._parts.topic_metadata.cluster.topics)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        self._settle(now_ms)

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
        self._settle(now_ms)

    def unsubscribe(self, now_ms: int) -> None:
        """Give up all partitions and the subscription, and leave the group as :meth:`close` does."""
        self._check_open()
        self._protocol.drop_all()
        self._is_unsubscribing = True
        self._settle(now_ms)

    def poll(self, now_ms: int, timeout_ms: int = 0) -> None:
        """Start a poll of the application, which ends at ``now_ms + timeout_ms``; join and rejoin as needed.

        The next call, also with timeout 0, replaces this one. If the application does nothing but poll, one call with a
        very long timeout is enough.
        """
        self._check_open()
        self._poll_until_ms = now_ms + timeout_ms
        self._protocol.polled(now_ms + timeout_ms)
        self._progress(now_ms)
        self._settle(now_ms)

    def enforce_rebalance(self, now_ms: int, reason: str = "") -> None:
        """Rejoin with the next poll (KIP-568). Does nothing in a consumer group."""
        self._check_open()
        self._parts.membership.request_rejoin(reason or "rebalance enforced by user")
        self._settle(now_ms)

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
        self._settle(now_ms)
        return commit.commit_id

    def commit_async(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], now_ms: int) -> int:
        """Commit once; a :class:`CommitCompleted` event during a later poll or commit holds the result.

        Returns and raises what :meth:`commit_sync` does.
        """
        commit = self._new_commit(offsets, CommitKind.ASYNC, 0)
        self._parts.commits.begin_async(commit, now_ms)
        self._settle(now_ms)
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
        self._settle(now_ms)
        return fetch.fetch_id

    def close(self, now_ms: int, timeout_ms: int = 30_000, operation: CloseOperation = CloseOperation.DEFAULT) -> None:
        """Commit (with ``enable.auto.commit``), give up the partitions and leave; a :class:`Closed` event follows.

        Further calls change nothing.

        Args:
            now_ms: the time.
            timeout_ms: the time limit for responses.
            operation: the choice whether to leave the group.
        """
        if self._closing is None:
            commit, deadline_ms = None, now_ms + timeout_ms
            self._parts.awaits_listener = False  # closing does not wait for the listener's earlier event
            if self._config.enable_auto_commit and not self._parts.membership.has_ended:
                commit = self._parts.commits.begin_all(CommitKind.SYNC, now_ms, deadline_ms)
            self._closing = Closing(deadline_ms, operation, commit)
        self._settle(now_ms)

    def recover(self, now_ms: int) -> None:
        """Continue after a :class:`Failed` event: the next poll rejoins, and the owned partitions count as lost.

        In Java, the application catches the exception of ``poll`` and polls again.

        Raises:
            IllegalCallError: the member has not failed, or belongs to a consumer group, in which failures are final.
        """
        if self._parts.membership.state is not MemberState.FAILED:
            raise IllegalCallError(f"the member has not failed: it is {self._parts.membership.state.value}")
        self._protocol.recover()
        self._parts.awaits_listener = False
        self._settle(now_ms)

    # ------------------------------------------------------------ what the host brings

    def receive(self, request_id: int, response: Response, now_ms: int) -> None:
        """Handle a response. Responses to requests that were given up are ignored."""
        send = self._parts.link.in_flight.pop(request_id, None)
        if send is None:
            return
        # Fast path: nothing but the deadline depends on such a response.
        if self._is_quiet and self._protocol.answered(send, response, now_ms):
            self._update_quiet_deadline()
            return
        if isinstance(send.request, FindCoordinator):
            self._looked_up(response, now_ms)
        else:
            self._sender_of(send).receive(send, response, now_ms)
        self._settle(now_ms)

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
            self._request_failed(send, error_code, now_ms)
        self._settle(now_ms)

    def disconnected(self, now_ms: int) -> None:
        """Handle the loss of the connection to the coordinator: all requests to it have failed."""
        self._parts.link.lose("disconnected")
        self._settle(now_ms)

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
        self._settle(now_ms)

    def assignment_computed(self, computed: ComputedAssignment, now_ms: int) -> None:
        """Handle the result of :meth:`AssignmentNeeded.compute`. An outdated one is ignored."""
        self._protocol.assignment_computed(computed, now_ms)
        self._settle(now_ms)

    def listener_returned(self, now_ms: int) -> None:
        """Continue after an event that the member waits for (``waits_for_listener``); do nothing without one."""
        if not self._parts.awaits_listener:
            return
        self._parts.awaits_listener = False
        self._progress(now_ms)
        self._settle(now_ms)

    def tick(self, now_ms: int) -> None:
        """Handle everything that is due."""
        if now_ms < self._deadline_ms:
            return
        if (
            self._is_quiet
            and now_ms < self._others_ms
            and now_ms < self._parts.link.deadline_ms()
            and self._protocol.beat_on(now_ms)
        ):
            self._update_quiet_deadline()
        else:
            self._do_what_is_due(now_ms)
            self._settle(now_ms)

    # ------------------------------------------------------------ what the host takes

    def take_outputs(self) -> list[Output]:
        """Return and clear the outputs, in order."""
        outputs = self._parts.outputs.copy()
        self._parts.outputs.clear()
        return outputs

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is due, or None if nothing is due without an input."""
        return self._deadline_ms if self._deadline_ms < NEVER_MS else None

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
        return self._parts.membership.member_id

    @property
    def generation_id(self) -> int:
        """Generation, or in a consumer group the member epoch; -1 outside of the group."""
        return self._parts.membership.generation_id

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
            and self._closing is None
            and not self._protocol.is_busy
        )

    # ------------------------------------------------------------ inside

    def _check_open(self) -> None:
        if self._closing is not None:
            raise IllegalCallError("the member is closed")
        if self._is_unsubscribing:
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

    # ------------------------------------------------------------ responses and deadlines

    def _request_failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        if isinstance(send.request, FindCoordinator):
            self._lookup_failed(error_code, now_ms)
        else:
            self._sender_of(send).failed(send, error_code, now_ms)

    def _sender_of(self, send: Send) -> Commits | Fetches | ClassicProtocol | ConsumerProtocol:
        if isinstance(send.request, OffsetCommit):
            return self._parts.commits
        return self._parts.fetches if isinstance(send.request, OffsetFetch) else self._protocol

    def _looked_up(self, response: Response, now_ms: int) -> None:
        entry = self._parts.link.found(response)
        if entry is None:
            self._parts.membership.fail(
                "FindCoordinator", ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(response).__name__} is no answer to it"
            )
        elif entry.error_code is not ErrorCode.NONE:
            self._lookup_failed(entry.error_code, now_ms)
        else:
            self._protocol.coordinator_found(now_ms)
            self._parts.commits.coordinator_found(now_ms)

    def _lookup_failed(self, error_code: ErrorCode, now_ms: int) -> None:
        may_repeat = self._parts.link.lookup_failed(error_code, now_ms)
        self._protocol.lookup_failed(error_code, now_ms, may_repeat=may_repeat)

    def _update_quiet_deadline(self) -> None:
        self._deadline_ms = min(self._others_ms, self._parts.link.deadline_ms(), self._protocol.deadline_ms())

    def _do_what_is_due(self, now_ms: int) -> None:
        for send in self._parts.link.expire(now_ms):
            self._request_failed(send, ErrorCode.REQUEST_TIMED_OUT, now_ms)
        self._protocol.tick(now_ms)
        self._parts.link.tick(now_ms)
        self._parts.commits.tick(now_ms)
        self._parts.fetches.tick(now_ms)
        if now_ms >= self._poll_due_ms:
            self._progress(now_ms)  # even if the host is late and the poll is over

    def _settle(self, now_ms: int) -> None:
        """Handle the consequences of an input and compute the next deadline."""
        while self._parts.link.broken:
            broken, self._parts.link.broken = self._parts.link.broken, []
            for send in broken:
                self._request_failed(send, ErrorCode.NETWORK_EXCEPTION, now_ms)
        self._rest_if_failed(now_ms)
        self._protocol.settle(now_ms)
        if not self._parts.commits.is_idle:
            self._parts.commits.tick(now_ms)
        if not self._parts.fetches.is_idle:
            self._parts.fetches.tick(now_ms)
        if self._is_unsubscribing and not self._parts.awaits_listener:
            self._finish_unsubscribing(now_ms)
        if self._closing is not None:
            self._go_on_closing(self._closing, now_ms)
        elif now_ms < self._poll_until_ms:
            self._progress(now_ms)
            self._rest_if_failed(now_ms)
        self._update_deadlines(now_ms)

    def _rest_if_failed(self, now_ms: int) -> None:
        if self._parts.membership.has_ended:
            self._parts.link.rest()
            self._protocol.rest()
            self._parts.commits.give_up(now_ms)
            self._parts.fetches.give_up(now_ms)

    def _progress(self, now_ms: int) -> None:
        if self._parts.membership.has_ended or self._closing is not None or self._is_unsubscribing:
            return
        self._parts.commits.report_completed(now_ms)
        kind = self._parts.subscription.kind
        if kind is SubscriptionKind.NONE:
            return
        if kind is SubscriptionKind.MANUAL or self._protocol.progress(now_ms):
            self._parts.commits.auto_commit_if_due(now_ms)

    # ------------------------------------------------------------ leaving

    def _finish_unsubscribing(self, now_ms: int) -> None:
        self._is_unsubscribing = False
        self._parts.subscription.unsubscribe()
        self._parts.topic_metadata.forget()
        self._protocol.leave(CloseOperation.DEFAULT, _UNSUBSCRIBE_REASON, now_ms)

    def _go_on_closing(self, closing: Closing, now_ms: int) -> None:
        is_late = now_ms >= closing.deadline_ms
        if closing.step is ClosingStep.COMMITS:
            is_committed = closing.commit is None or closing.commit.outcome is not None
            if is_late or (is_committed and not self._parts.commits.has_waiting):
                self._parts.commits.report_completed(now_ms)
                self._protocol.begin_closing()
                self._protocol.drop_all()
                closing.step = ClosingStep.LISTENER
        if closing.step is ClosingStep.LISTENER and (is_late or not self._parts.awaits_listener):
            self._parts.subscription.unsubscribe()
            self._protocol.leave(closing.operation, _CLOSE_REASON, now_ms)
            closing.step = ClosingStep.ANSWERS
        if closing.step is ClosingStep.ANSWERS and (is_late or not self._parts.link.awaits_coordinator):
            self._end(now_ms)

    def _end(self, now_ms: int) -> None:
        if self._parts.membership.state is not MemberState.CLOSED:
            self._parts.link.abandon()
            self._parts.commits.report_completed(now_ms)
            self._parts.membership.move(MemberState.CLOSED)
            self._parts.outputs.append(Closed())

    # ------------------------------------------------------------ time

    def _update_deadlines(self, now_ms: int) -> None:
        others_ms = NEVER_MS
        is_quiet = self._parts.membership.state is MemberState.STABLE and self._parts.link.node is not None
        if not self._parts.commits.is_idle:
            is_quiet = False
            others_ms = self._parts.commits.deadline_ms()
        if not self._parts.fetches.is_idle:
            is_quiet = False
            others_ms = min(others_ms, self._parts.fetches.deadline_ms())
        self._poll_due_ms = self._next_in_poll_ms() if now_ms < self._poll_until_ms else NEVER_MS
        if self._closing is None:
            others_ms = min(others_ms, self._poll_due_ms)
        else:
            is_quiet = False
            if self._parts.membership.state is not MemberState.CLOSED:
                others_ms = min(others_ms, self._closing.deadline_ms)
        self._is_quiet = is_quiet and not self._protocol.is_busy
        self._others_ms = others_ms
        self._deadline_ms = min(others_ms, self._parts.link.deadline_ms(), self._protocol.deadline_ms())

    def _next_in_poll_ms(self) -> int:
        """Return when the application's poll has something to do, if it still runs then."""
        kind = self._parts.subscription.kind
        if kind is SubscriptionKind.NONE or self._is_unsubscribing or self._parts.membership.has_ended:
            return NEVER_MS
        is_manual = kind is SubscriptionKind.MANUAL
        deadline_ms = NEVER_MS if is_manual else self._protocol.progress_deadline_ms()
        if self._parts.config.enable_auto_commit and (is_manual or not self._protocol.is_busy):
            deadline_ms = min(deadline_ms, self._parts.commits.next_auto_ms)
        return deadline_ms if deadline_ms < self._poll_until_ms else NEVER_MS
