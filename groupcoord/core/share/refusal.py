"""What requests are answered that the rules of share groups refuse."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.core.messages import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    Response,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
)
from groupcoord.core.modern.refusal import RefusedError

REFUSALS: dict[type, Callable[[RefusedError], Response]] = {
    ShareGroupHeartbeat: lambda error: ShareGroupHeartbeatResponse(error.error_code, error.message),
    AlterShareGroupOffsets: lambda error: AlterShareGroupOffsetsResponse(error.error_code, error.message),
    DeleteShareGroupOffsets: lambda error: DeleteShareGroupOffsetsResponse(error.error_code, error.message),
}
