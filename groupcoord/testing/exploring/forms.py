"""Forms: canonical states of clients, independent of their ids, for symmetry reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from groupcoord.core.fingerprints import Names
from groupcoord.testing.exploring.scope import FAR_MS, Process
from groupcoord.testing.machine.consumers import ClassicConsumer, Consumer, decode_share
from groupcoord.testing.machine.modern_members import Kip848Consumer, ShareMember, StreamsMember

NOBODYS = -1
"""Unknown member id, or no token."""

NOBODY = "nobody"

EPOCHS_MAX = 4
"""Distance of an epoch from the group's at which it counts as foreign."""

FOREIGN = 2**30
Form = tuple[Any, ...]


class View(NamedTuple):
    """Names that a coordinator has for clients: member ids and tokens of waiting requests in the order of its state,
    and the newest epoch.
    """

    ids: tuple[str, ...]
    tokens: tuple[int, ...]
    epoch: int


class Labels(Names):
    """Names as numbers, in the order in which ids and tokens appear."""

    far_ms = FAR_MS
    epochs_max = EPOCHS_MAX

    def __init__(self, issued: Mapping[str, None], age_max_ms: int) -> None:
        self.age_max_ms = age_max_ms
        self._issued = issued
        self.ids: dict[str, int] = {}
        self.tokens: dict[Any, int] = {}

    def text(self, text: str) -> Any:
        return self.ids.setdefault(text, len(self.ids)) if text in self._issued else text

    def token(self, token: Any) -> Any:
        while hasattr(token, "token"):
            token = token.token
        return self.tokens.setdefault(token, len(self.tokens))

    def assignment(self, data: bytes, epoch: int) -> Any:
        generation_id, owned = _share(data)
        return (None if generation_id is None else generation_id - epoch), owned


@lru_cache(maxsize=10_000)
def _share(data: bytes) -> tuple[int | None, Any]:
    generation_id, owned = decode_share(data)
    return generation_id, data if generation_id is None else tuple(sorted(owned))


Encode = Callable[[Any, View], Any]


def _epoch_to(epoch: int, view: View) -> Any:
    if epoch <= 0:
        return (epoch,)
    return max(min(epoch - (FOREIGN if epoch > FOREIGN // 2 else 0) - view.epoch, EPOCHS_MAX), -EPOCHS_MAX)


def _epoch_from(stands: Any, view: View) -> int:
    if isinstance(stands, tuple):
        return int(stands[0])
    epoch = int(stands + view.epoch)
    return epoch if epoch > 0 else epoch + FOREIGN


def _id_to(member_id: str, view: View) -> Any:
    if not member_id:
        return None
    return view.ids.index(member_id) if member_id in view.ids else NOBODYS


def _id_from(stands: Any, view: View) -> str:
    if stands is None:
        return ""
    return view.ids[stands] if stands != NOBODYS else NOBODY


def _as_it_is(value: Any, view: View) -> Any:
    return value


_PLAIN = (_as_it_is, _as_it_is)
_EPOCH = (_epoch_to, _epoch_from)
_ID = (_id_to, _id_from)
_IDS = (
    lambda ids, view: tuple([_id_to(member_id, view) for member_id in ids]),
    lambda stands, view: tuple([_id_from(each, view) for each in stands]),
)
_MAPPING = (
    lambda value, view: None if value is None else tuple(value.items()),
    lambda stands, view: None if stands is None else dict(stands),
)
_COUNT = (lambda value, view: value % 2, _as_it_is)
"""Committed offsets alternate: only a difference from the last one counts."""

_OF_MEMBERS: Mapping[str, tuple[Encode, Encode]] = {"phase": _PLAIN, "member_id": _ID, "epoch": _EPOCH}
ATTRIBUTES: Mapping[type, Mapping[str, tuple[Encode, Encode]]] = MappingProxyType(
    {
        ClassicConsumer: {
            "phase": _PLAIN,
            "member_id": _ID,
            "generation_id": _EPOCH,
            "owned": _PLAIN,
            "members": _IDS,
            "last_offset": _COUNT,
        },
        Kip848Consumer: {
            **_OF_MEMBERS,
            "owned": _MAPPING,
            "assigned": _MAPPING,
            "known": _MAPPING,
            "subscribed": _PLAIN,
            "last_offset": _COUNT,
        },
        ShareMember: {**_OF_MEMBERS, "partitions": _MAPPING, "subscribed": _PLAIN},
        StreamsMember: {**_OF_MEMBERS, "owned": _PLAIN, "known": _PLAIN, "news": _PLAIN},
    }
)
_RENAMED: Mapping[type, Sequence[tuple[int, tuple[Encode, Encode]]]] = MappingProxyType(
    {
        kind: [(place, ways) for place, ways in enumerate(attributes.values(), 1) if ways in (_EPOCH, _ID, _IDS)]
        for kind, attributes in ATTRIBUTES.items()
    }
)
"""Positions in a form that depend on the view, with their conversions."""


def form_of(consumer: Consumer, token: int | None, view: View) -> Form:
    waits = NOBODYS if token is None or token not in view.tokens else view.tokens.index(token)
    attributes = ATTRIBUTES[type(consumer)]
    return waits, *[encode(getattr(consumer, name), view) for name, (encode, _) in attributes.items()]


def renamed(kind: type, form: Form, before: View, after: View) -> Form:
    found = list(form)
    if form[0] != NOBODYS:
        token = before.tokens[form[0]]
        found[0] = after.tokens.index(token) if token in after.tokens else NOBODYS
    for place, (encode, decode) in _RENAMED[kind]:
        found[place] = encode(decode(form[place], before), after)
    return tuple(found)


def consumer_of(
    process: Process, group_id: str, form: Form, view: View, new_id: Callable[[str], str] | None
) -> Consumer:
    waits, *values = form
    consumer = process.consumer(group_id, NOBODY)
    consumer.is_waiting = waits != NOBODYS
    for (name, (_, decode)), value in zip(ATTRIBUTES[type(consumer)].items(), values, strict=True):
        setattr(consumer, name, decode(value, view))
    if consumer.member_id == NOBODY and new_id is not None:
        consumer.member_id = new_id(process.name)
    return consumer
