"""Snapshots of all groups of a cluster, from the responses to administrative requests instead of the log.

Gaps are listed as problems: a group deleted between two requests, a missing permission, a broker that does not respond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from attrs import define, field, frozen

from groupcoord.analysis.errors import AccessError, ClusterError, TransientClusterError, error_name
from groupcoord.analysis.live.cluster import (
    DESCRIBED_BY,
    SHARE,
    CommittedOffset,
    DescribedGroup,
    GroupOffsets,
    KafkaCluster,
    ListedGroup,
    Patience,
)
from groupcoord.analysis.live.offsets import PartitionEnds, list_ends
from groupcoord.analysis.options import EVERYTHING, Selection
from groupcoord.errors import ErrorCode

GROUPS_OF_REQUEST_MAX = 100
GONE = "gone, or of another type, between two requests"

_DEAD = "Dead"
_OF_COORDINATORS = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
T = TypeVar("T")


@frozen
class Problem:
    """A gap in a snapshot."""

    subject: str
    text: str


@frozen
class GroupSnapshot:
    """A group at one moment."""

    group_id: str
    type: str
    listed: ListedGroup
    described: DescribedGroup | None
    offsets: tuple[CommittedOffset, ...] | None

    @property
    def state(self) -> str | None:
        return (self.listed.state or None) if self.described is None else self.described.state


@frozen
class Snapshot:
    """All groups at one moment.

    Attributes:
        asked_ms: start of the requests; ``at_ms`` is their end.
        ends: start and end offsets of the committed and assigned topics.
        is_whole: every broker has listed its groups, so a missing one does not exist or may not be described.
        missing: groups that may exist although no broker returned them.
    """

    asked_ms: int
    at_ms: int
    groups: Mapping[str, GroupSnapshot]
    ends: Sequence[PartitionEnds]
    problems: Sequence[Problem]
    is_whole: bool
    missing: frozenset[str] = frozenset()


def take_snapshot(
    cluster: KafkaCluster,
    patience: Patience,
    now_ms: Callable[[], int],
    topics_of: Callable[[GroupSnapshot], Collection[str]],
    known: Collection[str] = (),
    selection: Selection = EVERYTHING,
) -> Snapshot:
    def ask() -> _Attempt:
        attempt = _Attempt(cluster, now_ms, [one for one in known if not selection.excludes(one)], selection)
        attempt.ask()
        if attempt.transient is not None and not attempt.answered:
            raise attempt.transient
        return attempt

    attempt = patience.collect(ask, lambda one: one.transient is None)
    found = attempt.groups.values()
    topics = {one.topic for group in found for one in group.offsets or ()}
    topics |= {topic for group in found for topic in topics_of(group)}
    ends = list_ends(cluster, patience, topics, now_ms) if topics else []
    problems = [*attempt.problems, *_problems_of_ends(ends)]
    missing = frozenset(attempt.missing)
    return Snapshot(attempt.asked_ms, attempt.at_ms, attempt.groups, ends, problems, attempt.is_whole, missing)


def _problems_of_ends(ends: Sequence[PartitionEnds]) -> Iterator[Problem]:
    for one in ends:
        if one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            lacks = "this user lacks the permission DESCRIBE, so offsets and ends are unknown"
            yield Problem(f"topic {one.topic}", lacks)
        elif one.error_code:
            place = "" if one.topic_partition is None else f"partition {one.topic_partition}: "
            yield Problem(f"topic {one.topic}", f"{place}{error_name(one.error_code)}")


@define
class _Attempt:
    """One round of requests; a failure is noted, and the next request is sent."""

    cluster: KafkaCluster
    now_ms: Callable[[], int]
    known: Collection[str]
    selection: Selection
    asked_ms: int = 0
    at_ms: int = 0
    is_whole: bool = True
    transient: TransientClusterError | None = None
    groups: dict[str, GroupSnapshot] = field(factory=dict)
    problems: list[Problem] = field(factory=list)
    listed: set[str] = field(factory=set)
    missing: set[str] = field(factory=set)
    answered: set[int] = field(factory=set)

    def ask(self) -> None:
        self.asked_ms = self.now_ms()
        if not self.cluster.lists_all_groups():
            lacks = "this user lacks the permission DESCRIBE: groups that it may not describe are left out"
            self.problems.append(Problem("cluster", lacks))
        for broker in self.cluster.brokers():
            self._ask_broker(broker)
        unlisted = sorted(set(self.known) - self.listed)
        for start in range(0, len(unlisted), GROUPS_OF_REQUEST_MAX):
            self._look_for(unlisted[start : start + GROUPS_OF_REQUEST_MAX])
        self.at_ms = self.now_ms()

    def _ask_broker(self, broker: int) -> None:
        listed = self._answer_of(broker, lambda: self.cluster.list_groups(broker))
        if listed is None or listed.error_code:
            self.is_whole = False
            if listed is not None:
                self._note(f"broker {broker}", listed.error_code)
            return
        self.answered.add(broker)
        self.listed |= {one.group_id for one in listed.groups}
        by_type: dict[str, list[ListedGroup]] = defaultdict(list)
        for group in listed.groups:
            if not self.selection.excludes(group.group_id):
                by_type[group.type].append(group)
        for group_type, groups in by_type.items():
            for start in range(0, len(groups), GROUPS_OF_REQUEST_MAX):
                self._ask_groups(broker, group_type, groups[start : start + GROUPS_OF_REQUEST_MAX])

    def _look_for(self, group_ids: Sequence[str]) -> None:
        """Find coordinators of unlisted groups; a group does not exist if its coordinator responded."""
        for group_id, coordinator in self.cluster.coordinators(group_ids).items():
            if coordinator.error_code:
                self._note(f"group {group_id}", coordinator.error_code)
            elif coordinator.broker in self.answered:
                continue
            else:
                reason = f"its coordinator, broker {coordinator.broker}, does not answer"
                self.problems.append(Problem(f"group {group_id}", reason))
            self.missing.add(group_id)

    def _ask_groups(self, broker: int, group_type: str, listed: Sequence[ListedGroup]) -> None:
        ids = [one.group_id for one in listed]
        described: Mapping[str, DescribedGroup] = {}
        if group_type in DESCRIBED_BY:
            answer = self._answer_of(broker, lambda: self.cluster.describe_groups(broker, group_type, ids))
            described = {} if answer is None else answer
        read = self.cluster.share_offsets if group_type == SHARE else self.cluster.committed_offsets
        offsets = self._answer_of(broker, lambda: read(broker, ids)) or {}
        for one in listed:
            self._take(one, described.get(one.group_id), offsets.get(one.group_id))

    def _take(self, listed: ListedGroup, described: DescribedGroup | None, offsets: GroupOffsets | None) -> None:
        subject = f"group {listed.group_id}"
        if listed.type not in DESCRIBED_BY:
            self.problems.append(Problem(subject, f"members of a group of type {listed.type} are not supported"))
        elif described is None:
            self.problems.append(Problem(subject, "its members are unknown: its coordinator does not respond"))
        elif described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.state == _DEAD:
            self.problems.append(Problem(subject, GONE))
            return
        elif described.error_code:
            self._note(subject, described.error_code)
            described = None
        known = None
        if offsets is None:
            self.problems.append(Problem(subject, "its offsets are unknown: its coordinator does not respond"))
        elif offsets.error_code:
            self._note(subject, offsets.error_code, "its offsets: ")
        else:
            known = tuple(one for one in offsets.offsets if not one.error_code)
            for one in offsets.offsets:
                if one.error_code:
                    self._note(subject, one.error_code, f"its offset of {one.topic}-{one.partition}: ")
        self.groups[listed.group_id] = GroupSnapshot(listed.group_id, listed.type, listed, described, known)

    def _answer_of(self, broker: int, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except AccessError:
            raise
        except ClusterError as error:
            if isinstance(error, TransientClusterError):
                self.transient = error
            self.problems.append(Problem(f"broker {broker}", str(error)))
            return None

    def _note(self, subject: str, error_code: int, what: str = "") -> None:
        if error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            reason = "this user lacks the permission DESCRIBE"
        else:
            reason = error_name(error_code)
        self.problems.append(Problem(subject, f"{what}{reason}"))
        if error_code in _OF_COORDINATORS:
            self.transient = TransientClusterError(f"{subject}: {reason}")
