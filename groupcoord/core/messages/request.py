"""What all requests have in common: each says by its type what it is answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:  # type checkers bring it; without type parameters, a request may be answered with anything
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R_co]):
    """A request that is answered with an ``R_co``: ``Heartbeat`` is a ``Request[HeartbeatResponse]``."""

    __slots__ = ()


class GroupRequest(Request[R_co]):
    """A request for one group, which may wait or write."""

    __slots__ = ()

    group_id: str | None
