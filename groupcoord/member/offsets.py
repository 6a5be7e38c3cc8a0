"""Commits and OffsetFetch requests of a member."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from attrs import define, field

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages import (
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    Response,
    TopicToCommit,
    TopicToFetch,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.error_handling import Reaction
from groupcoord.member.membership import CommitRefusal, MemberIdentity
from groupcoord.member.outputs import CommitCompleted, CommitFailure, OffsetAndMetadata, OffsetsFetched, Send

if TYPE_CHECKING:
    from groupcoord.member.parts import Parts

_FAILED = "the member has failed"

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class CommitKind(Enum):
    """Origin of a commit, and whether it is synchronous."""

    SYNC = "sync"
    ASYNC = "async"
    AUTO = "auto"
    BEFORE_REVOCATION = "automatic, and repeated, as a revocation waits for it"

    @property
    def is_repeated(self) -> bool:
        return self in (CommitKind.SYNC, CommitKind.BEFORE_REVOCATION)


@define(eq=False)
class Commit:
    """A commit in progress.

    Attributes:
        deadline_ms, attempts, retry_ms: of a synchronous commit; ``retry_ms`` is None while an attempt is in flight.
        outcome: the result, once it is done.
    """

    commit_id: int
    offsets: Offsets
    kind: CommitKind
    deadline_ms: int = 0
    attempts: int = 0
    retry_ms: int | None = None
    outcome: CommitCompleted | None = None


@define(eq=False)
class _Purpose:
    """The commit of a request, and the identity that it was sent with."""

    commit: Commit
    identity: MemberIdentity


@define(eq=False, repr=False)
class Commits:
    """Commits that wait, are in flight, or are not reported yet.

    Attributes:
        next_auto_ms: when the next automatic commit is due.
    """

    _parts: Parts
    _async_in_flight: int = field(default=0, init=False)
    _waiting: list[Commit] = field(factory=list, init=False)  # asynchronous, without a coordinator
    _completed: list[Commit] = field(factory=list, init=False)  # asynchronous, done but not reported
    _syncs: list[Commit] = field(factory=list, init=False)
    next_auto_ms: int = field(default=0, init=False)

    # ------------------------------------------------------------ beginning

    def begin_async(self, commit: Commit, now_ms: int) -> None:
        """Commit once. Without a coordinator, wait for one lookup and fail if it fails."""
        self.report_completed(now_ms)
        if self._parts.membership.has_ended:
            self._finish(commit, CommitFailure.ERROR, ErrorCode.NONE, _FAILED)
        elif not commit.offsets:
            self._finish(commit, None)
        elif self._parts.link.node is not None:
            self._send(commit, now_ms)
        else:
            self._waiting.append(commit)
            self._parts.link.find(now_ms, at_once=True)

    def begin_sync(self, commit: Commit, now_ms: int) -> None:
        self.report_completed(now_ms)
        if self._parts.membership.has_ended:
            self._finish(commit, CommitFailure.ERROR, ErrorCode.NONE, _FAILED)
        commit.retry_ms = now_ms
        self._syncs.append(commit)
        self.tick(now_ms)

    def begin_all(self, kind: CommitKind, now_ms: int, deadline_ms: int = 0) -> Commit | None:
        """Commit all known positions; return None if there are none."""
        offsets = self._parts.subscription.all_consumed()
        if not offsets:
            return None
        commit = Commit(0, offsets, kind, deadline_ms)
        (self.begin_sync if kind.is_repeated else self.begin_async)(commit, now_ms)
        return commit

    def auto_commit_if_due(self, now_ms: int) -> None:
        if self._parts.config.enable_auto_commit and now_ms >= self.next_auto_ms:
            self.restart_interval(now_ms)
            self.begin_all(CommitKind.AUTO, now_ms)

    def restart_interval(self, now_ms: int) -> None:
        self.next_auto_ms = now_ms + self._parts.config.auto_commit_interval_ms

    # ------------------------------------------------------------ sending

    def _send(self, commit: Commit, now_ms: int) -> None:
        identity = self._parts.membership.commit_identity(is_auto_assigned=self._parts.subscription.is_auto_assigned)
        if isinstance(identity, CommitRefusal):
            self._finish(commit, identity.failure, ErrorCode.NONE, identity.message)
            return
        by_topic: dict[str, list[OffsetToCommit]] = {}
        for (topic, partition), offset in commit.offsets.items():
            entry = OffsetToCommit(partition, offset.offset, offset.leader_epoch, offset.metadata)
            by_topic.setdefault(topic, []).append(entry)
        topics = tuple([TopicToCommit(topic, tuple(entries)) for topic, entries in by_topic.items()])
        request = OffsetCommit(self._parts.config.group_id, topics, *identity)
        commit.retry_ms = None
        if not commit.kind.is_repeated:
            self._async_in_flight += 1
        self._parts.link.send(request, now_ms, _Purpose(commit, identity))

    def coordinator_found(self, now_ms: int) -> None:
        waiting, self._waiting = self._waiting, []
        for commit in waiting:
            self._send(commit, now_ms)

    def lookup_failed(self, error_code: ErrorCode) -> None:
        """Fail the commits that waited for the lookup: a retry could overtake newer commits."""
        waiting, self._waiting = self._waiting, []
        for commit in waiting:
            self._finish(commit, CommitFailure.RETRIABLE, error_code, "the coordinator was not found")

    # ------------------------------------------------------------ responses

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        purpose = self._answered(send)
        if not isinstance(response, OffsetCommitResponse):
            self._malformed(purpose.commit, f"{type(response).__name__} is no answer to it")
            return
        offsets = purpose.commit.offsets
        denied = []
        for topic in response.topics:
            for partition_index, error_code in topic.partitions:
                if (topic.name, partition_index) not in offsets:
                    self._malformed(purpose.commit, f"it answers for {topic.name}-{partition_index}, not requested")
                    return
                if error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    denied.append(str(topic.name))
                elif error_code is not ErrorCode.NONE:
                    self._react(purpose, error_code, f"{topic.name}-{partition_index}: {error_code.name}", now_ms)
                    return
        if denied:
            names = ", ".join(dict.fromkeys(denied))
            message = f"not authorized to commit to {names}"
            self._finish(purpose.commit, CommitFailure.ERROR, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        else:
            self._finish(purpose.commit, None)

    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        purpose = self._answered(send)
        if error_code is ErrorCode.NETWORK_EXCEPTION:
            self._retry(purpose.commit, error_code, "the connection to the coordinator was lost", now_ms)
        else:
            self._finish(purpose.commit, CommitFailure.ERROR, error_code, error_code.name)

    def _answered(self, send: Send) -> _Purpose:
        purpose = send.purpose
        assert isinstance(purpose, _Purpose)
        if not purpose.commit.kind.is_repeated:
            self._async_in_flight -= 1
        return purpose

    def _malformed(self, commit: Commit, message: str) -> None:
        self._finish(commit, CommitFailure.ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self._parts.membership.fail("OffsetCommit", ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def _react(self, purpose: _Purpose, error_code: ErrorCode, message: str, now_ms: int) -> None:
        commit, membership = purpose.commit, self._parts.membership
        reaction = membership.reactions.to(OffsetCommit, error_code)
        if commit.kind is CommitKind.BEFORE_REVOCATION:
            if reaction is Reaction.TAKE_EPOCH and membership.epoch_identity() is not None:
                reaction = Reaction.RETRY
            elif error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                reaction = Reaction.REPORT  # the topic was deleted
        if reaction is Reaction.RETRY:
            self._retry(commit, error_code, message, now_ms)
        elif reaction is Reaction.FIND_COORDINATOR:
            self._parts.link.lose(f"error response {error_code.name}")
            self._retry(commit, error_code, message, now_ms)
        elif reaction is Reaction.REPORT:
            self._finish(commit, CommitFailure.ERROR, error_code, message)
        else:
            is_sync = commit.kind.is_repeated
            failure = membership.commit_refused(reaction, purpose.identity, error_code, message, is_sync=is_sync)
            self._finish(commit, failure, error_code, message)

    def _retry(self, commit: Commit, error_code: ErrorCode, message: str, now_ms: int) -> None:
        if commit.kind.is_repeated:
            commit.retry_ms = now_ms + self._parts.backoff.wait_ms(commit.attempts)
            commit.attempts += 1
        else:
            self._finish(commit, CommitFailure.RETRIABLE, error_code, message)

    # ------------------------------------------------------------ the end

    def _finish(
        self,
        commit: Commit,
        failure: CommitFailure | None,
        error_code: ErrorCode = ErrorCode.NONE,
        message: str = "",
    ) -> None:
        if commit.outcome is not None:
            return  # a synchronous commit that has timed out
        commit.outcome = CommitCompleted(commit.commit_id, commit.offsets, failure, error_code, message)
        if not commit.kind.is_repeated:
            self._completed.append(commit)

    def report_completed(self, now_ms: int) -> None:
        """Report the results of asynchronous commits in the order of their completion."""
        for commit in self._completed:
            assert commit.outcome is not None
            self._parts.outputs.append(commit.outcome)
            if commit.kind is CommitKind.AUTO and commit.outcome.failure is CommitFailure.RETRIABLE:
                self.next_auto_ms = now_ms + self._parts.config.retry_backoff_ms
        self._completed.clear()

    def tick(self, now_ms: int) -> None:
        if self._waiting:
            self._parts.link.find(now_ms)
        if not self._syncs:
            return
        for commit in self._syncs:
            if commit.outcome is None and not commit.offsets:
                if not self._async_in_flight:
                    self._finish(commit, None)
            elif commit.outcome is None and commit.retry_ms is not None and now_ms >= commit.retry_ms:
                if self._parts.link.node is not None:
                    self._send(commit, now_ms)
                else:
                    self._parts.link.find(now_ms)
            if commit.outcome is None and now_ms >= commit.deadline_ms:
                self._finish(commit, CommitFailure.TIMED_OUT, ErrorCode.NONE, "its time was over")
        if any(commit.outcome is not None for commit in self._syncs):
            self.report_completed(now_ms)
            self._parts.outputs += [commit.outcome for commit in self._syncs if commit.outcome is not None]
            self._syncs = [commit for commit in self._syncs if commit.outcome is None]

    def give_up(self, now_ms: int) -> None:
        """End waiting commits after a failure of the member. Those in flight may still be answered."""
        for commit in [*self._waiting, *(commit for commit in self._syncs if commit.retry_ms is not None)]:
            self._finish(commit, CommitFailure.ERROR, ErrorCode.NONE, _FAILED)
        self._waiting.clear()
        self.report_completed(now_ms)
        self.tick(now_ms)

    @property
    def is_idle(self) -> bool:
        return not (self._async_in_flight or self._waiting or self._completed or self._syncs)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def deadline_ms(self) -> int:
        deadlines = [commit.deadline_ms for commit in self._syncs]
        if self._parts.link.node is not None:
            deadlines += [commit.retry_ms for commit in self._syncs if commit.retry_ms is not None and commit.offsets]
        return min(deadlines, default=NEVER_MS)


@define(eq=False)
class Fetch:
    """A request for committed offsets; ``retry_ms`` is None while it is in flight."""

    fetch_id: int
    partitions: tuple[TopicPartition, ...]
    deadline_ms: int
    attempts: int = 0
    retry_ms: int | None = None
    outcome: OffsetsFetched | None = None


@define(eq=False, repr=False)
class Fetches:
    """Requests for committed offsets without a result yet."""

    _parts: Parts
    _fetches: list[Fetch] = field(factory=list, init=False)

    def begin(self, fetch: Fetch, now_ms: int) -> None:
        fetch.retry_ms = now_ms
        self._fetches.append(fetch)
        if self._parts.membership.has_ended:
            self._finish(fetch, ErrorCode.UNKNOWN_SERVER_ERROR, _FAILED)
        elif not fetch.partitions:
            fetch.outcome = OffsetsFetched(fetch.fetch_id, {})
        self.tick(now_ms)

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
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
                    self._malformed(fetch, f"it answers for {topic.name}-{found.partition_index}, not requested")
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
        fetch = send.purpose
        assert isinstance(fetch, Fetch)
        if error_code is ErrorCode.NETWORK_EXCEPTION:
            self._retry(fetch, now_ms)
        else:
            self._finish(fetch, error_code, error_code.name)

    def _react(self, fetch: Fetch, error_code: ErrorCode, message: str, now_ms: int) -> None:
        reaction = self._parts.membership.reactions.to(OffsetFetch, error_code)
        if reaction is Reaction.TAKE_EPOCH:
            reaction = Reaction.RETRY if self._parts.membership.epoch_identity() is not None else Reaction.REPORT
        if reaction is Reaction.FIND_COORDINATOR:
            self._parts.link.lose(f"error response {error_code.name}")
        if reaction is Reaction.REPORT:
            self._finish(fetch, error_code, message)
        else:
            self._retry(fetch, now_ms)

    def _malformed(self, fetch: Fetch, message: str) -> None:
        self._finish(fetch, ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self._parts.membership.fail("OffsetFetch", ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def _retry(self, fetch: Fetch, now_ms: int) -> None:
        fetch.retry_ms = now_ms + self._parts.backoff.wait_ms(fetch.attempts)
        fetch.attempts += 1

    def _finish(self, fetch: Fetch, error_code: ErrorCode, message: str) -> None:
        if fetch.outcome is None:
            fetch.outcome = OffsetsFetched(fetch.fetch_id, {}, error_code, message)

    def tick(self, now_ms: int) -> None:
        for fetch in self._fetches:
            if fetch.outcome is None and fetch.retry_ms is not None and now_ms >= fetch.retry_ms:
                if self._parts.link.node is not None:
                    self._send(fetch, now_ms)
                else:
                    self._parts.link.find(now_ms)
            if now_ms >= fetch.deadline_ms:
                self._finish(fetch, ErrorCode.REQUEST_TIMED_OUT, "its time was over")
        if any(fetch.outcome is not None for fetch in self._fetches):
            self._parts.outputs += [fetch.outcome for fetch in self._fetches if fetch.outcome is not None]
            self._fetches = [fetch for fetch in self._fetches if fetch.outcome is None]

    def _send(self, fetch: Fetch, now_ms: int) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in fetch.partitions:
            by_topic.setdefault(topic, []).append(partition)
        topics = tuple(TopicToFetch(topic, tuple(indexes)) for topic, indexes in by_topic.items())
        fetch.retry_ms = None
        identity = self._parts.membership.epoch_identity()
        group = GroupToFetch(self._parts.config.group_id, topics)
        if identity is not None:
            group = GroupToFetch(self._parts.config.group_id, topics, identity.member_id, identity.generation_id)
        request = OffsetFetch((group,), require_stable=True)
        self._parts.link.send(request, now_ms, fetch)

    def give_up(self, now_ms: int) -> None:
        for fetch in self._fetches:
            if fetch.retry_ms is not None:
                self._finish(fetch, ErrorCode.UNKNOWN_SERVER_ERROR, _FAILED)
        self.tick(now_ms)

    @property
    def is_idle(self) -> bool:
        return not self._fetches

    def deadline_ms(self) -> int:
        deadlines = [fetch.deadline_ms for fetch in self._fetches]
        if self._parts.link.node is not None:
            deadlines += [fetch.retry_ms for fetch in self._fetches if fetch.retry_ms is not None]
        return min(deadlines, default=NEVER_MS)
