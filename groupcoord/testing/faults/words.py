"""Names as tests write them: of APIs, of errors, of what a request must be like. What is unknown is said in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from groupcoord.errors import ErrorCode, UnknownNameError
from groupcoord.testing.asserting.words import did_you_mean
from groupcoord.testing.faults.calls import Call
from groupcoord.testing.faults.error_answers import request_types
from groupcoord.testing.faults.partition_errors import NAMING_PARTITIONS
from groupcoord.wire.api import Api
from groupcoord.wire.registry import APIS

__tracebackhide__ = True

Where = Callable[[Call], object] | Mapping[str, object]
"""Which requests are meant: a function that tells, or attributes of :class:`Call` and fields of the request with the
values that they must have; also ``group_id`` and ``topic``, one of those that the request names."""

APIS_BY_NAME: Mapping[str, Api] = {api.name: api for api in APIS.values()}

OF_THE_CALL = ("version", "client_id", "client_host", "principal", "node_id")
NAMED_BY_REQUESTS = {"group_id": "group_ids", "topic": "topics"}
PARTITION = "partition"


_ERRORS_BY_NUMBER: Mapping[int, ErrorCode] = {int(code): code for code in ErrorCode}


def _unknown(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    return UnknownNameError(f"there is no {kind} {name!r}{did_you_mean(str(name), known)}")


def api_named(name: str) -> Api:
    """Return an API by Kafka's name for it.

    Raises:
        UnknownNameError: it isn't served.
    """
    api = APIS_BY_NAME.get(name)
    if api is None:
        raise _unknown("API", name, APIS_BY_NAME)
    return api


def error_named(error: ErrorCode | str | int) -> ErrorCode:
    """Return an error that is given as such, by Kafka's name or by its number.

    Raises:
        UnknownNameError: there is no such error, or it is none.
    """
    is_number = isinstance(error, int) and not isinstance(error, bool | ErrorCode)
    code = (
        _ERRORS_BY_NUMBER.get(int(error))
        if is_number
        else ErrorCode.__members__.get(str(getattr(error, "name", error)))
    )
    if code is None:
        raise _unknown("error", error, ErrorCode.__members__)
    if code is ErrorCode.NONE:
        raise UnknownNameError("NONE is no error")
    return code


def describe_where(where: Where | None) -> str:
    """Return in words which requests are meant: ``where group_id='billing'``; empty if all are."""
    if where is None:
        return ""
    if callable(where):
        return f"where {getattr(where, '__name__', 'a function')}() says so"
    return "where " + ", ".join(f"{name}={value!r}" for name, value in where.items())


def matcher(api: str, where: Where | None) -> Callable[[Call], object]:
    """Return what tells whether a request of this API is meant.

    Raises:
        UnknownNameError: requests of this API have no such field.
    """
    if where is None:
        return lambda call: True
    if callable(where):
        return where
    fields = (*_request_fields(api), *((PARTITION,) if names_partitions(api) else ()))
    for name in where:
        if name not in fields and name not in OF_THE_CALL and name not in NAMED_BY_REQUESTS:
            known = dict.fromkeys((*OF_THE_CALL, *NAMED_BY_REQUESTS, *fields))
            raise UnknownNameError(f"requests of {api} have no {name!r}; they have {', '.join(known)}")
    wanted = dict(where)
    chosen = partition_chooser(where)
    if chosen is not None:
        wanted.pop(PARTITION)
        return lambda call: (
            any(chosen(*place) for place in call.partitions)
            and all(_has(call, name, value) for name, value in wanted.items())
        )
    return lambda call: all(_has(call, name, value) for name, value in wanted.items())


def names_partitions(api: str) -> bool:
    """Return True if single partitions of requests of an API can fail."""
    return issubclass(request_types()[api], NAMING_PARTITIONS)


def partition_chooser(where: Where | None) -> Callable[[str, int], bool] | None:
    """Return what tells by topic and number which partitions are meant; None if whole requests are.

    Raises:
        TypeError: the partition is no number.
    """
    if where is None or callable(where) or PARTITION not in where:
        return None
    index, topic = where[PARTITION], where.get("topic")
    if not isinstance(index, int) or isinstance(index, bool):
        raise TypeError(f"partition must be a number, not {index!r}")
    return lambda name, number: number == index and topic in (None, name)


def _request_fields(api: str) -> tuple[str, ...]:
    return tuple(attribute.name for attribute in request_types()[api].__attrs_attrs__)


def _has(call: Call, name: str, value: object) -> bool:
    if name in NAMED_BY_REQUESTS:
        return value in getattr(call, NAMED_BY_REQUESTS[name])
    return bool(getattr(call if name in OF_THE_CALL else call.request, name) == value)
