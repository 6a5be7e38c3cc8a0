"""OffsetFetch requests of a member, retried after retriable errors."""

from __future__ import annotations

from attrs import define

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages import GroupToFetch, OffsetFetch, OffsetFetchResponse, Response, TopicToFetch
from groupcoord.errors import ErrorCode
from groupcoord.member.config import MemberConfig
from groupcoord.member.link import CoordinatorLink
from groupcoord.member.membership import Membership
from groupcoord.member.outputs import OffsetAndMetadata, OffsetsFetched, Output, Send
from groupcoord.member.reactions import Reaction
from groupcoord.member.timing import NEVER_MS, ExponentialBackoff

_FAILED = "the member has failed"


@define(eq=False)
class Fetch:
    """A request for committed offsets; ``retry_ms`` is None while it is in flight."""

    fetch_id: int
    partitions: tuple[TopicPartition, ...]
    deadline_ms: int
    attempts: int = 0
    retry_ms: int | None = None
    outcome: OffsetsFetched | None = None


class Fetches:
    """Requests for committed offsets without a result yet."""

    __slots__ = ("_backoff", "_fetches", "_group_id", "_link", "_membership", "_outputs")

    def __init__(
        self,
        config: MemberConfig,
        link: CoordinatorLink,
        membership: Membership,
        backoff: ExponentialBackoff,
        outputs: list[Output],
    ) -> None:
        self._group_id = config.group_id
        self._link = link
        self._membership = membership
        self._backoff = backoff
        self._outputs = outputs
        self._fetches: list[Fetch] = []

    def begin(self, fetch: Fetch, now_ms: int) -> None:
        """Send a request. Without partitions the result is there at once."""
        fetch.retry_ms = now_ms
        self._fetches.append(fetch)
        if self._membership.has_ended:
            self._finish(fetch, ErrorCode.UNKNOWN_SERVER_ERROR, _FAILED)
        elif not fetch.partitions:
            fetch.outcome = OffsetsFetched(fetch.fetch_id, {})
        self.tick(now_ms)

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        """Handle a response."""
        fetch = send.purpose
        assert isinstance(fetch, Fetch)
        if not isinstance(response, OffsetFetchResponse) or len(response.groups) != 1:
            self._malformed(fetch, f"{type(response).__name__} is no answer to it")
            return
        group = response.groups[0]
        if group.error_code is not ErrorCode.NONE:
            self._react(fetch, group.error_code, group.error_code.name, now_ms)
            return
        offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
        denied, unstable = [], False
        for topic in group.topics:
            for found in topic.partitions:
                partition = TopicPartition(str(topic.name), found.partition_index)
                if partition not in fetch.partitions:
                    self._malformed(fetch, f"it answers for {topic.name}-{found.partition_index}, not asked for")
                    return
                if found.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    denied.append(partition.topic)
                elif found.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    unstable = True
                elif found.error_code is not ErrorCode.NONE:
                    message = f"{topic.name}-{found.partition_index}: {found.error_code.name}"
                    self._finish(fetch, found.error_code, message)
                    return
                elif found.committed_offset < 0:
                    offsets[partition] = None
                else:
                    offsets[partition] = OffsetAndMetadata(
                        found.committed_offset, found.committed_leader_epoch, found.metadata or ""
                    )
        if denied:
            message = f"not authorized to read {', '.join(dict.fromkeys(denied))}"
            self._finish(fetch, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        elif unstable:
            self._retry(fetch, now_ms)
        else:
            fetch.outcome = OffsetsFetched(fetch.fetch_id, offsets)

    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        """Handle a request without a response."""
        fetch = send.purpose
        assert isinstance(fetch, Fetch)
        if error_code is ErrorCode.NETWORK_EXCEPTION:
            self._retry(fetch, now_ms)
        else:
            self._finish(fetch, error_code, error_code.name)

    def _react(self, fetch: Fetch, error_code: ErrorCode, message: str, now_ms: int) -> None:
        reaction = self._membership.reactions.to(OffsetFetch, error_code)
        if reaction is Reaction.TAKE_EPOCH:
            reaction = Reaction.RETRY if self._membership.has_new_epoch() else Reaction.REPORT
        if reaction is Reaction.FIND_COORDINATOR:
            self._link.lose(f"error response {error_code.name}")
        if reaction is Reaction.REPORT:
            self._finish(fetch, error_code, message)
        else:
            self._retry(fetch, now_ms)

    def _malformed(self, fetch: Fetch, message: str) -> None:
        self._finish(fetch, ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self._membership.fail("OffsetFetch", ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def _retry(self, fetch: Fetch, now_ms: int) -> None:
        fetch.retry_ms = now_ms + self._backoff.wait_ms(fetch.attempts)
        fetch.attempts += 1

    def _finish(self, fetch: Fetch, error_code: ErrorCode, message: str) -> None:
        if fetch.outcome is None:
            fetch.outcome = OffsetsFetched(fetch.fetch_id, {}, error_code, message)

    def tick(self, now_ms: int) -> None:
        """Retry requests that are due and report results."""
        for fetch in self._fetches:
            if fetch.outcome is None and fetch.retry_ms is not None and now_ms >= fetch.retry_ms:
                if self._link.node is not None:
                    self._send(fetch, now_ms)
                else:
                    self._link.find(now_ms)
            if now_ms >= fetch.deadline_ms:
                self._finish(fetch, ErrorCode.REQUEST_TIMED_OUT, "its time was over")
        if any(fetch.outcome is not None for fetch in self._fetches):
            self._outputs += [fetch.outcome for fetch in self._fetches if fetch.outcome is not None]
            self._fetches = [fetch for fetch in self._fetches if fetch.outcome is None]

    def _send(self, fetch: Fetch, now_ms: int) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in fetch.partitions:
            by_topic.setdefault(topic, []).append(partition)
        topics = tuple(TopicToFetch(topic, tuple(indexes)) for topic, indexes in by_topic.items())
        fetch.retry_ms = None
        identity = self._membership.fetch_identity()
        group = GroupToFetch(self._group_id, topics)
        if identity is not None:
            group = GroupToFetch(self._group_id, topics, identity.member_id, identity.generation_id)
        request = OffsetFetch((group,), require_stable=True)
        self._link.send(request, now_ms, fetch)

    def give_up(self, now_ms: int) -> None:
        """End waiting requests after a failure of the member."""
        for fetch in self._fetches:
            if fetch.retry_ms is not None:
                self._finish(fetch, ErrorCode.UNKNOWN_SERVER_ERROR, _FAILED)
        self.tick(now_ms)

    @property
    def is_idle(self) -> bool:
        """Whether every request has a result."""
        return not self._fetches

    def deadline_ms(self) -> int:
        """Return when a request is to be retried or times out."""
        deadlines = [fetch.deadline_ms for fetch in self._fetches]
        if self._link.node is not None:
            deadlines += [fetch.retry_ms for fetch in self._fetches if fetch.retry_ms is not None]
        return min(deadlines, default=NEVER_MS)
