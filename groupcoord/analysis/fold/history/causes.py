"""Causes of rebalances, inferred from the group before and after.

The log has neither heartbeats nor requests. So each cause has a confidence: 1 if the records prove it, 0 for
:data:`UNKNOWN`, and values between for the likelier of several. The rules follow Kafka's conditions for a rebalance
(``GroupMetadataManager``; KIP-345, KIP-429, KIP-848).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from attrs import define, field, frozen

from groupcoord.analysis.fold.history.rows import (
    CLASSIC,
    CONSUMER,
    LEFT_MEMBER_EPOCH,
    GroupView,
    MemberView,
    TopicPartition,
    fields_of,
)

JOIN = "join"
LEAVE = "leave"
EXPIRY_OR_LEAVE = "expiry or leave"
SESSION_EXPIRY = "session expiry"
REBALANCE_TIMEOUT = "rebalance time-out"
METADATA_CHANGE = "metadata change"
TOPIC_CHANGE = "topic change"
REGEX_CHANGE = "regular expression change"
ASSIGNOR_CHANGE = "assignor change"
LEADER_REJOIN = "leader rejoin"
STATIC_REPLACE = "static replace"
COORDINATOR_MOVE = "coordinator move"
UNKNOWN = "unknown"
CAUSES = (
    *(JOIN, LEAVE, EXPIRY_OR_LEAVE, SESSION_EXPIRY, REBALANCE_TIMEOUT, METADATA_CHANGE, TOPIC_CHANGE, REGEX_CHANGE),
    *(ASSIGNOR_CHANGE, LEADER_REJOIN, STATIC_REPLACE, COORDINATOR_MOVE, UNKNOWN),
)

CONVERSION = "conversion"
"""End of a membership when its consumer group becomes a classic group. Other ends are causes."""

SHORTEST_SESSION_MS = 5_000
"""Session timeout assumed where it is unknown: Kafka's default heartbeat interval, which sessions exceed."""

TIMER_SLACK_MS = 1_000
_PROVEN, _LIKELY, _PLAUSIBLE, _ONE_OF_SEVERAL = 1.0, 0.9, 0.8, 0.5

LastCommits = dict[TopicPartition, tuple[int, int]]
"""Log offset and time of the last commit by partition."""

Note = tuple[str, str]
"""Cause of a new epoch other than membership, and its description."""


@frozen
class Surroundings:
    """Facts in addition to the two views.

    Attributes:
        ended_ms: latest possible time of the departures.
        ended_offset: log offset of the record that shows them.
        session_timeout_ms: for members without one in their record; None if unknown.
        is_complete: no record between the views was compacted.
        moved_coordinator: a new leader of the log partition wrote the later view.
        is_unbroken: the later view is the next generation, or ``is_complete``.
    """

    ended_ms: int
    ended_offset: int
    last_commits: LastCommits
    session_timeout_ms: int | None = None
    is_complete: bool = True
    moved_coordinator: bool = False
    is_unbroken: bool = True
    notes: tuple[Note, ...] = ()


@frozen
class Departure:
    """End of a membership: a cause, or :data:`CONVERSION`."""

    end: str
    confidence: float
    evidence: str


@define
class Explanation:
    """Causes of a rebalance, with confidence and membership changes.

    Attributes:
        causes: all causes; ``cause`` is the first.
        departures: the ends of removed members, by member id.
    """

    cause: str
    causes: list[str]
    confidence: float
    joined: list[MemberView]
    left: list[MemberView]
    partitions_moved: int
    evidence: list[str]
    departures: dict[str, Departure] = field(factory=dict)

    def row(self) -> dict[str, Any]:
        return {
            **fields_of(self, "cause", "causes", "confidence"),
            "joined": [member.member_id for member in self.joined],
            "left": [member.member_id for member in self.left],
            "joined_clients": [member.client_id for member in self.joined],
            "left_clients": [member.client_id for member in self.left],
            "partitions_moved": self.partitions_moved,
            "evidence": "; ".join(self.evidence),
        }


def explain(before: GroupView, after: GroupView, around: Surroundings) -> Explanation:
    joined, left, replaced = _membership_changes(before, after)
    explanation = Explanation(UNKNOWN, [], 0.0, joined, left, partitions_moved(before, after), [])
    came = [member for member in joined if member.identity not in replaced]
    went = [member for member in left if member.identity not in replaced]
    found: list[tuple[str, float]] = []
    if came:
        found.append((JOIN, _PROVEN))
        explanation.evidence.append(f"{_names(came)} joined")
    if went:
        found.append(_departure(before, went, around, explanation))
        # A client that left and is back under another id left first.
        clients = {(member.client_id, member.client_host) for member in went}
        if came and found[-1][0] == LEAVE and all((m.client_id, m.client_host) in clients for m in came):
            found.reverse()
    if replaced:
        found.append((STATIC_REPLACE, _PROVEN))
        names = ", ".join(sorted(replaced))
        explanation.evidence.append(f"{names} came back under a new member id")
        for member in left:
            if member.identity in replaced:
                sentence = f"{member.identity} came back under a new member id"
                explanation.departures[member.member_id] = Departure(STATIC_REPLACE, _PROVEN, sentence)
    changed = _changed_metadata(before, after)
    # If members came or went, the others may have another protocol in common, which is no cause.
    if not (came or went) and before.protocol != after.protocol and before.group_type == after.group_type == CLASSIC:
        changed.append(f"the protocol is {after.protocol}, before {before.protocol}")
    if changed:
        found.append((METADATA_CHANGE, _PROVEN))
        explanation.evidence += changed
    _take_notes(around.notes, found, explanation)
    votes = _changed_votes(before, after)
    # A vote that changes the outcome starts a new epoch; other votes start none.
    if votes and not found:
        found.append((ASSIGNOR_CHANGE, _PROVEN))
        explanation.evidence += votes
    if not found and after.group_type == CONSUMER and _is_tied(after):
        found.append((ASSIGNOR_CHANGE, _PLAUSIBLE))
        explanation.evidence.append(
            "as many members ask for one assignor as for another, and it may change at any time"
        )
    if not found and after.members and after.group_type == CLASSIC:
        found = _without_change(before, after, around, explanation)
    _conclude(explanation, found, before, after, around)
    return explanation


def explain_difference(before: GroupView, after: GroupView) -> Explanation:
    """Infer the causes of a difference between two snapshots of a group. Nothing is proven: members may have joined and
    left in between.
    """
    joined, left, replaced = _membership_changes(before, after)
    changed, votes = _changed_metadata(before, after), _changed_votes(before, after)
    if CONSUMER not in (before.group_type, after.group_type) and before.protocol and after.protocol != before.protocol:
        changed += [f"the protocol is {after.protocol}, before {before.protocol}"] if after.protocol else []
    came, went = (_names(one for one in some if one.identity not in replaced) for some in (joined, left))
    found = [
        (cause, text)
        for cause, text in (
            (JOIN, came and f"{came} joined"),
            (EXPIRY_OR_LEAVE, went and f"{went} left or expired"),
            (STATIC_REPLACE, replaced and f"{', '.join(sorted(replaced))} came back under a new member id"),
            (METADATA_CHANGE, "; ".join(changed)),
            (ASSIGNOR_CHANGE, "; ".join(votes)),
        )
        if text
    ]
    causes = [cause for cause, _ in found] or [UNKNOWN]
    evidence = [text for _, text in found] or ["members and subscriptions are as before"]
    missing = after.generation - before.generation - 1 if before.group_type == after.group_type else 0
    if missing > 0:
        evidence.append(f"{missing} epochs between the two were not seen")
    confidence = 0.0 if not found else _LIKELY if len(found) == 1 and missing <= 0 else _ONE_OF_SEVERAL
    return Explanation(causes[0], causes, confidence, joined, left, partitions_moved(before, after), evidence)


def _membership_changes(before: GroupView, after: GroupView) -> tuple[list[MemberView], list[MemberView], set[str]]:
    """Return joined members, removed members, and the identities of static members with a new id."""
    joined = [member for member in after.members.values() if member.member_id not in before.members]
    left = [member for member in before.members.values() if member.member_id not in after.members]
    return joined, left, {member.identity for member in left} & {member.identity for member in joined}


def _take_notes(notes: tuple[Note, ...], found: list[tuple[str, float]], explanation: Explanation) -> None:
    """Add notes as causes if none were found; a new match of a pattern is always evidence."""
    resolved = [note for note in notes if note[0] == REGEX_CHANGE]
    # Newly matched topics also cause a note about topics, which the pattern explains.
    chosen = resolved or ([] if found else notes)
    if not found:
        found += [(cause, _LIKELY) for cause in dict.fromkeys(cause for cause, _ in chosen)]
    explanation.evidence += [text for _, text in chosen]


def _conclude(
    explanation: Explanation,
    found: list[tuple[str, float]],
    before: GroupView,
    after: GroupView,
    around: Surroundings,
) -> None:
    """Set causes and confidence; after compacted generations the cause is unknown."""
    explanation.causes = [cause for cause, _ in found] or [UNKNOWN]
    explanation.cause = explanation.causes[0]
    explanation.confidence = found[0][1] if found else 0.0
    if len(found) > 1:
        explanation.confidence = min(explanation.confidence, _ONE_OF_SEVERAL)
        explanation.evidence.append("the log does not tell which came first")
    if not found:
        explanation.evidence.append("members, subscriptions and protocol are as before")
    missing = after.generation - before.generation - 1
    if missing > 0 and around.is_complete:
        explanation.evidence.append(f"{missing} rebalances before it were never completed")
    elif missing > 0:
        explanation.cause, explanation.causes, explanation.confidence = UNKNOWN, [UNKNOWN], 0.0
        explanation.evidence.insert(0, f"{missing} generations before it are not in the log, by compaction; in all")


def partitions_moved(before: GroupView, after: GroupView) -> int:
    owners = after.owners()
    return sum(owners.get(partition) != owner for partition, owner in before.owners().items())


def _departure(
    before: GroupView, went: list[MemberView], around: Surroundings, explanation: Explanation
) -> tuple[str, float]:
    for member in went:
        departure = explanation.departures[member.member_id] = _departure_of(before, member, around)
        explanation.evidence.append(departure.evidence)
    departures = [explanation.departures[member.member_id] for member in went]
    confidence = min(departure.confidence for departure in departures)
    ends = {departure.end for departure in departures}
    if len(ends) == 1 and EXPIRY_OR_LEAVE not in ends:
        return ends.pop(), confidence
    # If the ends differ, or some may be expiries, only the weaker cause is certain for all.
    return EXPIRY_OR_LEAVE, _PROVEN


def _departure_of(before: GroupView, member: MemberView, around: Surroundings) -> Departure:
    """Return the end of a removed member's membership, with evidence.

    A member has not expired if its session, or its time to rejoin, is longer than the time since its last sign of life:
    a record that required its request, or, less certainly, a commit of one of its partitions.
    """
    silent_ms = around.ended_ms - member.alive_ms
    if member.epoch == LEFT_MEMBER_EPOCH:
        sentence = f"{member.name} left for a while {silent_ms} ms before, and did not come back within its session"
        return Departure(SESSION_EXPIRY, _PROVEN, sentence)
    if member.revoking_ms is not None and is_rebalance_timeout(member, around.ended_ms):
        sentence = (
            f"{member.name} was fenced: {around.ended_ms - member.revoking_ms} ms after it was told to, it had not "
            f"given up {len(member.pending)} partitions, for which it has {member.rebalance_timeout_ms} ms"
        )
        return Departure(REBALANCE_TIMEOUT, _LIKELY, sentence)
    session_timeout_ms = member.session_timeout_ms
    is_told = session_timeout_ms is not None or around.session_timeout_ms is not None
    if session_timeout_ms is None:
        session_timeout_ms = around.session_timeout_ms or SHORTEST_SESSION_MS
    limit_ms = session_timeout_ms
    # A rebalance of the consumer protocol waits only for members that have to revoke something. Members of a consumer
    # group with a session timeout in their record use the classic protocol.
    if member.rebalance_timeout_ms >= 0 and (before.group_type == CLASSIC or member.session_timeout_ms is not None):
        limit_ms = min(limit_ms, member.rebalance_timeout_ms)
    commit_ms = _last_commit(before, member, around)
    confidence, sign = _PROVEN, "known to be there"
    if silent_ms >= limit_ms and commit_ms is not None and around.ended_ms - commit_ms < silent_ms:
        silent_ms, confidence, sign = max(around.ended_ms - commit_ms, 0), _LIKELY, "seen by a commit of its partitions"
    if not is_told:
        confidence = min(confidence, _PLAUSIBLE)
    session = f"its session of {session_timeout_ms} ms" if is_told else f"any session ({limit_ms} ms)"
    if silent_ms < limit_ms:
        sentence = f"{member.name} left: {sign} {silent_ms} ms before, less than {session}"
        return Departure(LEAVE, confidence, sentence)
    return Departure(EXPIRY_OR_LEAVE, _PROVEN, f"{member.name} left or expired: {sign} {silent_ms} ms before")


def is_rebalance_timeout(member: MemberView, ended_ms: int) -> bool:
    """Return whether a member was removed within :data:`TIMER_SLACK_MS` after its rebalance timeout.

    Members that use the classic protocol have other timers (KIP-848, ``ConsumerGroupRebalanceTimeout``).
    """
    if member.revoking_ms is None or member.rebalance_timeout_ms < 0 or member.session_timeout_ms is not None:
        return False
    late_ms = ended_ms - member.revoking_ms - member.rebalance_timeout_ms
    return 0 <= late_ms <= TIMER_SLACK_MS


def _last_commit(before: GroupView, member: MemberView, around: Surroundings) -> int | None:
    if not around.is_unbroken:
        return None  # in a compacted generation other members may have owned its partitions
    found = [around.last_commits[partition] for partition in member.held if partition in around.last_commits]
    since = max(before.log_offset, member.held_since)
    return max((at_ms for log_offset, at_ms in found if since < log_offset < around.ended_offset), default=None)


def _changed_metadata(before: GroupView, after: GroupView) -> list[str]:
    old = {member.identity: member for member in before.members.values()}
    facts = []
    for member in after.members.values():
        was = old.get(member.identity)
        if was is None:
            continue
        if None not in (was.topics, member.topics) and was.topics != member.topics:
            facts.append(f"{member.name} subscribes to {_list(member.topics)}, before to {_list(was.topics)}")
        if was.topic_regex != member.topic_regex:
            facts.append(f"{member.name} subscribes to the pattern {member.topic_regex!r}, before {was.topic_regex!r}")
        # Racks came with version 3 of the subscription: a client without one may be unchanged.
        if was.rack_id and member.rack_id and was.rack_id != member.rack_id:
            facts.append(f"{member.name} is in rack {member.rack_id}, before in {was.rack_id}")
    return facts


def _changed_votes(before: GroupView, after: GroupView) -> list[str]:
    old = {member.identity: member.assignor for member in before.members.values()}
    return [
        f"{member.name} asks for assignor {member.assignor or 'none'}, before for {old[member.identity] or 'none'}"
        for member in after.members.values()
        if before.group_type == after.group_type and old.get(member.identity, member.assignor) != member.assignor
    ]


def _is_tied(group: GroupView) -> bool:
    """Return whether two assignors have the most votes; Kafka 4.4 may then start an epoch with each heartbeat."""
    votes = Counter(member.assignor for member in group.members.values() if member.assignor is not None)
    most = [count for _, count in votes.most_common(2)]
    return len(most) == 2 and most[0] == most[1]


def _without_change(
    before: GroupView, after: GroupView, around: Surroundings, explanation: Explanation
) -> list[tuple[str, float]]:
    """Return the likely cause of a classic rebalance without a change of members or subscriptions."""
    revoked = {m.member_id: len(m.owned - m.assigned) for m in before.members.values() if m.owned - m.assigned}
    if revoked:
        names = _names(before.members[member_id] for member_id in revoked)
        explanation.evidence.append(
            f"{names} had {sum(revoked.values())} partitions to give up, and rejoined without them: "
            "the second step of a cooperative rebalance"
        )
        # A JoinGroup of the leader starts a rebalance in any case; that of another member only with changed metadata.
        return [(LEADER_REJOIN if list(revoked) == [before.leader] else METADATA_CHANGE, _LIKELY)]
    grown = sorted(after.owners().keys() - before.owners().keys())
    if grown and before.owners():
        topics = sorted({topic for topic, _ in grown})
        explanation.evidence.append(f"{len(grown)} partitions of {_list(topics)} are new, which the leader noticed")
        return [(LEADER_REJOIN, _PLAUSIBLE)]
    # Metadata of other protocol types is opaque, so any change of its bytes counts.
    if after.protocol_type != "consumer":
        changed = [m for m in after.members.values() if m.metadata != before.members[m.member_id].metadata]
        if changed:
            explanation.evidence.append(f"{_names(changed)} rejoined with other metadata")
            only_leader = [m.member_id for m in changed] == [before.leader]
            return [(LEADER_REJOIN if only_leader else METADATA_CHANGE, _PLAUSIBLE)]
    if around.moved_coordinator:
        explanation.evidence.append("another broker, or the same after a restart, coordinates the group since then")
        return [(COORDINATOR_MOVE, _PLAUSIBLE)]
    return []


def _names(members: Iterable[MemberView]) -> str:
    return ", ".join(member.name for member in members)


def _list(names: Iterable[str] | None) -> str:
    return ", ".join(sorted(names or ())) or "nothing"
