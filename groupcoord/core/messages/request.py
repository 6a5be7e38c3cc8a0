"""Base classes of requests, which name the type of their response."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic

from attrs import NOTHING, Attribute, field

from groupcoord.errors import ErrorCode

if TYPE_CHECKING:  # type checkers bring it; without type parameters, a request may be answered with anything
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R_co]):
    """A request that is answered with an ``R_co``: ``Heartbeat`` is a ``Request[HeartbeatResponse]``."""

    __slots__ = ()

    @abstractmethod
    def refused(self, error_code: ErrorCode, message: str | None = None) -> R_co:
        """Return the response that fails the whole request, as Kafka's ``AbstractRequest.getErrorResponse``.

        Args:
            error_code: stands at the top, or at every entry that the request names where there is no top-level error.
            message: stands beside the error where the response has a field for it.
        """


class GroupRequest(Request[R_co]):
    """A request for one group, which may wait or write."""

    __slots__ = ()

    group_id: str | None


def names_field(default: Any = NOTHING) -> Any:
    """Return an attrs field of several names. A string, whose letters would be names, is a TypeError.

    Its class needs ``@define(on_setattr=setters.NO_OP)``: else attrs validates assignments as well, which makes the
    objects five times as slow to create.
    """
    return field(default=default, validator=_not_a_string)


def _not_a_string(instance: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, str):
        raise TypeError(f"{attribute.name} must be a tuple of names, not the string {value!r}")
