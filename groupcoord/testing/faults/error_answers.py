"""Responses for injected errors: the error at the top, or at every entry that the request names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from attrs import evolve

from groupcoord.core.messages import Request
from groupcoord.errors import ErrorCode
from groupcoord.wire import API_VERSIONS, Answered, WireRequest, WireResponse
from groupcoord.wire.broker_messages import Metadata, MetadataResponse
from groupcoord.wire.cluster_messages import ApiVersions, ApiVersionsResponse, ServedApi

API_VERSIONS_KEY = 18


@cache
def request_types() -> dict[str, type[Any]]:
    """Return the class of each request of the protocol by its name, which is that of the API."""
    return {kind.__name__: kind for kind in (*_leaves(Request), *get_args(WireRequest))}


def _leaves(kind: type[Any]) -> Iterator[type[Any]]:
    for subclass in kind.__subclasses__():
        yield from _leaves(subclass) if subclass.__subclasses__() else (subclass,)


def refuse_topics(response: MetadataResponse, error_code: ErrorCode) -> MetadataResponse:
    """Return a Metadata response with an error at each topic, and the nodes as they are.

    Clients ignore a response without nodes.
    """
    topics = tuple([topic._replace(error_code=error_code, partitions=()) for topic in response.topics])
    return evolve(response, topics=topics)


def refuse(request: WireRequest, error_code: ErrorCode) -> WireResponse | None:
    """Return the response that fails a whole request; None for Metadata, see :func:`refuse_topics`, and if answered."""
    if isinstance(request, Metadata | Answered):
        return None
    if isinstance(request, ApiVersions):
        # With UNSUPPORTED_VERSION comes the range of this API, so that clients can try again (KIP-511).
        known = (ServedApi(API_VERSIONS_KEY, *API_VERSIONS[API_VERSIONS_KEY]),)
        return ApiVersionsResponse(error_code, known if error_code is ErrorCode.UNSUPPORTED_VERSION else ())
    response: WireResponse = request.refused(error_code)
    return response
