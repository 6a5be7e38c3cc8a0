"""Base classes of requests, which name the type of their response and derive responses with errors."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, get_args, get_origin, get_type_hints

from attrs import NOTHING, Attribute, field, fields as attributes_of, has

from groupcoord.errors import ErrorCode

if TYPE_CHECKING:  # type checkers bring it; without type parameters, a request may be answered with anything
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class Response:
    """Base of the responses of a group coordinator."""

    __slots__ = ()


class Request(Generic[R_co]):
    """A request that is answered with an ``R_co``: ``Heartbeat`` is a ``Request[HeartbeatResponse]``."""

    __slots__ = ()

    def refused(self, error_code: ErrorCode, message: str | None = None) -> R_co:
        """Return the response that fails the whole request, as Kafka's ``AbstractRequest.getErrorResponse``.

        The error stands at the top of the response if there is a field for it. Otherwise, and if the response class has
        ``repeats_error``, it stands at one entry for each entry of the request's first array. Entries repeat the fields
        that name a group, topic, partition or resource: those without a default.

        Args:
            error_code: the top-level error, or the error of every entry in responses without one.
            message: the message, in responses that have a field for it.
        """
        request_class: Any = type(self)
        response: R_co = _failed(_response_class(request_class), self, error_code, message)
        return response


class GroupRequest(Request[R_co]):
    """A request for one group, which may wait or write."""

    __slots__ = ()

    group_id: str | None


class RefusedError(Exception):
    """Refusal of a request, none of which has any effect."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message


def failed(response: Any, error_code: ErrorCode) -> Any:
    """Return the response of the same type with an error, as :meth:`Request.refused`."""
    return _failed(type(response), response, error_code, None)


class _Shape(NamedTuple):
    """Fields of a response or an entry: repeated ones, the error, and the array of entries with errors."""

    repeated: tuple[str, ...]
    error: frozenset[str]
    entries: str
    entry_class: type[Any] | None


def _failed(made: Any, source: Any, error_code: ErrorCode, message: str | None) -> Any:
    shape = _shape_of(made)
    values: dict[str, Any] = {}
    for name in shape.repeated:
        # In an array of names the entry is the name. A group id may be null in requests, but not in responses.
        values[name] = "" if source is None else source if isinstance(source, str | int) else getattr(source, name)
    for name, value in (("error_code", error_code), ("error_message", message)):
        if name in shape.error:
            values[name] = value
    if shape.entry_class is not None:
        values_of_source = (getattr(source, name) for name in _names(type(source)))
        named = next((value for value in values_of_source if isinstance(value, tuple | list)), ())
        values[shape.entries] = tuple([_failed(shape.entry_class, each, error_code, message) for each in named])
    return made(**values)


@cache
def _shape_of(made: Any) -> _Shape:
    names, types = _names(made), field_types(made)
    error = frozenset({"error_code", "error_message"}.intersection(names))
    entries, entry_class = "", None
    if "error_code" not in error or getattr(made, "repeats_error", False):
        entries = next(name for name in names if get_origin(types[name]) is tuple)
        entry_class = get_args(types[entries])[0]
    repeated = [name for name in names if name not in error | {entries} and not _has_default(made, name)]
    return _Shape(tuple(repeated), error, entries, entry_class)


def field_types(declared: Any) -> dict[str, Any]:
    """Return the types of a class's fields by name; ``declared`` may be a generic class with its argument."""
    arguments = get_args(declared)
    types = get_type_hints(get_origin(declared) or declared)
    return {name: kind[arguments] if getattr(kind, "__parameters__", ()) else kind for name, kind in types.items()}


def _names(made: Any) -> tuple[str, ...]:
    return tuple([attribute.name for attribute in attributes_of(made)]) if has(made) else made._fields


def _has_default(made: Any, name: str) -> bool:
    if not has(made):
        return name in made._field_defaults
    return getattr(attributes_of(made), name).default is not NOTHING


@cache
def _response_class(request_class: Any) -> type[Any]:
    # The base names it: GroupRequest[HeartbeatResponse].
    ((response,),) = (get_args(base) for base in request_class.__orig_bases__)
    # Given as text where the response class follows the request.
    name = getattr(response, "__forward_arg__", "")
    found: type[Any] = getattr(sys.modules[request_class.__module__], name, response)
    return found


def names_field(default: Any = NOTHING) -> Any:
    """Return an attrs field of several names; a string raises TypeError."""
    # Its class has on_setattr=NO_OP: validated assignments make creation five times as slow.
    return field(default=default, validator=_not_a_string)


def _not_a_string(instance: object, attribute: Attribute[Any], value: object) -> None:
    # A string is a sequence of names, too, and a common mistake.
    if isinstance(value, str):
        raise TypeError(f"{attribute.name} must be a tuple of names, not the string {value!r}")
