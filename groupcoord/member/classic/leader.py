"""Assignors of a classic member, and the leader, which assigns and then watches topics for new partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from attrs import define, field

from groupcoord.core.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
    TopicPartition,
    decode_subscription,
    encode_assignment,
)
from groupcoord.core.messages import JoinGroupResponse, SyncAssignment
from groupcoord.errors import ConfigError
from groupcoord.member.assignors import ASSIGNORS, Assignor, RebalanceProtocol
from groupcoord.member.outputs import AssignmentNeeded, ComputedAssignment, MetadataNeeded
from groupcoord.member.parts import Parts

BUILT_IN = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors that assign partitions of subscribed topics only."""

GENERATION_AWARE = "cooperative-sticky"
"""Assignor that resolves ownership by generation; its assignments may move partitions without a revocation."""


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


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
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


class LeadingError(Exception):
    """The leader can't assign; the message gives the reason."""


class _Stage(Enum):
    TOPICS = "the topics of all subscriptions must be known"
    ASSIGNMENT = "the assignor runs"
    MORE_TOPICS = "topics must be known that the assignor found by itself"
    DONE = "the assignment can be sent"


@define(eq=False, repr=False)
class Leading:
    """Assignment of one generation in progress.

    Attributes:
        assignments: the assignments for SyncGroup, once :meth:`step` has returned True.

    Raises:
        LeadingError: the subscription of a member is malformed.
    """

    _joined: JoinGroupResponse
    _assignor: Assignor
    _protocol: RebalanceProtocol
    _parts: Parts
    _subscriptions: dict[str, Subscription] = field(factory=dict, init=False)
    _computed: Mapping[str, Assignment] = field(factory=dict, init=False)
    _stage: _Stage = field(default=_Stage.TOPICS, init=False)
    assignments: tuple[SyncAssignment, ...] = field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        for member_id, group_instance_id, metadata in self._joined.members:
            self._subscriptions[member_id] = _read(member_id, group_instance_id, metadata)
        self._want({topic for member in self._subscriptions.values() for topic in member.topics})

    @property
    def generation_id(self) -> int:
        return self._joined.generation_id

    def _want(self, topics: set[str]) -> None:
        self._parts.subscription.group_topics = self._parts.subscription.group_topics.union(topics)
        if self._is_waiting_for_topics:
            self._parts.outputs.append(MetadataNeeded(self._parts.subscription.metadata_topics()))

    @property
    def _is_waiting_for_topics(self) -> bool:
        return self._parts.topic_metadata.missing(self._parts.subscription.group_topics)

    def step(self) -> bool:
        """Continue as far as possible; return whether the assignment is complete.

        Raises:
            LeadingError: the assignment can't be encoded.
        """
        if self._stage is _Stage.TOPICS and not self._is_waiting_for_topics:
            self._take_snapshot()
            if self._joined.skip_assignment:  # a restarted static leader (KIP-814)
                self._stage = _Stage.DONE
            else:
                self._stage = _Stage.ASSIGNMENT
                self._parts.outputs.append(
                    AssignmentNeeded(
                        self.generation_id, self._assignor, self._parts.topic_metadata.cluster, self._subscriptions
                    )
                )
        if self._stage is _Stage.MORE_TOPICS and not self._is_waiting_for_topics:
            self._take_snapshot()
            self._stage = _Stage.DONE
        if self._stage is not _Stage.DONE:
            return False
        self._parts.topic_metadata.mark_assigned()
        self.assignments = tuple(_write(member_id, given) for member_id, given in self._computed.items())
        return True

    def _take_snapshot(self) -> None:
        self._parts.topic_metadata.take_snapshot(self._parts.subscription.watched_topics())

    def computed(self, computed: ComputedAssignment) -> None:
        """Store the result of the assignor, unless it is of another generation or comes twice.

        Raises:
            LeadingError: it failed or is invalid.
        """
        if self._stage is not _Stage.ASSIGNMENT or computed.generation_id != self.generation_id:
            return
        if computed.error is not None:
            raise LeadingError(f"the assignor {self._assignor.name!r} failed: {computed.error}")
        self._computed = _checked(self._assignor.name, computed.assignments)
        if self._protocol is RebalanceProtocol.COOPERATIVE and self._assignor.name != GENERATION_AWARE:
            self._check_cooperative(self._computed)
        self._stage = _Stage.MORE_TOPICS
        if self._assignor.name not in BUILT_IN:
            self._want({partition.topic for given in self._computed.values() for partition in given.partitions})

    def _check_cooperative(self, computed: Mapping[str, Assignment]) -> None:
        """Check that no owned partition moves without a revocation: it must be assigned in the next rebalance."""
        added: set[TopicPartition] = set()
        revoked: set[TopicPartition] = set()
        for member_id, given in computed.items():
            member = self._subscriptions.get(member_id)
            owned = set(member.owned_partitions) if member is not None else set()
            added |= set(given.partitions) - owned
            revoked |= owned - set(given.partitions)
        if added & revoked:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(added & revoked))
            raise LeadingError(
                f"the assignor {self._assignor.name!r} moves partitions that their owners have not revoked, "
                f"which the cooperative protocol forbids: {names}"
            )


def _read(member_id: str, group_instance_id: str | None, metadata: bytes) -> Subscription:
    try:
        return decode_subscription(metadata, group_instance_id)
    except ConsumerProtocolError as error:
        raise LeadingError(f"the subscription of {member_id!r} is malformed: {error}") from error


def _write(member_id: str, given: Assignment) -> SyncAssignment:
    try:
        return SyncAssignment(member_id, encode_assignment(given))
    except ConsumerProtocolError as error:
        raise LeadingError(f"the assignment of {member_id!r} can't be written: {error}") from error


def _checked(name: str, assignments: object) -> Mapping[str, Assignment]:
    """Return the result of an assignor, which may be user code, after a check of its types."""
    if isinstance(assignments, Mapping) and all(
        isinstance(member_id, str) and isinstance(given, Assignment) for member_id, given in assignments.items()
    ):
        return assignments
    raise LeadingError(f"the assignor {name!r} returned no assignment for each member id")
