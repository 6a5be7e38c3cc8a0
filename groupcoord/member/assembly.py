"""Factory of a member's parts, for the group protocol of its settings."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from groupcoord.errors import ConfigError
from groupcoord.member.assignors import ASSIGNORS, Assignor, RebalanceProtocol
from groupcoord.member.classic.membership import MembershipManager
from groupcoord.member.classic.protocol import ClassicProtocol
from groupcoord.member.commits import Commits
from groupcoord.member.config import MemberConfig
from groupcoord.member.consumer.membership import ConsumerMembership
from groupcoord.member.consumer.protocol import ConsumerProtocol
from groupcoord.member.fetches import Fetches
from groupcoord.member.link import CoordinatorLink
from groupcoord.member.membership import Membership
from groupcoord.member.outputs import ListenerGate, Output
from groupcoord.member.protocol import GroupProtocol, Parts
from groupcoord.member.subscription import SubscriptionState
from groupcoord.member.timing import ExponentialBackoff
from groupcoord.member.topic_metadata import TopicMetadata


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
    """Return the common parts of a member and its protocol. Arguments and errors are those of ``Member``."""
    outputs: list[Output] = []
    if config.is_consumer_protocol:
        if assignors is not None:
            raise ConfigError("setting 'group.protocol' is 'consumer': the coordinator assigns, not the member")
        consumer = ConsumerMembership(member_id or new_member_id(random), config.group_instance_id, outputs)
        parts = _parts(config, consumer, outputs, random, waits_for_listener=waits_for_listener)
        return parts, ConsumerProtocol(parts, consumer)
    chosen = tuple(assignors) if assignors is not None else chosen_assignors(config.partition_assignment_strategy)
    protocol = _common_protocol(chosen)
    classic = MembershipManager(config.group_instance_id, outputs)
    parts = _parts(config, classic, outputs, random, waits_for_listener=waits_for_listener)
    return parts, ClassicProtocol(parts, classic, chosen, protocol)


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
    subscription = SubscriptionState(excludes_internal=config.exclude_internal_topics)
    return Parts(
        config=config,
        membership=membership,
        link=link,
        subscription=subscription,
        commits=Commits(config, link, membership, subscription, backoff, outputs),
        fetches=Fetches(config, link, membership, backoff, outputs),
        topic_metadata=TopicMetadata(compares_racks=bool(config.client_rack)),
        backoff=backoff,
        gate=ListenerGate(outputs, waits=waits_for_listener),
        outputs=outputs,
    )


def new_member_id(random: Callable[[], float]) -> str:
    """Return a new member id in Kafka's text form of UUIDs: base64 of 16 bytes, without a leading dash.

    Args:
        random: the source of randomness, so that equal inputs give equal ids; :func:`no_jitter` stands for a random id.
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
    """Return the highest rebalance protocol that all assignors support."""
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
