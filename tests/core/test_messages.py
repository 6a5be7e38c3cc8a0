"""Types of requests and responses, with one routing row per request; their constructors."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from attrs import Factory, field

import groupcoord.messages
from groupcoord import GroupCoordinator
from groupcoord.core import fast_construct, messages
from groupcoord.core.messages import share_state
from groupcoord.core.messages.request import GroupRequest, Request
from groupcoord.core.messages.share_groups import DescribeOneShareGroup, DescribeOneShareGroupResponse
from tests.subclasses import subclasses
from tests.tables import as_one_test

from ..house.sources import public_names


def kinds(parent: type[Request] = Request) -> Iterator[type[Request]]:
    """Yield every type of request of the group coordinator, which other coordinators' and the broker's are not."""
    for child in subclasses(parent):
        is_ours = child.__module__.startswith(messages.__name__) and child.__module__ != share_state.__name__
        if is_ours and child is not GroupRequest:
            yield child
        yield from kinds(child)


KINDS = sorted(set(kinds()), key=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def coordinator() -> GroupCoordinator:
    """A coordinator that serves everything."""
    coordinator = GroupCoordinator()
    coordinator.load_all()
    return coordinator


def test_every_request_has_its_row(coordinator: GroupCoordinator) -> None:
    """The router's table has exactly the request types, each with permission and handler."""
    assert set(coordinator._router._routes) == set(KINDS)


def test_every_request_for_one_group_has_its_handler(coordinator: GroupCoordinator) -> None:
    partition = coordinator.partition(0)
    assert partition is not None
    of_groups = {kind for kind in KINDS if issubclass(kind, GroupRequest)}
    served = (None, *coordinator._router.served_protocols)
    unserved = {kind for kind, route in coordinator._router._every_route.items() if route.group_type not in served}
    assert set(partition._handlers) == of_groups - unserved


@as_one_test
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_request_carries_the_type_of_its_response(kind: type[Request]) -> None:
    (base,) = kind.__orig_bases__
    (response,) = typing.get_args(base)
    assert response.__name__ == f"{kind.__name__}Response"
    assert issubclass(response, messages.Response)


@as_one_test
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_request_is_small(kind: type[Request]) -> None:
    """It has only slots, also those inherited, since there are very many."""
    assert not hasattr(kind.__new__(kind), "__dict__")


def test_the_public_module_has_what_is_listed() -> None:
    """``groupcoord.messages`` is the list of the core's messages: all requests and all responses are in it."""
    public = {name for name in vars(groupcoord.messages) if name[0].isalpha()}
    assert public == set(public_names(groupcoord.messages))
    inside = {DescribeOneShareGroup, DescribeOneShareGroupResponse}  # a part of what is public
    kinds = {*KINDS, *typing.get_args(messages.Response)} - inside
    assert {kind.__name__ for kind in kinds} < set(public_names(groupcoord.messages))


class Initialized:
    def __attrs_post_init__(self) -> None:
        raise TypeError("called")


FIELDS: list[dict[str, Any]] = [
    {"_first": field(), "second": field(factory=list), "third": field(default="")},
    {"first": field(converter=int)},
    {"first": field(validator=attrs.validators.instance_of(str))},
    {"first": field(), "second": field(default=2, kw_only=True)},
    {"first": field(), "second": field(default=2, init=False)},
    {"first": field(), "second": field(default=Factory(lambda made: [made.first], takes_self=True))},
]


@as_one_test
@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("options", [{}, {"slots": False}, {"cache_hash": True, "unsafe_hash": True}])
@pytest.mark.parametrize("base", [object, Initialized])
@pytest.mark.parametrize("decorator", ["define", "frozen"])
def test_constructors_equal_those_of_attrs(decorator: str, base: type, options: Any, fields: Any) -> None:
    theirs, ours = (
        getattr(module, decorator)(type("Made", (base,), {}), these=fields, **options)
        for module in (attrs, fast_construct)
    )
    assert inspect.signature(ours) == inspect.signature(theirs)
    for arguments in ((), (1,), ("1",), ("1", [2]), (1, 2, 3, 4)):
        assert made_of(ours, *arguments) == made_of(theirs, *arguments)


def made_of(kind: type, *arguments: Any) -> str:
    try:
        made = kind(*arguments)
        return f"{made} {getattr(made, '_attrs_cached_hash', '')}"
    except TypeError as error:
        return str(error)
