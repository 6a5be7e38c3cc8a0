"""Hypothesis strategies for requests of clients and their parts: ids, subscriptions, assignments.

Use them for code that handles requests. Every example is valid: a client could send it, and a coordinator must answer
it. Arguments restrict values, not their likelihood; an invalid one raises :class:`hypothesis.errors.InvalidArgument`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from groupcoord.core.javacompat import is_blank
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    CoordinatorType,
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    TopicPartitions,
    TopicToCommit,
    TopicToDelete,
    TopicToFetch,
    TxnOffsetCommit,
)
from groupcoord.testing.logs import assignments, subscriptions

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
SERVER_ASSIGNORS = ("uniform", "range")
JOIN, LEAVE, LEAVE_FOR_A_WHILE = JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
STRING_CHARACTERS_MAX = 8_191
"""A string of Kafka's protocol has at most 32,767 bytes; a character has up to four."""
TOPIC_NAME_MAX = 249
MIN_SESSION_TIMEOUT_MS, MAX_SESSION_TIMEOUT_MS = 6_000, 1_800_000
FEW = 3

Strategy = st.SearchStrategy


def group_ids(*, min_size: int = 1, max_size: int = 20) -> Strategy[str]:
    """Return group ids: any text.

    Args:
        min_size: minimum length; 0 allows the empty id, which only APIs for offsets and administration accept.
        max_size: maximum length, up to 8,191.
    """
    return _texts(min_size, max_size)


def client_ids(*, min_size: int = 0, max_size: int = 20) -> Strategy[str]:
    """Return client ids: any text, also empty; sizes as for :func:`group_ids`."""
    return _texts(min_size, max_size)


def instance_ids(*, min_size: int = 1, max_size: int = 20) -> Strategy[str]:
    """Return ids of static members (KIP-345): any text; sizes as for :func:`group_ids`."""
    return _texts(min_size, max_size)


def member_ids(*, prefixes: Strategy[str] | None = None) -> Strategy[str]:
    """Return member ids like those of brokers: a prefix and a random UUID.

    Args:
        prefixes: client or instance ids; default: :func:`client_ids`.
    """
    return st.builds("{}-{}".format, _strategy("prefixes", prefixes, client_ids()), st.uuids(version=4))


def topic_names(*, max_size: int = 20) -> Strategy[str]:
    """Return valid topic names.

    Args:
        max_size: maximum length, from 1 to 249.
    """
    _check_size("max_size", max_size, 1, TOPIC_NAME_MAX)
    return st.text("abcxyzABCXYZ0189._-", min_size=1, max_size=max_size).filter(lambda name: name not in (".", ".."))


def generation_ids(*, min_value: int = 0, max_value: int = INT32_MAX) -> Strategy[int]:
    """Return generations from ``min_value`` to ``max_value``; requests without membership have -1."""
    _check_size("min_value", min_value, -1, INT32_MAX)
    _check_size("max_value", max_value, min_value, INT32_MAX)
    return st.integers(min_value, max_value)


def protocols(
    *, names: Collection[str] = ASSIGNORS, metadata: Strategy[bytes] | None = None, max_size: int = FEW
) -> Strategy[tuple[JoinProtocol, ...]]:
    """Return at least one protocol with metadata, in order of preference.

    Args:
        names: the protocols to choose from.
        metadata: their metadata; default: :func:`subscriptions`.
        max_size: maximum number of protocols.
    """
    if isinstance(names, str) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"names={names!r} must be a collection of at least one name, such as ('range',)")
    _check_size("max_size", max_size, 1, INT32_MAX)
    chosen = _strategy("metadata", metadata, subscriptions())
    entries = st.builds(JoinProtocol, st.sampled_from(sorted(names)), chosen)
    return st.lists(entries, min_size=1, max_size=max_size, unique_by=lambda entry: entry.name).map(tuple)


# ---------------------------------------------------------------- membership


def join_requests(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    instance_ids: Strategy[str | None] | None = None,
    protocol_types: Strategy[str] | None = None,
    protocols: Strategy[tuple[JoinProtocol, ...]] | None = None,
    session_timeouts_ms: Strategy[int] | None = None,
    rebalance_timeouts_ms: Strategy[int] | None = None,
) -> Strategy[JoinGroup]:
    """Return JoinGroup requests of new and present members, of any version.

    Args:
        group_ids: default: :func:`group_ids`.
        member_ids: default: empty, or :func:`member_ids`.
        instance_ids: default: None, or :func:`instance_ids`.
        protocol_types: default: ``consumer`` and ``connect``.
        protocols: default: :func:`protocols`.
        session_timeouts_ms: default: 6,000 to 1,800,000, the default limits of brokers.
        rebalance_timeouts_ms: default: not negative.
    """
    session_timeouts = st.integers(MIN_SESSION_TIMEOUT_MS, MAX_SESSION_TIMEOUT_MS)
    return st.builds(
        JoinGroup,
        _strategy("group_ids", group_ids, _group_ids),
        _strategy("member_ids", member_ids, st.just("") | _member_ids),
        _strategy("protocol_types", protocol_types, st.sampled_from(["consumer", "connect"])),
        _strategy("protocols", protocols, _protocols),
        _strategy("session_timeouts_ms", session_timeouts_ms, session_timeouts),
        _strategy("rebalance_timeouts_ms", rebalance_timeouts_ms, st.integers(0, INT32_MAX)),
        _strategy("instance_ids", instance_ids, st.none() | _instance_ids),
        client_id=_client_ids,
        client_host=st.ip_addresses(v=4).map("/{}".format),
        reason=st.none() | st.text(_CHARACTERS, max_size=FEW),
        requires_known_member_id=st.booleans(),
        supports_skip_assignment=st.booleans(),
    )


def sync_requests(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    instance_ids: Strategy[str | None] | None = None,
    generation_ids: Strategy[int] | None = None,
    assignments: Strategy[bytes] | None = None,
) -> Strategy[SyncGroup]:
    """Return SyncGroup requests of followers (without assignments) and leaders.

    Args:
        group_ids: default: :func:`group_ids`.
        member_ids: default: :func:`member_ids`, for the sender and in assignments.
        instance_ids: default: None, or :func:`instance_ids`.
        generation_ids: default: :func:`generation_ids`.
        assignments: assignments by a leader; default: :func:`assignments`.
    """
    members = _strategy("member_ids", member_ids, _member_ids)
    shares = st.builds(SyncAssignment, members, _strategy("assignments", assignments, _assignments))

    def of(protocol_types: Strategy[str | None], protocol_names: Strategy[str | None]) -> Strategy[SyncGroup]:
        return st.builds(
            SyncGroup,
            _strategy("group_ids", group_ids, _group_ids),
            _strategy("generation_ids", generation_ids, _generation_ids),
            members,
            _strategy("instance_ids", instance_ids, st.none() | _instance_ids),
            protocol_types,
            protocol_names,
            st.lists(shares, max_size=FEW).map(tuple),
        )

    # Requests before version 5 have neither type nor protocol.
    return of(st.none(), st.none()) | of(st.just("consumer"), st.sampled_from(ASSIGNORS))


def heartbeats(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    instance_ids: Strategy[str | None] | None = None,
    generation_ids: Strategy[int] | None = None,
) -> Strategy[Heartbeat]:
    """Return Heartbeat requests; arguments as for :func:`sync_requests`."""
    return st.builds(
        Heartbeat,
        _strategy("group_ids", group_ids, _group_ids),
        _strategy("generation_ids", generation_ids, _generation_ids),
        _strategy("member_ids", member_ids, _member_ids),
        _strategy("instance_ids", instance_ids, st.none() | _instance_ids),
    )


def leave_requests(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    instance_ids: Strategy[str | None] | None = None,
    max_size: int = FEW,
) -> Strategy[LeaveGroup]:
    """Return LeaveGroup requests of at least one member; some have only an instance id by default.

    Args:
        group_ids: default: :func:`group_ids`.
        member_ids: default: :func:`member_ids`.
        instance_ids: default: None, or :func:`instance_ids`.
        max_size: maximum number of members.
    """
    _check_size("max_size", max_size, 1, INT32_MAX)
    instances = _strategy("instance_ids", instance_ids, st.none() | _instance_ids)
    members = _strategy("member_ids", member_ids, _member_ids)
    by_instance = st.builds(LeavingMember, st.just(""), instances.filter(lambda instance: instance is not None))
    leaving = st.builds(LeavingMember, members, instances)
    entries = leaving if instance_ids is not None else leaving | by_instance
    members_of_request = st.lists(entries, min_size=1, max_size=max_size).map(tuple)
    return st.builds(LeaveGroup, _strategy("group_ids", group_ids, _group_ids), members_of_request)


def consumer_group_heartbeats(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    instance_ids: Strategy[str | None] | None = None,
    member_epochs: Strategy[int] | None = None,
    topic_names: Strategy[str] | None = None,
    regexes: Strategy[str] | None = None,
    assignors: Collection[str] = SERVER_ASSIGNORS,
    max_size: int = FEW,
) -> Strategy[ConsumerGroupHeartbeat]:
    """Return heartbeats of consumer groups (KIP-848): joins, full and short heartbeats, leaves.

    Args:
        group_ids: default: :func:`group_ids` that are not blank.
        member_ids: default: :func:`member_ids`.
        instance_ids: default: None, or :func:`instance_ids` that are not blank. Only static members leave temporarily.
        member_epochs: default: 0 (join), -1 and -2 (leave), and positive ones.
        topic_names: default: :func:`topic_names`.
        regexes: RE2 expressions besides None; default: empty and simple ones.
        assignors: names of assignors.
        max_size: maximum number of topics, and of partitions of each.
    """
    if isinstance(assignors, str) or not assignors or not all(isinstance(name, str) for name in assignors):
        raise InvalidArgument(f"assignors={assignors!r} must be a collection of at least one name, such as ('range',)")
    _check_size("max_size", max_size, 1, INT32_MAX)
    names = st.lists(_strategy("topic_names", topic_names, _topic_names), max_size=max_size, unique=True).map(tuple)
    epochs = st.sampled_from([JOIN, LEAVE, LEAVE_FOR_A_WHILE]) | st.integers(0, INT32_MAX)
    owned = st.lists(st.builds(TopicPartitions, st.uuids(), _partition_indexes(max_size)), max_size=max_size)
    expressions = st.sampled_from(["", ".*", "a.+|b", "[xyz]*"])
    full = st.builds(
        ConsumerGroupHeartbeat,
        _strategy("group_ids", group_ids, _group_ids.filter(has_text)),
        _strategy("member_ids", member_ids, _member_ids),
        _strategy("member_epochs", member_epochs, epochs),
        _strategy("instance_ids", instance_ids, st.none() | _instance_ids.filter(has_text)),
        rack_id=st.none() | _texts(1, 10).filter(has_text),
        rebalance_timeout_ms=st.integers(0, INT32_MAX),
        subscribed_topic_names=names,
        subscribed_topic_regex=st.none() | _strategy("regexes", regexes, expressions),
        server_assignor=st.none() | st.sampled_from(sorted(assignors)),
        topic_partitions=owned.map(tuple),
        client_id=_client_ids,
        client_host=st.ip_addresses(v=4).map("/{}".format),
    )
    return st.builds(_heartbeat, full, st.booleans())


def _heartbeat(full: ConsumerGroupHeartbeat, is_short: bool) -> ConsumerGroupHeartbeat:
    if full.member_epoch == JOIN:
        return evolve(full, topic_partitions=())
    if full.member_epoch > JOIN and not is_short:
        return full
    epoch = LEAVE if full.instance_id is None and full.member_epoch == LEAVE_FOR_A_WHILE else full.member_epoch
    return ConsumerGroupHeartbeat(full.group_id, full.member_id, epoch, full.instance_id, client_id=full.client_id)


# ---------------------------------------------------------------- offsets


def commit_requests(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    generation_ids: Strategy[int] | None = None,
    topic_names: Strategy[str] | None = None,
    offsets: Strategy[int] | None = None,
    max_size: int = FEW,
) -> Strategy[OffsetCommit]:
    """Return OffsetCommit requests of members and of consumers without group management.

    Args:
        group_ids: default: :func:`group_ids`, or empty.
        member_ids: default: empty (without group management), or :func:`member_ids`.
        generation_ids: default: -1 without a member id, otherwise :func:`generation_ids`.
        topic_names: default: :func:`topic_names`.
        offsets: default: 0 to 2**63 - 1.
        max_size: maximum number of topics, and of partitions of each.
    """
    groups = _strategy("group_ids", group_ids, st.just("") | _group_ids)
    members = _strategy("member_ids", member_ids, st.just("") | _member_ids)
    generations = _strategy("generation_ids", generation_ids, _generation_ids)
    topics = _topics_to_commit(topic_names, offsets, max_size)

    def of_member(member_id: str) -> Strategy[OffsetCommit]:
        usual = generations if member_id or generation_ids is not None else st.just(-1)
        return st.builds(OffsetCommit, groups, topics, usual, st.just(member_id))

    return members.flatmap(of_member)


def transactional_commit_requests(
    *,
    group_ids: Strategy[str] | None = None,
    producer_ids: Strategy[int] | None = None,
    topic_names: Strategy[str] | None = None,
    offsets: Strategy[int] | None = None,
    max_size: int = FEW,
) -> Strategy[TxnOffsetCommit]:
    """Return TxnOffsetCommit requests (KIP-98).

    Args:
        group_ids: default: :func:`group_ids`.
        producer_ids: default: 0 to 2**63 - 1.
        topic_names: as for :func:`commit_requests`.
        offsets: as for :func:`commit_requests`.
        max_size: as for :func:`commit_requests`.
    """
    return st.builds(
        TxnOffsetCommit,
        _strategy("group_ids", group_ids, _group_ids),
        _topics_to_commit(topic_names, offsets, max_size),
        _strategy("producer_ids", producer_ids, st.integers(0, INT64_MAX)),
        st.integers(0, 2**15 - 1),
        _texts(1, 10),
    )


def fetch_requests(
    *, group_ids: Strategy[str] | None = None, topic_names: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[OffsetFetch]:
    """Return OffsetFetch requests for some partitions or for all of a group.

    Args:
        group_ids: default: :func:`group_ids`, or empty.
        topic_names: default: :func:`topic_names`.
        max_size: maximum number of groups, topics of each, and partitions of those.
    """
    _check_size("max_size", max_size, 1, INT32_MAX)
    names = _strategy("topic_names", topic_names, _topic_names)
    topics = st.builds(TopicToFetch, names, _partition_indexes(max_size))
    chosen = st.none() | st.lists(topics, max_size=max_size).map(tuple)
    groups = st.builds(GroupToFetch, _strategy("group_ids", group_ids, st.just("") | _group_ids), chosen)
    return st.builds(OffsetFetch, st.lists(groups, min_size=1, max_size=max_size).map(tuple), st.booleans())


def offset_delete_requests(
    *, group_ids: Strategy[str] | None = None, topic_names: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[OffsetDelete]:
    """Return OffsetDelete requests (KIP-496); arguments as for :func:`transactional_commit_requests`."""
    _check_size("max_size", max_size, 1, INT32_MAX)
    names = _strategy("topic_names", topic_names, _topic_names)
    topics = st.lists(st.builds(TopicToDelete, names, _partition_indexes(max_size)), max_size=max_size).map(tuple)
    return st.builds(OffsetDelete, _strategy("group_ids", group_ids, _group_ids), topics)


# ---------------------------------------------------------------- administration


def describe_requests(*, group_ids: Strategy[str] | None = None, max_size: int = FEW) -> Strategy[DescribeGroups]:
    """Return DescribeGroups requests for up to ``max_size`` groups, by default of any id, also empty."""
    return st.builds(DescribeGroups, several_groups(group_ids, max_size), st.booleans())


def consumer_group_describe_requests(
    *, group_ids: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[ConsumerGroupDescribe]:
    """Return ConsumerGroupDescribe requests for up to ``max_size`` groups, by default of any id, also empty."""
    return st.builds(ConsumerGroupDescribe, several_groups(group_ids, max_size), st.booleans())


def delete_requests(*, group_ids: Strategy[str] | None = None, max_size: int = FEW) -> Strategy[DeleteGroups]:
    """Return DeleteGroups requests for up to ``max_size`` groups, by default of any id, also empty."""
    return st.builds(DeleteGroups, several_groups(group_ids, max_size))


def list_requests() -> Strategy[ListGroups]:
    """Return ListGroups requests, with or without states and types."""
    states = st.sampled_from(
        ["Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead"]
    )
    types = st.sampled_from(["classic", "consumer"])
    return st.builds(
        ListGroups,
        st.lists(states, max_size=FEW, unique=True).map(tuple),
        st.lists(types, max_size=FEW, unique=True).map(tuple),
    )


def find_coordinator_requests(
    *, group_ids: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[FindCoordinator]:
    """Return FindCoordinator requests for up to ``max_size`` groups, by default of any id, also empty."""
    return st.builds(FindCoordinator, st.just(int(CoordinatorType.GROUP)), several_groups(group_ids, max_size))


# ---------------------------------------------------------------- parts, and checks of arguments


def _strategy(name: str, given: Strategy[Any] | None, default: Strategy[Any]) -> Strategy[Any]:
    if given is None:
        return default
    if not isinstance(given, st.SearchStrategy):
        raise InvalidArgument(f"{name}={given!r} must be a strategy, such as st.just({given!r})")
    return given


def _check_size(name: str, value: int, at_least: int, at_most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= at_most:
        raise InvalidArgument(f"{name}={value!r} must be a whole number from {at_least} to {at_most}")


_CHARACTERS = st.characters(exclude_categories=["Cs"])


def _texts(min_size: int, max_size: int) -> Strategy[str]:
    _check_size("min_size", min_size, 0, STRING_CHARACTERS_MAX)
    _check_size("max_size", max_size, min_size, STRING_CHARACTERS_MAX)
    return st.text(_CHARACTERS, min_size=min_size, max_size=max_size)


def has_text(text: str) -> bool:
    return not is_blank(text)


def several_groups(group_ids: Strategy[str] | None, max_size: int) -> Strategy[tuple[str, ...]]:
    _check_size("max_size", max_size, 1, INT32_MAX)
    return st.lists(_strategy("group_ids", group_ids, st.just("") | _group_ids), max_size=max_size).map(tuple)


def _partition_indexes(max_size: int) -> Strategy[tuple[int, ...]]:
    return st.lists(st.integers(0, INT32_MAX), min_size=1, max_size=max_size).map(tuple)


def _topics_to_commit(
    topic_names: Strategy[str] | None, offsets: Strategy[int] | None, max_size: int
) -> Strategy[tuple[TopicToCommit, ...]]:
    _check_size("max_size", max_size, 1, INT32_MAX)
    committed = st.builds(
        OffsetToCommit,
        st.integers(0, INT32_MAX),
        _strategy("offsets", offsets, st.integers(0, INT64_MAX)),
        st.integers(-1, INT32_MAX),
        st.none() | st.text(_CHARACTERS, max_size=FEW),
    )
    partitions = st.lists(committed, min_size=1, max_size=max_size).map(tuple)
    names = _strategy("topic_names", topic_names, _topic_names)
    return st.lists(st.builds(TopicToCommit, names, partitions), min_size=1, max_size=max_size).map(tuple)


# Named, since arguments of the functions above shadow the functions.
_group_ids, _member_ids, _instance_ids = group_ids(), member_ids(), instance_ids()
_client_ids, _topic_names, _generation_ids = client_ids(), topic_names(), generation_ids()
_protocols, _assignments = protocols(), assignments()
