"""Parts of a member: the order in which inputs reach them, the closing sequence, and their factory."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from attrs import define, field

from groupcoord.core.messages import FindCoordinator, OffsetCommit, OffsetFetch, Response
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.member.assignors import ASSIGNORS, Assignor, RebalanceProtocol
from groupcoord.member.classic.heartbeats import MembershipManager
from groupcoord.member.classic.protocol import ClassicProtocol
from groupcoord.member.config import MemberConfig
from groupcoord.member.consumer.heartbeats import ConsumerMembership
from groupcoord.member.consumer.protocol import ConsumerProtocol
from groupcoord.member.coordinator_link import NEVER_MS, CoordinatorLink, ExponentialBackoff
from groupcoord.member.membership import Membership, MemberState
from groupcoord.member.offsets import CommitKind, Commits, Fetches
from groupcoord.member.outputs import Closed, ListenerGate, Output, Send
from groupcoord.member.protocol import CloseOperation, Closing, ClosingStep, GroupProtocol, Parts
from groupcoord.member.subscription import SubscriptionKind, SubscriptionState, TopicMetadata

_UNSUBSCRIBE_REASON = "the consumer unsubscribed from all topics"
_CLOSE_REASON = "the consumer is being closed"


@define(eq=False, repr=False)
class Dispatcher:
    """Passes inputs to the parts of a member.

    Attributes:
        is_unsubscribing: whether the member leaves once the listener has handled the revocation of all partitions.
        poll_until_ms: the end of the application's current poll.
        deadline_ms: when :meth:`tick` is due.
    """

    _parts: Parts
    _protocol: GroupProtocol
    _poll_due_ms: int = field(default=NEVER_MS, init=False)  # when the application's poll has something to do
    _others_ms: int = field(default=NEVER_MS, init=False)  # deadline of all but heartbeats and their responses
    # In the group, with nothing due but heartbeats and automatic commits.
    _is_quiet: bool = field(default=False, init=False)
    closing: Closing | None = field(default=None, init=False)
    is_unsubscribing: bool = field(default=False, init=False)
    poll_until_ms: int = field(default=0, init=False)
    deadline_ms: int = field(default=NEVER_MS, init=False)

    # ------------------------------------------------------------ responses

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        # Fast path: nothing but the deadline depends on such a response.
        if self._is_quiet and self._protocol.answered(send, response, now_ms):
            self._update_quiet_deadline()
        else:
            self._hand_over(send, response, now_ms)
            self.settle(now_ms)

    def _hand_over(self, send: Send, response: Response, now_ms: int) -> None:
        request = send.request
        if isinstance(request, OffsetCommit):
            self._parts.commits.receive(send, response, now_ms)
        elif isinstance(request, OffsetFetch):
            self._parts.fetches.receive(send, response, now_ms)
        elif isinstance(request, FindCoordinator):
            self._looked_up(response, now_ms)
        else:
            self._protocol.receive(send, response, now_ms)

    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        request = send.request
        if isinstance(request, OffsetCommit):
            self._parts.commits.failed(send, error_code, now_ms)
        elif isinstance(request, OffsetFetch):
            self._parts.fetches.failed(send, error_code, now_ms)
        elif isinstance(request, FindCoordinator):
            self._lookup_failed(error_code, now_ms)
        else:
            self._protocol.failed(send, error_code, now_ms)

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

    # ------------------------------------------------------------ progress

    def tick(self, now_ms: int) -> None:
        if (
            self._is_quiet
            and now_ms < self._others_ms
            and now_ms < self._parts.link.deadline_ms()
            and self._protocol.beat_on(now_ms)
        ):
            self._update_quiet_deadline()
        else:
            self._do_what_is_due(now_ms)
            self.settle(now_ms)

    def _update_quiet_deadline(self) -> None:
        self.deadline_ms = min(self._others_ms, self._parts.link.deadline_ms(), self._protocol.deadline_ms())

    def _do_what_is_due(self, now_ms: int) -> None:
        for send in self._parts.link.expire(now_ms):
            self.failed(send, ErrorCode.REQUEST_TIMED_OUT, now_ms)
        self._protocol.tick(now_ms)
        self._parts.link.tick(now_ms)
        self._parts.commits.tick(now_ms)
        self._parts.fetches.tick(now_ms)
        if now_ms >= self._poll_due_ms:
            self.progress(now_ms)  # even if the host is late and the poll is over

    def settle(self, now_ms: int) -> None:
        """Handle the consequences of an input and compute the next deadline."""
        while self._parts.link.broken:
            broken, self._parts.link.broken = self._parts.link.broken, []
            for send in broken:
                self.failed(send, ErrorCode.NETWORK_EXCEPTION, now_ms)
        self._rest_if_failed(now_ms)
        self._protocol.settle(now_ms)
        if not self._parts.commits.is_idle:
            self._parts.commits.tick(now_ms)
        if not self._parts.fetches.is_idle:
            self._parts.fetches.tick(now_ms)
        if self.is_unsubscribing and not self._parts.gate.is_shut:
            self._finish_unsubscribing(now_ms)
        if self.closing is not None:
            self._go_on_closing(self.closing, now_ms)
        elif now_ms < self.poll_until_ms:
            self.progress(now_ms)
            self._rest_if_failed(now_ms)
        self._update_deadlines(now_ms)

    def _rest_if_failed(self, now_ms: int) -> None:
        if self._parts.membership.has_ended:
            self._parts.link.rest()
            self._protocol.rest()
            self._parts.commits.give_up(now_ms)
            self._parts.fetches.give_up(now_ms)

    def progress(self, now_ms: int) -> None:
        if self._parts.membership.has_ended or self.closing is not None or self.is_unsubscribing:
            return
        self._parts.commits.tell_completed(now_ms)
        kind = self._parts.subscription.kind
        if kind is SubscriptionKind.NONE:
            return
        if kind is SubscriptionKind.MANUAL or self._protocol.progress(now_ms):
            self._parts.commits.auto_commit_if_due(now_ms)

    # ------------------------------------------------------------ leaving

    def _finish_unsubscribing(self, now_ms: int) -> None:
        self.is_unsubscribing = False
        self._parts.subscription.unsubscribe()
        self._parts.topic_metadata.forget()
        self._protocol.leave(CloseOperation.DEFAULT, _UNSUBSCRIBE_REASON, now_ms)

    # ------------------------------------------------------------ closing

    def close(self, now_ms: int, deadline_ms: int, operation: CloseOperation) -> None:
        commit = None
        self._parts.gate.is_shut = False  # closing does not wait for the listener's earlier event
        if self._parts.config.enable_auto_commit and not self._parts.membership.has_ended:
            commit = self._parts.commits.begin_all(CommitKind.SYNC, now_ms, deadline_ms)
        self.closing = Closing(deadline_ms, operation, commit)

    def _go_on_closing(self, closing: Closing, now_ms: int) -> None:
        is_late = now_ms >= closing.deadline_ms
        if closing.step is ClosingStep.COMMITS:
            is_committed = closing.commit is None or closing.commit.outcome is not None
            if is_late or (is_committed and not self._parts.commits.has_waiting):
                self._parts.commits.tell_completed(now_ms)
                self._protocol.begin_closing()
                self._protocol.drop_all()
                closing.step = ClosingStep.LISTENER
        if closing.step is ClosingStep.LISTENER and (is_late or not self._parts.gate.is_shut):
            self._parts.subscription.unsubscribe()
            self._protocol.leave(closing.operation, _CLOSE_REASON, now_ms)
            closing.step = ClosingStep.ANSWERS
        if closing.step is ClosingStep.ANSWERS and (is_late or not self._parts.link.awaits_coordinator):
            self._end(now_ms)

    def _end(self, now_ms: int) -> None:
        if self._parts.membership.state is not MemberState.CLOSED:
            self._parts.link.abandon()
            self._parts.commits.tell_completed(now_ms)
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
        self._poll_due_ms = self._next_in_poll_ms() if now_ms < self.poll_until_ms else NEVER_MS
        if self.closing is None:
            others_ms = min(others_ms, self._poll_due_ms)
        else:
            is_quiet = False
            if self._parts.membership.state is not MemberState.CLOSED:
                others_ms = min(others_ms, self.closing.deadline_ms)
        self._is_quiet = is_quiet and not self._protocol.is_busy
        self._others_ms = others_ms
        self.deadline_ms = min(others_ms, self._parts.link.deadline_ms(), self._protocol.deadline_ms())

    def _next_in_poll_ms(self) -> int:
        """Return when the application's poll has something to do, if it still runs then."""
        kind = self._parts.subscription.kind
        if kind is SubscriptionKind.NONE or self.is_unsubscribing or self._parts.membership.has_ended:
            return NEVER_MS
        is_manual = kind is SubscriptionKind.MANUAL
        deadline_ms = NEVER_MS if is_manual else self._protocol.progress_deadline_ms()
        if self._parts.config.enable_auto_commit and (is_manual or not self._protocol.is_busy):
            deadline_ms = min(deadline_ms, self._parts.commits.next_auto_ms)
        return deadline_ms if deadline_ms < self.poll_until_ms else NEVER_MS


def no_jitter() -> float:
    """Return the value that gives every wait its exact length."""
    return 0.5


def assemble(
    config: MemberConfig,
    assignors: Sequence[Assignor] | None,
    random: Callable[[], float],
    member_id: str | None,
    *,
    waits_for_listener: bool,
) -> tuple[Parts, GroupProtocol]:
    outputs: list[Output] = []
    if config.is_consumer_protocol:
        if assignors is not None:
            raise ConfigError("setting 'group.protocol' is 'consumer': the coordinator assigns, not the member")
        consumer = ConsumerMembership(config.group_instance_id, outputs, member_id or new_member_id(random))
        parts = _parts(config, consumer, outputs, random, waits_for_listener=waits_for_listener)
        return parts, ConsumerProtocol(parts, consumer)
    chosen = tuple(assignors) if assignors is not None else chosen_assignors(config.partition_assignment_strategy)
    protocol = _common_protocol(chosen)
    classic = MembershipManager(config.group_instance_id, outputs)
    parts = _parts(config, classic, outputs, random, waits_for_listener=waits_for_listener)
    return parts, ClassicProtocol(parts, classic, {assignor.name: assignor for assignor in chosen}, protocol)


def _parts(
    config: MemberConfig,
    membership: Membership,
    outputs: list[Output],
    random: Callable[[], float],
    *,
    waits_for_listener: bool,
) -> Parts:
    backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
    link = CoordinatorLink(config, backoff, outputs)
    subscription = SubscriptionState(config.exclude_internal_topics)
    return Parts(
        config=config,
        membership=membership,
        link=link,
        subscription=subscription,
        commits=Commits(config, link, membership, subscription, backoff, outputs),
        fetches=Fetches(config.group_id, link, membership, backoff, outputs),
        topic_metadata=TopicMetadata(bool(config.client_rack)),
        backoff=backoff,
        gate=ListenerGate(outputs, waits_for_listener),
        outputs=outputs,
    )


def new_member_id(random: Callable[[], float]) -> str:
    """Return a new member id in Kafka's text form of UUIDs: base64 of 16 bytes, without a leading dash.

    With :func:`no_jitter` it is random; otherwise equal sources of randomness give equal ids.
    """
    while True:
        raw = uuid4().bytes if random is no_jitter else bytes(int(random() * 256) for _ in range(16))
        text = urlsafe_b64encode(raw).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def chosen_assignors(names: Iterable[str]) -> tuple[Assignor, ...]:
    """Return the assignors that ``partition.assignment.strategy`` names.

    Raises:
        ConfigError: an assignor does not exist.
    """
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown:
        raise ConfigError(
            f"setting 'partition.assignment.strategy' names an unknown assignor {unknown[0]!r}; "
            f"there are {', '.join(ASSIGNORS)}"
        )
    return tuple(ASSIGNORS[name]() for name in names)


def _common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    common = [
        protocol
        for protocol in (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
        if all(protocol in assignor.supported_protocols for assignor in assignors)
    ]
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ConfigError(
            f"setting 'partition.assignment.strategy': the assignors {names} have no rebalance protocol in common"
        )
    return common[0]
