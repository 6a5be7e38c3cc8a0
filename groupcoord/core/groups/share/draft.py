"""What one append of a share group will be, and what the share coordinator is asked when it is durable."""

from __future__ import annotations

from attrs import define

from groupcoord.core.administration import Deletion
from groupcoord.core.groups.base.draft import Draft
from groupcoord.core.groups.share.records import ShareGroupMetadataRecord
from groupcoord.core.groups.share.state import ShareState
from groupcoord.core.messages import AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponse
from groupcoord.core.messages.share_state import DeleteShareGroupState, InitializeShareGroupState
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode

StateRequest = InitializeShareGroupState | DeleteShareGroupState
"""What the share coordinator is asked to do for a group."""


AwaitedResponse = AlterShareGroupOffsetsResponse | DeleteShareGroupOffsetsResponse
"""What is answered when the share coordinator has done it."""


@define(eq=False)
class StateChange:
    """Something that the share coordinator is asked to do, after the group has written that it will be.

    Attributes:
        request: what it is asked.
        is_awaited: the request that brings it about is answered after it.
        token: of the request that waits for it; None if none does, or it was answered before, as that took too long.
        response: what that one is answered if all goes well.
        deletion: of the group, which goes on then; None if it isn't deleted.
    """

    request: StateRequest
    is_awaited: bool = False
    token: Token = None
    response: AwaitedResponse | None = None
    deletion: Deletion | None = None

    def parked_tokens(self) -> list[Token]:
        """Return the token of the request that waits for it, if there is one."""
        token = self.token if self.deletion is None else self.deletion.token
        return [] if token is None else [token]

    def refuse(self, error_code: ErrorCode) -> list[Reply]:
        """Return what is told to whom waits for it, who waits no longer."""
        if self.deletion is not None:
            return self.deletion.refuse(error_code)
        token, self.token = self.token, None
        if token is None or self.response is None:
            return []
        return [Reply(token, type(self.response)(error_code))]


class ShareDraft(Draft[ShareState]):
    """A draft of a share group.

    Attributes:
        changes: what the share coordinator is to be asked.
    """

    __slots__ = ("_marked_changes", "changes")

    def __init__(self, durable: ShareState) -> None:
        super().__init__(durable)
        self.changes: list[StateChange] = []
        self._marked_changes = 0

    def mark(self) -> None:
        """Let the next request build on what was drafted so far."""
        super().mark()
        self._marked_changes = len(self.changes)

    def roll_back(self) -> None:
        """Forget what was drafted since the mark."""
        super().roll_back()
        del self.changes[self._marked_changes :]

    def epoch_record(self, epoch: int, metadata_hash: int) -> ShareGroupMetadataRecord:
        """Return the record of an epoch of the group."""
        return ShareGroupMetadataRecord(self.state.group_id, epoch, metadata_hash)
