"""Request router: permissions, topics, and the log partition of a group.

Kafka does this in its request layer (``KafkaApis``) and ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import evolve, field

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import served_protocols
from groupcoord.core.fast_construct import define
from groupcoord.core.log.log_partition import Effects
from groupcoord.core.messages import (
    AlterShareGroupOffsets,
    CompleteTransaction,
    CompleteTransactionResponse,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    CoordinatorType,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DeleteShareGroupOffsets,
    DescribedGroup,
    DescribedShareGroupOffsets,
    DescribeGroups,
    DescribeGroupsResponse,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResponse,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResponse,
    Request,
    Response,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdate,
    StreamsGroupTopologyDescriptionUpdateResponse,
    SyncGroup,
    Token,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.messages.commits import refused_topics
from groupcoord.core.messages.request import GroupRequest
from groupcoord.core.messages.share_groups import DescribeOneShareGroup
from groupcoord.core.refusals import unserved
from groupcoord.core.router.authorization import OPERATIONS_ON_A_GROUP, Authorize, Operation, Permissions, Principal
from groupcoord.core.router.modern_groups import (
    DESCRIBED_CONSUMER_GROUPS,
    DESCRIBED_SHARE_GROUPS,
    DESCRIBED_STREAMS_GROUPS,
    NO_DESCRIPTION_PLUGIN,
    complete_description,
    consumer_heartbeat_permission,
    readable_description,
    readable_part,
    refuse_malformed_consumer_heartbeat,
    refuse_malformed_share_heartbeat,
    refuse_malformed_streams_heartbeat,
    refuse_streams_topics,
    with_description_status,
)
from groupcoord.core.router.partition_table import PartitionStatus, PartitionTable
from groupcoord.core.router.split_requests import (
    Coordinators,
    DescribedKind,
    Part,
    SplitRequests,
    find_coordinator,
    with_operations,
)
from groupcoord.core.topics import (
    TopicResolver,
    hide_topics,
    identify_topics,
    merge_results,
    resolve_commit,
    resolve_delete,
    resolve_fetch,
)
from groupcoord.errors import ErrorCode

if TYPE_CHECKING:
    from groupcoord.core.partition import Partition

VerifyTransaction = Callable[[TxnOffsetCommit], ErrorCode]
"""Returns NONE if the producer may commit offsets of this group in its transaction, or the error; must not raise."""

Heartbeats = ConsumerGroupHeartbeat | ShareGroupHeartbeat | StreamsGroupHeartbeat

ALL_OPERATIONS_ON_A_GROUP = sum(1 << operation for operation in OPERATIONS_ON_A_GROUP)


DESCRIBED_KINDS: dict[type, DescribedKind] = {
    ConsumerGroupDescribe: DESCRIBED_CONSUMER_GROUPS,
    ShareGroupDescribe: DESCRIBED_SHARE_GROUPS,
    StreamsGroupDescribe: DESCRIBED_STREAMS_GROUPS,
}


class Route(NamedTuple):
    """Handling of requests of one type.

    Attributes:
        permission: returns NONE or an error; None if permissions are checked for each named resource.
        handler: handles an allowed request.
        group_type: requests fail with UNSUPPORTED_VERSION unless this type of groups is served; None is always served.
    """

    permission: Callable[[Permissions, Any], ErrorCode] | None
    handler: Callable[[Any, Token, Permissions | None, int], None]
    group_type: GroupType | None = None


@define(eq=False, kw_only=True)
class RequestRouter:
    """Routes requests to their handlers.

    Attributes:
        served_protocols: served types of groups; requests for others fail with UNSUPPORTED_VERSION.
    """

    NOT_STATE = ("_assignors", "_authorize", "_verify_transaction", "served_protocols")

    _config: Config
    _assignors: Sequence[str]
    _effects: Effects
    _split_requests: SplitRequests
    _partitions: PartitionTable[str, Partition]
    _topics: TopicResolver
    _cluster: Coordinators
    _authorize: Authorize | None
    _verify_transaction: VerifyTransaction | None
    served_protocols: frozenset[GroupType] = field(init=False)
    _every_route: dict[type[Request], Route] = field(init=False)
    _routes: dict[type[Request], Route] = field(init=False)
    _heartbeat_checks: dict[type[Request], Callable[[Any, Permissions | None], Response | None]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._every_route = {
            JoinGroup: Route(_may_read_group, self._to_group),
            SyncGroup: Route(_may_read_group, self._to_group),
            Heartbeat: Route(_may_read_group, self._to_group),
            LeaveGroup: Route(_may_read_group, self._to_group),
            OffsetCommit: Route(_may_read_group, self._commit),
            TxnOffsetCommit: Route(_may_commit_in_transaction, self._commit_transactional),
            OffsetDelete: Route(_may_delete_group, self._delete_offsets),
            OffsetFetch: Route(None, self._fetch),
            CompleteTransaction: Route(None, self._complete_transaction),
            DescribeGroups: Route(None, self._describe),
            ListGroups: Route(None, self._list),
            DeleteGroups: Route(None, self._delete),
            FindCoordinator: Route(None, self._find_coordinators),
            ConsumerGroupHeartbeat: Route(consumer_heartbeat_permission, self._heartbeat, GroupType.CONSUMER),
            ConsumerGroupDescribe: Route(None, self._describe_kind, GroupType.CONSUMER),
            # With an authorizer, topics of a share group's heartbeat are checked each time: permissions may change.
            ShareGroupHeartbeat: Route(
                _may_read_group, self._heartbeat if self._authorize is None else self._check_heartbeat, GroupType.SHARE
            ),
            ShareGroupDescribe: Route(None, self._describe_kind, GroupType.SHARE),
            DescribeShareGroupOffsets: Route(None, self._describe_share_offsets, GroupType.SHARE),
            DescribeOneShareGroup: Route(None, self._to_group),
            AlterShareGroupOffsets: Route(_may_read_group, self._change_share_offsets, GroupType.SHARE),
            DeleteShareGroupOffsets: Route(_may_delete_group, self._change_share_offsets, GroupType.SHARE),
            StreamsGroupHeartbeat: Route(_may_read_group, self._heartbeat, GroupType.STREAMS),
            StreamsGroupDescribe: Route(None, self._describe_kind, GroupType.STREAMS),
            StreamsGroupTopologyDescriptionUpdate: Route(_may_read_group, self._update_description, GroupType.STREAMS),
        }
        self._heartbeat_checks = {
            ConsumerGroupHeartbeat: self._check_consumer_heartbeat,
            ShareGroupHeartbeat: refuse_malformed_share_heartbeat,
            StreamsGroupHeartbeat: self._check_streams_heartbeat,
        }
        self.serve(served_protocols(self._config))

    def serve(self, protocols: frozenset[GroupType]) -> None:
        """Serve only these types of groups from now on; members of others stay until their sessions expire."""
        self.served_protocols = protocols
        # One table, so that a switched-off protocol costs served ones nothing.
        # Unserved ones need no permission: UNSUPPORTED_VERSION wins over authorization, as in Kafka.
        self._routes = {
            request: route if route.group_type in (None, *protocols) else Route(None, self._unsupported)
            for request, route in self._every_route.items()
        }

    def handle(self, request: Request, token: Token, principal: Principal, now_ms: int) -> None:
        """Handle a request.

        Raises:
            TypeError: the coordinator does not handle this request.
        """
        route = self._routes.get(type(request))
        if route is None:
            raise TypeError(f"{type(request).__name__} is no request of the group coordinator")
        permissions = None
        if self._authorize is not None:
            permissions = Permissions(self._authorize, principal)
            error_code = ErrorCode.NONE if route.permission is None else route.permission(permissions, request)
            if error_code is not ErrorCode.NONE:
                self._effects.reply(token, request.refused(error_code))
                return
        route.handler(request, token, permissions, now_ms)

    def refuse_unserved(self, request: GroupRequest, token: Token, error_code: ErrorCode) -> None:
        self._effects.reply(token, unserved(request, error_code, self._config))

    # ------------------------------------------------------------ requests for one group

    def _to_group(self, request: GroupRequest, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        partitions = self._partitions
        index = partitions.index_of(request.group_id or "")
        partition = partitions.active[index]
        if partition is not None:
            partition.handle(request, token, now_ms)
        else:
            self.refuse_unserved(request, token, partitions.refusal(index))

    def _commit(self, request: OffsetCommit, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        topics, token = self._resolve(request, token, permissions)
        # Kafka does not call the group then: no new group, no renewed session.
        if not topics:
            return
        # Not by evolve, which is slower: this is done for each commit.
        resolved = OffsetCommit(
            request.group_id,
            topics,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.retention_time_ms,
            request.supports_member_epoch,
        )
        partition = self._partitions.serving(request.group_id or "")
        if partition is not None:
            partition.handle(resolved, token, now_ms)
        else:
            self._to_group(resolved, token, permissions, now_ms)

    def _commit_transactional(
        self, request: TxnOffsetCommit, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        topics, token = self._resolve(request, token, permissions)
        if topics:
            resolved = evolve(request, topics=topics)
            error_code = self._transaction_error(resolved)
            if error_code is ErrorCode.NONE:
                self._to_group(resolved, token, permissions, now_ms)
            else:
                self._effects.reply(token, resolved.refused(error_code))

    def _resolve(
        self, request: OffsetCommit | TxnOffsetCommit, token: Token, permissions: Permissions | None
    ) -> tuple[tuple[TopicToCommit, ...], Token]:
        """Return the topics for the group and their token; respond if there are none."""
        topics, refused = resolve_commit(request.topics, self._topics, permissions)
        # A null id is possible in the schema only; Kafka fails each partition.
        if request.group_id is None:
            topics, refused = (), merge_results(refused, refused_topics(topics, ErrorCode.INVALID_GROUP_ID))
        if topics:
            return topics, self._split_requests.partly_refused(token, refused) if refused else token
        results = merge_results(refused, ())
        is_plain = isinstance(request, OffsetCommit)
        self._effects.reply(token, OffsetCommitResponse(results) if is_plain else TxnOffsetCommitResponse(results))
        return topics, token

    def _transaction_error(self, request: TxnOffsetCommit) -> ErrorCode:
        verify = self._verify_transaction
        # Kafka validates the group id and its own state before it asks the transaction coordinator.
        if verify is None or not request.group_id or self._partitions.is_closed:
            return ErrorCode.NONE
        return verify(request)

    def _delete_offsets(
        self, request: OffsetDelete, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        # Kafka checks the topics before the group, as for commits.
        topics, refused = resolve_delete(request.topics, self._topics, permissions)
        token = self._split_requests.partly_refused(token, refused)
        self._to_group(OffsetDelete(request.group_id, topics), token, permissions, now_ms)

    def _complete_transaction(
        self, request: CompleteTransaction, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        # The marker names the log partition, because its producer wrote there.
        partition = self._partitions.active[request.partition]
        if partition is not None:
            partition.commits.complete_transaction(request, token)
        else:
            # Transaction coordinators handle errors of leaders, not NOT_COORDINATOR.
            self._effects.reply(token, CompleteTransactionResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # ------------------------------------------------------------ modern protocols

    def _heartbeat(self, request: Heartbeats, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        # A repeated heartbeat passed all checks before: it is answered without them.
        partition = self._partitions.serving(request.group_id)
        if partition is not None and partition.repeaters[type(request)](request, token, now_ms):
            return
        self._check_heartbeat(request, token, permissions, now_ms, partition)

    def _check_heartbeat(
        self,
        request: Heartbeats,
        token: Token,
        permissions: Permissions | None,
        now_ms: int,
        partition: Partition | None = None,
    ) -> None:
        refusal = self._heartbeat_checks[type(request)](request, permissions)
        if refusal is not None:
            self._effects.reply(token, refusal)
        elif partition is not None:
            partition.handle(request, token, now_ms)
        else:
            self._to_group(request, token, permissions, now_ms)

    def _check_consumer_heartbeat(
        self, request: ConsumerGroupHeartbeat, permissions: Permissions | None
    ) -> ConsumerGroupHeartbeatResponse | None:
        # For the permissions on topics that a regular expression matches.
        request.principal = None if permissions is None else permissions.principal
        return None if self._partitions.is_closed else refuse_malformed_consumer_heartbeat(request, self._assignors)

    def _check_streams_heartbeat(
        self, request: StreamsGroupHeartbeat, permissions: Permissions | None
    ) -> StreamsGroupHeartbeatResponse | None:
        # Creation of internal topics needs further permissions (KIP-1071).
        request.permissions = permissions
        request.principal = None if permissions is None else permissions.principal
        # KafkaApis checks topics before GroupCoordinatorService checks whether it is active.
        refusal = refuse_streams_topics(request, permissions)
        return (
            refusal
            if refusal is not None or self._partitions.is_closed
            else refuse_malformed_streams_heartbeat(request)
        )

    def _describe_share_offsets(
        self, request: DescribeShareGroupOffsets, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        # None marks a part that is still to come.
        groups: list[DescribedShareGroupOffsets | None] = []
        for wanted in request.groups:
            error_code = ErrorCode.NONE
            if permissions is not None:
                error_code = permissions.group_error(wanted.group_id, Operation.DESCRIBE)
            is_allowed = error_code is ErrorCode.NONE
            groups.append(None if is_allowed else DescribedShareGroupOffsets(wanted.group_id, (), error_code))
        if None not in groups:
            self._effects.reply(token, _described(groups))
            return
        gather = self._split_requests.gather(token, groups, _described)
        for place, wanted in [each for each in enumerate(request.groups) if groups[each[0]] is None]:
            allowed, refused = readable_description(wanted, permissions)
            # Each group queries the share coordinator separately.
            part = Part(gather, place, partial(complete_description, refused, permissions))
            self._to_group(DescribeOneShareGroup(*allowed), part, permissions, now_ms)

    def _change_share_offsets(
        self,
        request: AlterShareGroupOffsets | DeleteShareGroupOffsets,
        token: Token,
        permissions: Permissions | None,
        now_ms: int,
    ) -> None:
        if not request.group_id:
            self._effects.reply(token, request.refused(ErrorCode.INVALID_GROUP_ID))
            return
        allowed, refused = readable_part(request, permissions)
        self._to_group(allowed, self._split_requests.partly_refused(token, refused), permissions, now_ms)

    def _update_description(
        self,
        request: StreamsGroupTopologyDescriptionUpdate,
        token: Token,
        permissions: Permissions | None,
        now_ms: int,
    ) -> None:
        # Without a plugin nothing else of the request is checked.
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        self._effects.reply(token, StreamsGroupTopologyDescriptionUpdateResponse(unsupported, NO_DESCRIPTION_PLUGIN))

    def _describe_kind(
        self,
        request: ConsumerGroupDescribe | ShareGroupDescribe | StreamsGroupDescribe,
        token: Token,
        permissions: Permissions | None,
        now_ms: int,
    ) -> None:
        kind = DESCRIBED_KINDS[type(request)]
        described: list[Any] = []
        for group_id in request.group_ids:
            # An empty id is invalid here, unlike in DescribeGroups.
            partition = self._partition_of(group_id or None, Operation.DESCRIBE, permissions)
            if not isinstance(partition, ErrorCode):
                assert group_id is not None
                group = partition.describers[type(request)](group_id)
                described.append(self._shown(kind, group, request, permissions))
            else:
                described.append(kind.described(group_id or "", partition))
        self._effects.reply(token, kind.answer(described))

    def _shown(
        self,
        kind: DescribedKind,
        group: Any,
        request: ConsumerGroupDescribe | ShareGroupDescribe | StreamsGroupDescribe,
        permissions: Permissions | None,
    ) -> Any:
        if permissions is not None:
            # Before the operations are added: a hidden group has none.
            group = kind.hide(group, permissions)
        if request.include_authorized_operations:
            group = with_operations(group, self._operations_on(group.group_id, permissions))
        return with_description_status(group, request) if isinstance(request, StreamsGroupDescribe) else group

    def _unsupported(self, request: Request, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        self._effects.reply(token, request.refused(ErrorCode.UNSUPPORTED_VERSION))

    # ------------------------------------------------------------ requests that name several groups, one by one

    def _partition_of(
        self, group_id: str | None, operation: Operation, permissions: Permissions | None
    ) -> Partition | ErrorCode:
        # KafkaApis checks the permission before the id.
        if permissions is not None and not permissions.on_group(group_id, operation):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if group_id is None:
            return ErrorCode.INVALID_GROUP_ID
        index = self._partitions.index_of(group_id)
        return self._partitions.active[index] or self._partitions.refusal(index)

    def _fetch(self, request: OffsetFetch, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        groups = [self._fetch_group(wanted, request, permissions) for wanted in request.groups]
        self._effects.reply(token, OffsetFetchResponse(tuple(groups)))

    def _fetch_group(self, wanted: GroupToFetch, request: OffsetFetch, permissions: Permissions | None) -> FetchedGroup:
        # Fast path of the usual case: allowed and served.
        partition = (
            None if permissions is not None or wanted.group_id is None else self._partitions.serving(wanted.group_id)
        )
        if partition is None:
            found = self._partition_of(wanted.group_id, Operation.DESCRIBE, permissions)
            if isinstance(found, ErrorCode):
                return FetchedGroup(wanted.group_id or "", found, ())
            partition = found
        # A group that is not served fails as a whole, before its topics are looked at.
        named, refused = resolve_fetch(wanted, self._topics, permissions)
        fetched = partition.commits.fetch(named, require_stable=request.require_stable)
        if wanted.topics is None:
            if permissions is not None:
                # A fetch of all topics omits what may not be seen; named topics fail.
                fetched = hide_topics(fetched, permissions)
            return identify_topics(fetched, self._topics) if request.uses_topic_ids else fetched
        # With an error of the group there are no topics.
        if refused and fetched.error_code is ErrorCode.NONE:
            # Errors come last, unlike in responses to commits.
            return fetched._replace(topics=fetched.topics + refused)
        return fetched

    def _describe(self, request: DescribeGroups, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        refused: list[DescribedGroup] = []
        described: list[DescribedGroup] = []
        for group_id in request.group_ids:
            partition = self._partition_of(group_id, Operation.DESCRIBE, permissions)
            if isinstance(partition, ErrorCode):
                group = DescribedGroup(group_id or "", partition)
                # Kafka lists groups without permission first.
                (refused if partition is ErrorCode.GROUP_AUTHORIZATION_FAILED else described).append(group)
                continue
            assert group_id is not None
            group = partition.describers[DescribeGroups](group_id)
            if request.include_authorized_operations:
                group = group._replace(authorized_operations=self._operations_on(group_id, permissions))
            described.append(group)
        self._effects.reply(token, DescribeGroupsResponse(tuple(refused + described)))

    @staticmethod
    def _operations_on(group_id: str, permissions: Permissions | None) -> int:
        return ALL_OPERATIONS_ON_A_GROUP if permissions is None else permissions.group_operations(group_id)

    def _list(self, request: ListGroups, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        if self._partitions.is_closed:
            self._effects.reply(token, ListGroupsResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        # One loading partition fails the whole list, which would be incomplete.
        if PartitionStatus.LOADING in self._partitions.status:
            self._effects.reply(token, ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        # Kafka 4 trims the names of states, but not those of types.
        states = frozenset(state.strip().lower() for state in request.states_filter)
        types = frozenset(group_type.lower() for group_type in request.types_filter)
        groups: list[ListedGroup] = []
        # Groups of other log partitions are listed by their own coordinators.
        for partition in self._partitions:
            groups += partition.administration.list_groups(states, types)
        # DESCRIBE on the cluster shows all groups, otherwise each needs its own.
        if permissions is not None and not permissions.on_cluster(Operation.DESCRIBE):
            groups = [group for group in groups if permissions.on_group(group.group_id, Operation.DESCRIBE)]
        self._effects.reply(token, ListGroupsResponse(ErrorCode.NONE, tuple(groups)))

    def _delete(self, request: DeleteGroups, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        refused: list[DeletedGroup] = []
        # One append for each log partition; results come separately.
        served: dict[Partition, list[str]] = {}
        # A repeated id is deleted once, and has one result.
        for group_id in dict.fromkeys(request.group_ids):
            partition = self._partition_of(group_id, Operation.DELETE, permissions)
            if not isinstance(partition, ErrorCode):
                assert group_id is not None
                served.setdefault(partition, []).append(group_id)
            else:
                refused.append(DeletedGroup(group_id or "", partition))
        if not served:
            self._effects.reply(token, DeleteGroupsResponse(tuple(refused)))
            return
        gather = self._split_requests.gather(token, [refused, *[None] * len(served)], _deleted)
        for place, (partition, group_ids) in enumerate(served.items(), 1):
            part = Part(gather, place, attrgetter("results"))
            partition.administration.delete_groups(group_ids, part, now_ms)

    def _find_coordinators(
        self, request: FindCoordinator, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        coordinators = []
        for key in request.keys:
            error_code = ErrorCode.NONE if permissions is None else _find_error(request, key, permissions)
            coordinators.append(find_coordinator(request, key, self._cluster, error_code))
        self._effects.reply(token, FindCoordinatorResponse(tuple(coordinators)))


def _may_read_group(permissions: Permissions, request: GroupRequest) -> ErrorCode:
    return permissions.group_error(request.group_id, Operation.READ)


def _may_delete_group(permissions: Permissions, request: GroupRequest) -> ErrorCode:
    return permissions.group_error(request.group_id, Operation.DELETE)


def _may_commit_in_transaction(permissions: Permissions, request: TxnOffsetCommit) -> ErrorCode:
    # Kafka checks the transactional id before the group.
    if not permissions.on_transactional_id(request.transactional_id, Operation.WRITE):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return permissions.group_error(request.group_id, Operation.READ)


def _deleted(results: Sequence[Iterable[DeletedGroup]]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(tuple(chain.from_iterable(results)))


def _described(groups: Sequence[Any]) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(tuple(groups))


def _find_error(request: FindCoordinator, key: str, permissions: Permissions) -> ErrorCode:
    match request.key_type:
        case CoordinatorType.GROUP if not permissions.on_group(key, Operation.DESCRIBE):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        case CoordinatorType.TRANSACTION if not permissions.on_transactional_id(key, Operation.DESCRIBE):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        # Before version 6 INVALID_REQUEST wins over the permission.
        case CoordinatorType.SHARE if request.supports_share_keys:
            if not permissions.on_cluster(Operation.CLUSTER_ACTION):
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE
