"""What a request meets before its group: permissions, topics, and the way to its log partition.

Kafka does this in its request layer (``KafkaApis``) and ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from groupcoord.config import Config
from groupcoord.core.context import GroupRequest
from groupcoord.core.effects import Effects
from groupcoord.core.front.authorization import OPERATIONS_ON_A_GROUP, Authorize, Operation, Permissions, Principal
from groupcoord.core.front.partition_table import PartitionStatus, PartitionTable
from groupcoord.core.front.routing import Cluster, find_coordinator
from groupcoord.core.front.split_requests import SplitRequests
from groupcoord.core.front.topics import (
    TopicResolver,
    hide_topics,
    identify_topics,
    merge_results,
    resolve_commit,
    resolve_delete,
    resolve_fetch,
)
from groupcoord.core.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    CoordinatorType,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroups,
    DescribeGroupsResponse,
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
    SyncGroup,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.offsets.commits import refused_topics
from groupcoord.core.refusals import refuse
from groupcoord.core.replies import Token
from groupcoord.errors import ErrorCode

VerifyTransaction = Callable[[TxnOffsetCommit], ErrorCode]
"""Returns NONE if the producer may commit offsets of this group in its transaction, or why not; must not raise."""

ALL_OPERATIONS_ON_A_GROUP = sum(1 << operation for operation in OPERATIONS_ON_A_GROUP)


class Front:
    """Takes requests to where they are answered."""

    __slots__ = (
        "_authorize",
        "_cluster",
        "_config",
        "_effects",
        "_handlers",
        "_partitions",
        "_split_requests",
        "_topics",
        "_verify_transaction",
    )

    def __init__(
        self,
        *,
        config: Config,
        effects: Effects,
        split_requests: SplitRequests,
        partitions: PartitionTable,
        topics: TopicResolver,
        cluster: Cluster,
        authorize: Authorize | None,
        verify_transaction: VerifyTransaction | None,
    ) -> None:
        self._config = config
        self._effects = effects
        self._split_requests = split_requests
        self._partitions = partitions
        self._topics = topics
        self._cluster = cluster
        self._authorize = authorize
        self._verify_transaction = verify_transaction
        self._handlers: dict[type, Callable[[Any, Token, Permissions | None, int], None]] = {
            JoinGroup: self._to_group_of_member,
            SyncGroup: self._to_group_of_member,
            Heartbeat: self._to_group_of_member,
            LeaveGroup: self._to_group_of_member,
            OffsetCommit: self._commit,
            TxnOffsetCommit: self._commit_transactional,
            CompleteTransaction: self._complete_transaction,
            OffsetFetch: self._fetch,
            OffsetDelete: self._delete_offsets,
            DescribeGroups: self._describe,
            ListGroups: self._list,
            DeleteGroups: self._delete,
            FindCoordinator: self._find_coordinators,
        }

    def handle(self, request: Request, token: Token, principal: Principal, now_ms: int) -> None:
        """Take a request.

        Raises:
            TypeError: this is no request of the coordinator.
        """
        handler = self._handlers.get(type(request))
        if handler is None:
            raise TypeError(f"{type(request).__name__} is no request of the group coordinator")
        permissions = None if self._authorize is None else Permissions(self._authorize, principal)
        handler(request, token, permissions, now_ms)

    # ------------------------------------------------------------ requests for one group

    def _to_group_of_member(
        self, request: GroupRequest, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        if permissions is None or permissions.on_group(request.group_id, Operation.READ):
            self._to_group(request, token, now_ms)
        else:
            self._refuse(request, token, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def _to_group(self, request: GroupRequest, token: Token, now_ms: int) -> None:
        partitions = self._partitions
        index = partitions.index_of(request.group_id or "")
        partition = partitions.active[index]
        if partition is not None:
            partition.handle(request, token, now_ms)
        else:
            self._refuse(request, token, partitions.refusal(index))

    def _refuse(self, request: GroupRequest, token: Token, error_code: ErrorCode) -> None:
        self._effects.reply(token, refuse(request, error_code, self._config))

    def _commit(self, request: OffsetCommit, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        if permissions is not None and not permissions.on_group(request.group_id, Operation.READ):
            self._refuse(request, token, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return
        topics, token = self._resolve(request, token, permissions)
        if topics:
            resolved = OffsetCommit(
                request.group_id,
                topics,
                request.generation_id,
                request.member_id,
                request.group_instance_id,
                request.retention_time_ms,
            )
            self._to_group(resolved, token, now_ms)

    def _commit_transactional(
        self, request: TxnOffsetCommit, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        if permissions is not None:
            if not permissions.on_transactional_id(request.transactional_id, Operation.WRITE):
                self._refuse(request, token, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                return
            if not permissions.on_group(request.group_id, Operation.READ):
                self._refuse(request, token, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                return
        topics, token = self._resolve(request, token, permissions)
        if topics:
            resolved = evolve(request, topics=topics)
            error_code = self._transaction_error(resolved)
            if error_code is ErrorCode.NONE:
                self._to_group(resolved, token, now_ms)
            else:
                self._refuse(resolved, token, error_code)

    def _resolve(
        self, request: OffsetCommit | TxnOffsetCommit, token: Token, permissions: Permissions | None
    ) -> tuple[tuple[TopicToCommit, ...], Token]:
        """Return the topics that the group gets to see, and the token for them; if there are none, answer."""
        topics, refused = resolve_commit(request.topics, self._topics, permissions)
        if request.group_id is None:
            topics, refused = (), merge_results(refused, refused_topics(topics, ErrorCode.INVALID_GROUP_ID))
        if topics:
            return topics, self._split_requests.partly_refused(token, refused)
        results = merge_results(refused, ())
        is_plain = isinstance(request, OffsetCommit)
        self._effects.reply(token, OffsetCommitResponse(results) if is_plain else TxnOffsetCommitResponse(results))
        return topics, token

    def _transaction_error(self, request: TxnOffsetCommit) -> ErrorCode:
        """Have the producer verified, which is the last thing before the group is looked at."""
        verify = self._verify_transaction
        if verify is None or not request.group_id or self._partitions.is_closed:
            return ErrorCode.NONE
        return verify(request)

    def _delete_offsets(
        self, request: OffsetDelete, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        if permissions is not None and not permissions.on_group(request.group_id, Operation.DELETE):
            self._refuse(request, token, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return
        topics, refused = resolve_delete(request.topics, self._topics, permissions)
        token = self._split_requests.partly_refused(token, refused)
        self._to_group(OffsetDelete(request.group_id, topics), token, now_ms)

    def _complete_transaction(
        self, request: CompleteTransaction, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        partition = self._partitions.active[request.partition]
        if partition is not None:
            partition.complete_transaction(request, token)
        else:
            self._effects.reply(token, CompleteTransactionResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # ------------------------------------------------------------ reading offsets

    def _fetch(self, request: OffsetFetch, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        groups = [self._fetch_group(wanted, request, permissions) for wanted in request.groups]
        self._effects.reply(token, OffsetFetchResponse(tuple(groups)))

    def _fetch_group(self, wanted: GroupToFetch, request: OffsetFetch, permissions: Permissions | None) -> FetchedGroup:
        if permissions is not None and not permissions.on_group(wanted.group_id, Operation.DESCRIBE):
            return FetchedGroup(wanted.group_id or "", ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
        if wanted.group_id is None:
            return FetchedGroup("", ErrorCode.INVALID_GROUP_ID, ())
        index = self._partitions.index_of(wanted.group_id)
        partition = self._partitions.active[index]
        if partition is None:
            return FetchedGroup(wanted.group_id, self._partitions.refusal(index), ())
        named, refused = resolve_fetch(wanted, self._topics, permissions)
        fetched = partition.fetch(named, require_stable=request.require_stable)
        if wanted.topics is None:
            if permissions is not None:
                fetched = hide_topics(fetched, permissions)
            return identify_topics(fetched, self._topics) if request.uses_topic_ids else fetched
        return fetched._replace(topics=fetched.topics + refused) if refused else fetched

    # ------------------------------------------------------------ administration

    def _describe(self, request: DescribeGroups, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        refused, described = [], []
        for group_id in request.group_ids:
            if permissions is not None and not permissions.on_group(group_id, Operation.DESCRIBE):
                refused.append(DescribedGroup(group_id or "", ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            group = self._describe_group(group_id)
            is_shown = group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
            if request.include_authorized_operations and is_shown:
                allowed = (
                    ALL_OPERATIONS_ON_A_GROUP if permissions is None else permissions.group_operations(group.group_id)
                )
                group = evolve(group, authorized_operations=allowed)
            described.append(group)
        self._effects.reply(token, DescribeGroupsResponse(tuple(refused + described)))

    def _describe_group(self, group_id: str | None) -> DescribedGroup:
        if group_id is None:
            return DescribedGroup("", ErrorCode.INVALID_GROUP_ID)
        index = self._partitions.index_of(group_id)
        partition = self._partitions.active[index]
        if partition is None:
            return DescribedGroup(group_id, self._partitions.refusal(index))
        return partition.describe_group(group_id)

    def _list(self, request: ListGroups, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        if self._partitions.is_closed:
            self._effects.reply(token, ListGroupsResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        if PartitionStatus.LOADING in self._partitions.status:
            self._effects.reply(token, ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        states = frozenset(state.strip().lower() for state in request.states_filter)
        types = frozenset(group_type.lower() for group_type in request.types_filter)
        groups: list[ListedGroup] = []
        for partition in self._partitions:
            groups += partition.list_groups(states, types)
        if permissions is not None and not permissions.on_cluster(Operation.DESCRIBE):
            groups = [group for group in groups if permissions.on_group(group.group_id, Operation.DESCRIBE)]
        self._effects.reply(token, ListGroupsResponse(ErrorCode.NONE, tuple(groups)))

    def _delete(self, request: DeleteGroups, token: Token, permissions: Permissions | None, now_ms: int) -> None:
        results: list[DeletedGroup] = []
        served: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(request.group_ids):
            index = -1 if group_id is None else self._partitions.index_of(group_id)
            if permissions is not None and not permissions.on_group(group_id, Operation.DELETE):
                results.append(DeletedGroup(group_id or "", ErrorCode.GROUP_AUTHORIZATION_FAILED))
            elif group_id is None:
                results.append(DeletedGroup("", ErrorCode.INVALID_GROUP_ID))
            elif self._partitions.active[index] is None:
                results.append(DeletedGroup(group_id, self._partitions.refusal(index)))
            else:
                served.setdefault(index, []).append(group_id)
        if not served:
            self._effects.reply(token, DeleteGroupsResponse(tuple(results)))
        deletion = self._split_requests.deletion(token, results, len(served))
        for index, group_ids in served.items():
            partition = self._partitions.active[index]
            assert partition is not None
            partition.delete_groups(group_ids, deletion)

    def _find_coordinators(
        self, request: FindCoordinator, token: Token, permissions: Permissions | None, now_ms: int
    ) -> None:
        coordinators = []
        for key in request.keys:
            error_code = ErrorCode.NONE if permissions is None else _find_error(request, key, permissions)
            coordinators.append(find_coordinator(request, key, self._cluster, error_code))
        self._effects.reply(token, FindCoordinatorResponse(tuple(coordinators)))


def _find_error(request: FindCoordinator, key: str, permissions: Permissions) -> ErrorCode:
    match request.key_type:
        case CoordinatorType.GROUP if not permissions.on_group(key, Operation.DESCRIBE):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        case CoordinatorType.TRANSACTION if not permissions.on_transactional_id(key, Operation.DESCRIBE):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        case CoordinatorType.SHARE if request.supports_share_keys:
            if not permissions.on_cluster(Operation.CLUSTER_ACTION):
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE
