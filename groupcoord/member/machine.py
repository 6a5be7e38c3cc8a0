"""A consumer's part in a group: a state machine without I/O, clock or randomness of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages import Node, Response
from groupcoord.errors import ErrorCode
from groupcoord.member.assembly import assemble, no_jitter
from groupcoord.member.assignors import Assignor, Cluster
from groupcoord.member.closing import CloseOperation
from groupcoord.member.commits import Commit, CommitKind
from groupcoord.member.config import MemberConfig
from groupcoord.member.dispatch import Dispatcher
from groupcoord.member.fetches import Fetch
from groupcoord.member.membership import IllegalCallError, MemberState
from groupcoord.member.outputs import ComputedAssignment, MetadataNeeded, OffsetAndMetadata, Output, Send
from groupcoord.member.subscription import SubscriptionPattern, to_offset
from groupcoord.member.timing import NEVER_MS


class Member:
    """A Kafka consumer as its group's coordinator sees it: joins, beats, rebalances, commits, leaves.

    It does what the Java consumer of Kafka 4.4 does, with ``group.protocol=classic`` or ``consumer``. The host calls
    the methods, takes out what they want done (:meth:`take_outputs`) and comes back in time
    (:meth:`next_deadline_ms`, :meth:`tick`). Every call that takes ``now_ms`` may put something out. Times are
    milliseconds of one clock that never goes back.

    As with the Java consumer, joining and the events of assignments happen inside of :meth:`poll` only; heartbeats and
    answers to requests don't wait for it. An application that lets more than ``max.poll.interval.ms`` pass between two
    polls is taken out of the group.

    Args:
        config: the consumer's settings.
        assignors: the objects that assign when this member leads; None: those that
            ``partition.assignment.strategy`` names. A member needs objects of its own. Only in the classic protocol.
        now_ms: the time; the first automatic commit is due ``auto.commit.interval.ms`` from now.
        random: a source of numbers from 0 up to, but not, 1, for the jitter of waits; by default there is none.
        waits_for_listener: after each :class:`PartitionsRevoked`, :class:`PartitionsAssigned` and
            :class:`PartitionsLost` event, go on only when :meth:`listener_returned` is called, as the Java consumer
            waits for its ``ConsumerRebalanceListener``. Revoked partitions' offsets can be committed until then.
        member_id: with ``group.protocol=consumer`` the member's id for all its life, which the member makes (KIP-1082);
            None: one made of ``random``, a random one if there is no jitter.

    Raises:
        ConfigError: an assignor's name is unknown, the assignors have no rebalance protocol in common, or there are
            any though the coordinator assigns.
    """

    __slots__ = (
        "_commits",
        "_config",
        "_dispatcher",
        "_fetches",
        "_gate",
        "_last_id",
        "_link",
        "_membership",
        "_outputs",
        "_protocol",
        "_subscription",
        "_topic_metadata",
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
        parts, self._protocol = assemble(config, assignors, random, member_id, waits_for_listener=waits_for_listener)
        self._outputs = parts.outputs
        self._gate = parts.gate
        self._link = parts.link
        self._membership = parts.membership
        self._subscription = parts.subscription
        self._topic_metadata = parts.topic_metadata
        self._commits = parts.commits
        self._commits.restart_interval(now_ms)
        self._fetches = parts.fetches
        self._dispatcher = Dispatcher(parts, self._protocol)
        self._last_id = 0

    # ------------------------------------------------------------ what the application calls

    def subscribe(self, topics: Iterable[str], now_ms: int) -> None:
        """Subscribe to topics; no topics at all is :meth:`unsubscribe`. The next poll joins, or joins again.

        Raises:
            IllegalCallError: the member is closed, has no group, or assigned itself partitions.
        """

        wanted = tuple(topics)
        if isinstance(topics, str) or not all(isinstance(topic, str) and topic.strip() for topic in wanted):
            raise ValueError(f"topics are a list of names, not {topics!r}")
        self._check_may_subscribe()
        if not wanted:
            self.unsubscribe(now_ms)
            return
        self._subscription.subscribe(wanted)
        self._want_topics()
        self._dispatcher.settle(now_ms)

    def subscribe_pattern(self, pattern: str | SubscriptionPattern, now_ms: int) -> None:
        """Subscribe to all topics whose whole names match a regular expression.

        Args:
            pattern: an expression of Python, which the member matches with all topics of the cluster; or a
                :class:`SubscriptionPattern`, which the coordinator does (``group.protocol=consumer``).
            now_ms: the time.

        Raises:
            IllegalCallError: see :meth:`subscribe`; or the coordinator can't, as the protocol is the classic one.
            ValueError: it is no regular expression.
        """

        self._check_may_subscribe()
        if isinstance(pattern, SubscriptionPattern):
            if not self._config.is_consumer_protocol:
                raise IllegalCallError("a SubscriptionPattern needs 'group.protocol' to be 'consumer'")
            self._subscription.subscribe_regex(pattern)
            self._dispatcher.settle(now_ms)
            return
        try:
            self._subscription.subscribe_pattern(pattern, self._topic_metadata.cluster.topics)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        self._dispatcher.settle(now_ms)

    def assign(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Take these partitions, without group management; none at all is :meth:`unsubscribe`.

        Raises:
            IllegalCallError: the member is closed or subscribed.
        """

        self._check_open()
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            self.unsubscribe(now_ms)
            return
        self._subscription.assign(wanted)
        self._want_topics()
        self._dispatcher.settle(now_ms)

    def unsubscribe(self, now_ms: int) -> None:
        """Give up all partitions and the subscription, and leave the group (a static member: without a word)."""

        self._check_open()
        self._protocol.drop_all()
        self._dispatcher.is_unsubscribing = True
        self._dispatcher.settle(now_ms)

    def poll(self, now_ms: int, timeout_ms: int = 0) -> None:
        """Be in the application's ``poll`` from now until ``now_ms + timeout_ms``: join and rejoin as needed.

        Another call, also with time-out 0, takes the place of the one before: the application has polled again.
        An application that does nothing but poll is one call with a very long time-out.
        """

        self._check_open()
        self._dispatcher.poll_until_ms = now_ms + timeout_ms
        self._protocol.polled(now_ms + timeout_ms)
        self._dispatcher.progress(now_ms)
        self._dispatcher.settle(now_ms)

    def enforce_rebalance(self, now_ms: int, reason: str = "") -> None:
        """Join again with the next poll, though there is no need (KIP-568). In a consumer group this does nothing."""

        self._check_open()
        self._protocol.request_rejoin(reason or "rebalance enforced by user")
        self._dispatcher.settle(now_ms)

    def consumed(self, positions: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Say where the application is: the next offset to read, by partition. Automatic commits commit this.

        Partitions that the member does not have are left aside.
        """

        self._subscription.consumed(positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Don't fetch these partitions until :meth:`resume`, or until they are assigned anew."""

        self._subscription.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Take :meth:`pause` back."""

        self._subscription.resume(partitions)

    def commit_sync(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        now_ms: int,
        timeout_ms: int | None = None,
    ) -> int:
        """Commit, and repeat that while errors may pass; a :class:`CommitCompleted` tells the end.

        Without offsets, it ends when all asynchronous commits that are under way have.

        Args:
            offsets: what to commit.
            now_ms: the time.
            timeout_ms: give up after this time; None: ``default.api.timeout.ms``.

        Returns:
            the id that the event will carry.

        Raises:
            IllegalCallError: the member is closed or has no group.
            ValueError: an offset is negative.
        """

        wait_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        commit = self._new_commit(offsets, CommitKind.SYNC, now_ms + wait_ms)
        self._commits.begin_sync(commit, now_ms)
        self._dispatcher.settle(now_ms)
        return commit.commit_id

    def commit_async(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], now_ms: int) -> int:
        """Commit, once; a :class:`CommitCompleted` tells the outcome, inside of a later poll or commit.

        See :meth:`commit_sync` for arguments, result and errors.
        """

        commit = self._new_commit(offsets, CommitKind.ASYNC, 0)
        self._commits.begin_async(commit, now_ms)
        self._dispatcher.settle(now_ms)
        return commit.commit_id

    def fetch_offsets(self, partitions: Iterable[TopicPartition], now_ms: int, timeout_ms: int | None = None) -> int:
        """Ask for committed offsets; an :class:`OffsetsFetched` with the returned id brings them."""

        self._check_has_group()
        wait_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        wanted = tuple(dict.fromkeys(TopicPartition(*partition) for partition in partitions))
        self._last_id += 1
        fetch = Fetch(self._last_id, wanted, now_ms + wait_ms)
        self._fetches.begin(fetch, now_ms)
        self._dispatcher.settle(now_ms)
        return fetch.fetch_id

    def close(self, now_ms: int, timeout_ms: int = 30_000, operation: CloseOperation = CloseOperation.DEFAULT) -> None:
        """Commit (if that is automatic), give up the partitions, leave; :class:`Closed` tells the end.

        A second call changes nothing.

        Args:
            now_ms: the time.
            timeout_ms: how long to wait for answers at most.
            operation: whether to leave the group.
        """

        if self._dispatcher.closing is None:
            self._dispatcher.close(now_ms, now_ms + timeout_ms, operation)
        self._dispatcher.settle(now_ms)

    def recover(self, now_ms: int) -> None:
        """Go on after a :class:`Failed`: the next poll joins again. What the member owned counts as lost.

        In Java: the application catches what ``poll`` throws, and polls again.

        Raises:
            IllegalCallError: the member has not failed; or it is one of a consumer group, whose failures are final.
        """

        if self._membership.state is not MemberState.FAILED:
            raise IllegalCallError(f"the member has not failed: it is {self._membership.state.value}")
        self._protocol.recover()
        self._gate.is_shut = False
        self._dispatcher.settle(now_ms)

    # ------------------------------------------------------------ what the host brings

    def receive(self, request_id: int, response: Response, now_ms: int) -> None:
        """Take the answer to a request. Ids of requests that the member has given up are left aside."""

        send = self._link.in_flight.pop(request_id, None)
        if send is None:
            return
        self._dispatcher.receive(send, response, now_ms)

    def request_failed(self, request_id: int, error_code: ErrorCode, now_ms: int) -> None:
        """Take note that a request has no answer.

        Args:
            request_id: the request's.
            error_code: NETWORK_EXCEPTION if the connection was lost or could not be made, UNSUPPORTED_VERSION if the
                broker's versions can't say what the request says.
            now_ms: the time.
        """

        send = self._link.in_flight.pop(request_id, None)
        if send is None:
            return
        if send.to is not None and error_code is ErrorCode.NETWORK_EXCEPTION:
            self._link.broken.append(send)
            self._link.lose("disconnected")
        else:
            self._dispatcher.failed(send, error_code, now_ms)
        self._dispatcher.settle(now_ms)

    def disconnected(self, now_ms: int) -> None:
        """Take note that the connection to the coordinator is lost; every request to it has no answer."""

        self._link.lose("disconnected")
        self._dispatcher.settle(now_ms)

    def update_metadata(self, cluster: Cluster, now_ms: int) -> None:
        """Take what is known of topics now. It takes the place of what was known before.

        Args:
            cluster: at least all of :attr:`metadata_topics` that exist.
            now_ms: the time.
        """

        self._topic_metadata.update(cluster, (*self._subscription.watched_topics(), *(self.metadata_topics or ())))
        self._subscription.match(cluster.topics)
        self._protocol.metadata_updated(now_ms)
        self._dispatcher.settle(now_ms)

    def assignment_computed(self, computed: ComputedAssignment, now_ms: int) -> None:
        """Take the result of :meth:`AssignmentNeeded.compute`. One that comes too late is left aside."""

        self._protocol.assignment_computed(computed, now_ms)
        self._dispatcher.settle(now_ms)

    def listener_returned(self, now_ms: int) -> None:
        """Go on after an event that the member waits with (``waits_for_listener``); otherwise this does nothing."""

        if not self._gate.is_shut:
            return
        self._gate.is_shut = False
        self._dispatcher.progress(now_ms)
        self._dispatcher.settle(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due by now."""

        if now_ms >= self._dispatcher.deadline_ms:
            self._dispatcher.tick(now_ms)

    # ------------------------------------------------------------ what the host takes

    def take_outputs(self) -> list[Output]:
        """Return what is to be done and what happened since the last call, in order."""

        outputs = self._outputs.copy()
        self._outputs.clear()
        return outputs

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted at the latest; None: not before something else happens."""

        deadline_ms = self._dispatcher.deadline_ms
        return deadline_ms if deadline_ms < NEVER_MS else None

    @property
    def in_flight(self) -> Mapping[int, Send]:
        """The requests that it waits for answers to, by id; answers to others change nothing."""
        return self._link.in_flight

    @property
    def state(self) -> MemberState:
        """Where the member is in its life."""
        return self._membership.state

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave; empty before, and after leaving. In a consumer group: always the same."""
        return self._protocol.member_id

    @property
    def generation_id(self) -> int:
        """The generation (in a consumer group: the member epoch) that the member is in, or -1."""
        return self._protocol.generation_id

    @property
    def is_leader(self) -> bool:
        """Whether it assigned in this generation, and watches the topics for changes."""
        return self._protocol.is_leader

    @property
    def heartbeat_interval_ms(self) -> int:
        """The time between two heartbeats. In a consumer group the coordinator says it; 0 before."""
        return self._protocol.heartbeat_interval_ms

    @property
    def coordinator(self) -> Node | None:
        """The coordinator, as far as known."""
        return self._link.node

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that the member has, sorted."""
        return tuple(self._subscription.positions)

    @property
    def fetchable(self) -> tuple[TopicPartition, ...]:
        """The partitions to read from now: those neither paused nor about to be revoked, sorted."""
        return self._subscription.fetchable()

    @property
    def metadata_topics(self) -> tuple[str, ...] | None:
        """The topics that :meth:`update_metadata` must tell of, sorted: its own, a leader's also those of the others.

        None: all topics of the cluster, since the subscription is a pattern.
        """
        return self._subscription.metadata_topics()

    @property
    def is_steady(self) -> bool:
        """Whether nothing but heartbeats will happen until the next input or another deadline than theirs."""

        return (
            self._membership.state is MemberState.STABLE
            and self._link.node is not None
            and not self._link.in_flight
            and self._commits.is_idle
            and self._fetches.is_idle
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
        if self._topic_metadata.missing(self._subscription.metadata_topics() or ()):
            self._outputs.append(MetadataNeeded(self._subscription.metadata_topics()))
