"""ListGroups and DeleteGroups of one log partition."""

from __future__ import annotations

from groupcoord.core.events import Cause
from groupcoord.core.groups.group import Deletion, Group
from groupcoord.core.handler_context import HandlerContext, Writing
from groupcoord.core.log.append_failures import refused
from groupcoord.core.log.records import OffsetTombstone, Record
from groupcoord.core.messages import DeletedGroup, DeleteGroupsResponse, ListedGroup, Reply, Token
from groupcoord.core.offsets.commits import WhenDeleted, count_offsets
from groupcoord.errors import ErrorCode

FILTERED_AS = {"NotReady": "not_ready"}
"""Values of a states filter for states without an exact lower-case name (Kafka's ``StreamsGroupState``)."""

TOMBSTONE_BYTES_MIN = 16
"""Minimum size of an offset's tombstone in a batch of the log, without the names of group and topic."""


class Administration:
    """Handles administrative requests of one log partition."""

    __slots__ = ("_context",)

    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    def list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[ListedGroup]:
        """Return the groups that pass the lower-case filters of state and type; an empty filter passes all."""
        return [
            listed
            for listed in (group.listed() for group in self._context.visible_groups())
            if (not states or FILTERED_AS.get(listed.group_state, listed.group_state.lower()) in states)
            and (not types or listed.group_type.lower() in types)
        ]

    def delete_groups(self, group_ids: list[str], token: Token, now_ms: int) -> None:
        deletion = Deletion([*group_ids], token, self._delete_rest)
        for group_id in group_ids:
            group = self._context.groups.get(group_id)
            if group is not None and self._deletion_error(group) is ErrorCode.NONE:
                kind = self._context.kinds[type(group)]
                # States of a share group are deleted at the share coordinator first.
                # True counts as one more answer to wait for.
                deletion.awaited += kind.delete_external_state(group, deletion, now_ms)
        if not deletion.awaited:
            self._delete_rest(deletion)

    def _delete_rest(self, deletion: Deletion) -> None:
        results, groups = deletion.results, []
        for group_id in deletion.group_ids:
            group = self._context.groups.get(group_id)
            # Checked again: members may have joined while external state was deleted.
            error_code = self._deletion_error(group)
            if group is not None and error_code is ErrorCode.NONE:
                groups.append(group)
            results.append(DeletedGroup(group_id, error_code))
        held = Reply(deletion.token, DeleteGroupsResponse(tuple(results)))
        if not groups:
            self._context.effects.replies.append(held)
        elif sum(map(self._tombstone_bytes_min, groups)) > self._context.config.message_max_bytes:
            # No log accepts so large a batch, so the request fails at once.
            self._context.effects.replies.append(refused(held, ErrorCode.MESSAGE_TOO_LARGE))
        else:
            records = [record for group in groups for record in self.begin_deletion(group)]
            written = WhenDeleted(tuple(groups), Cause.DELETION, count_offsets(records))
            self._context.writer.begin(records, written, (held,))

    def _tombstone_bytes_min(self, group: Group) -> int:
        group_id = group.group_id
        return sum(
            len(partitions) * (TOMBSTONE_BYTES_MIN + len(group_id) + len(topic))
            for topic, partitions in self._context.writer.hard.offsets.of_group(group_id).items()
        )

    def _deletion_error(self, group: Group | None) -> ErrorCode:
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.may_delete(group) else ErrorCode.NON_EMPTY_GROUP

    def may_delete(self, group: Group) -> bool:
        """Return whether a group has no members, and no write in flight decides about it."""
        # A conversion in flight would add a member.
        return group.is_empty and group.group_id not in self._context.writings

    def begin_deletion(self, group: Group) -> list[Record]:
        """Suspend requests for a group; return the tombstones of its offsets and of the group."""
        context = self._context
        # Readers see it in the writings until the tombstones are durable.
        del context.groups[group.group_id]
        context.writings[group.group_id] = Writing(group, [], [])
        # Offsets in flight and in open transactions are covered, too.
        keys = context.writer.hard.offsets.known_keys(group.group_id)
        tombstones: list[Record] = [OffsetTombstone(group.group_id, topic, index) for topic, index in keys]
        # Kafka's order: offsets before the group.
        return tombstones + group.tombstones()
