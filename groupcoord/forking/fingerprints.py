"""Fingerprints of a coordinator's state, independent of how it was reached.

All state is walked attribute by attribute, except what classes exclude (``NOT_COUNTED``, :mod:`.copies`). Times,
epochs, log offsets and append numbers count by their differences, ids and tokens by the names that :class:`Names` gives
them.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from hashlib import blake2b
from types import FunctionType, MethodType
from typing import Any
from uuid import UUID

from groupcoord.config import Config
from groupcoord.core.groups.group_types import as_modern_group
from groupcoord.core.groups.streams.reconciliation import HeldTasks
from groupcoord.core.log.records import StreamsGroupTopologyRecord
from groupcoord.core.offsets.cache import DurableCommit
from groupcoord.core.partition import Partition
from groupcoord.core.timers import Timer, TimerKey
from groupcoord.forking.copies import PART_CLASSES, attributes_of, declared, values_of

DIGEST_BYTES = 16
PLAIN = frozenset({int, bool, float, type(None)})

MOMENTS = frozenset(
    {
        *("assignment_timestamp_ms", "commit_timestamp_ms", "expire_timestamp_ms", "state_timestamp_ms"),
        *("asked_ms", "deadline_ms", "state_partitions_ms", "until_ms", "timestamp_ms"),
    }
)
EPOCHS = frozenset(
    {
        *("assignment_epoch", "epoch", "generation_id", "member_epoch", "previous_member_epoch", "group_epoch"),
        *("assignment_epochs", "owner_epochs", "revoking_epochs", "epochs"),
    }
)
EPOCHS_INSIDE = frozenset({"assigned", "pending_revocation"})
"""Assignments with epochs by partition."""

NUMBERS = frozenset({"first_append", "number", "_found_at"})
ASSIGNMENTS = frozenset({"assignment", "assignments"})
"""Attributes with assignment bytes of a leader."""

WALKED_BY_NAME = frozenset(
    {
        *("groups", "writings", "has_modern_groups"),  # of the context of handlers, and of the hard state
        *("committed", "transactions", "_epochs"),
        *("in_flight", "last_durable", "next_number", "refusals", "unseen"),
    }
)
"""Attributes that :class:`_Walk` handles itself, because only their order or relations count."""


def counted(places: Iterable[tuple[Any, str]]) -> list[tuple[Any, str]]:
    return [
        (part, name)
        for part, name in places
        if name not in WALKED_BY_NAME and name not in declared(type(part), "NOT_COUNTED")
    ]


class Names:
    """Mapping of ids and tokens in a fingerprint; by default they stay as they are.

    Attributes:
        age_max_ms: times further in the past are equal, where nothing expires.
        far_ms: times further in the future are equal.
        epochs_max: epochs further from their group's are equal.
    """

    age_max_ms = 2**62
    far_ms = 2**62
    epochs_max = 2**62

    def text(self, text: str) -> Any:
        """Return the representation of an id of a member or group, a topic name, or any other text."""
        return text

    def token(self, token: Any) -> Any:
        """Return the representation of a token: itself if it is a number or text, otherwise its type."""
        return token if type(token) in PLAIN or isinstance(token, str | bytes) else type(token).__name__

    def assignment(self, data: bytes, epoch: int) -> Any:
        """Return the representation of an assignment by the leader of a classic group."""
        return data


def fingerprint_of(
    partitions: Sequence[Partition], others: Sequence[tuple[Any, str]], now_ms: int, names: Names
) -> bytes:
    """Return the fingerprint of log partitions, as :meth:`.GroupCoordinator.fingerprint` defines it."""
    found = [_Walk(partition, now_ms, names).of_partition() for partition in partitions]
    if others and partitions:
        walk = _Walk(partitions[0], now_ms, names)
        found.append(tuple([(name, walk.of(getattr(part, name))) for part, name in others]))
    # Later versions of marshal write references, which depend on object identity.
    return blake2b(marshal.dumps(tuple(found), 2), digest_size=DIGEST_BYTES).digest()


def newest_epoch(partition: Partition, group_id: str) -> int:
    """Return the epoch or generation of a group that others are relative to; 0 without a group."""
    group = partition.groups.get(group_id)
    modern = as_modern_group(group)
    if modern is not None:
        return int(modern.newest_state.epoch)
    record = partition.hard.classic_record(group_id)
    return getattr(group, "generation_id", 0) or (0 if record is None else record.generation_id)


class _Walk:
    """Walk through one log partition that converts its state to plain tuples."""

    def __init__(self, partition: Partition, now_ms: int, names: Names) -> None:
        self._partition = partition
        self._now_ms = now_ms
        self._names = names
        self._text = names.text
        self._next_append = partition.writer.next_number
        self._epoch = 0
        self._group_id: str | None = None
        self._group: Any = None
        self._walked: dict[int, int] = {}  # by id of what was walked

    def of_partition(self) -> tuple[Any, ...]:
        partition = self._partition
        context, writer = partition._context, partition.writer
        group_ids = list(context.groups)
        return (
            partition.index,
            tuple([(self._text(group_id), self._of_group(group_id)) for group_id in group_ids]),
            tuple([self._of_writing(group) for group in context.writings.values()]),
            tuple(self._of_hard_state()),
            tuple([self._of_append(append) for append in writer.in_flight]),
            self._next_append - writer.last_durable,
            tuple(
                [
                    (number - self._next_append, tuple(map(self._of_known_group, groups)))
                    for number, groups in writer.unseen.items()
                ]
            ),
            self.of(writer.hard.offsets.producers),
            tuple(self._of_timers()),
            context.has_modern_groups,
        )

    # ------------------------------------------------------------ groups

    def _turn_to(self, group_id: str) -> None:
        # Epochs count relative to the epoch of the current group.
        if group_id == self._group_id:
            return
        self._group_id, self._group = group_id, self._partition._context.groups.get(group_id)
        self._epoch = newest_epoch(self._partition, group_id)

    def _of_group(self, group_id: str) -> Any:
        self._turn_to(group_id)
        return self._instance(self._group)

    def _of_known_group(self, group: Any) -> Any:
        group_id = group.group_id
        # A reference counts by its id; an ended group is walked itself.
        is_there = self._partition._context.groups.get(group_id) is group
        return self._text(group_id) if is_there else self.of(group)

    def _of_writing(self, group: Any) -> Any:
        self._turn_to(group.group_id)
        return self._of_known_group(group)

    # ------------------------------------------------------------ the log

    def _of_append(self, append: Any) -> Any:
        records = list(append.records)
        refusal = self._partition.writer.refusals.get(append.number)
        # A marker has no group.
        self._turn_to(getattr(records[0], "group_id", ""))
        follows = append.continuation
        known = () if refusal is None else (refusal.error_code._name_, refusal.outcome_unknown)
        return append.number - self._next_append, self.of(follows), self.of(records), self.of(append.held), *known

    def _of_hard_state(self) -> Iterator[Any]:
        hard = self._partition.writer.hard
        found: list[tuple[int, str, Any]] = []
        for group_id, records in hard.groups.items():
            found += [(log_offset, group_id, record) for log_offset, record in records.values()]
            # A group of offsets alone, which a load makes an Empty group.
            found += [] if records else [(-1, group_id, None)]
        for group_id, topics in hard.offsets.committed.items():
            for partitions in topics.values():
                for index, commit in partitions.items():
                    found.append((commit.log_offset + commit.place_of(index), group_id, (index, commit)))
        for producer_id, keys in hard.offsets.transactions.items():
            found += [
                (log_offset, group_id, (producer_id, record)) for (group_id, _, _), (log_offset, record) in keys.items()
            ]
        # Order in the log counts, but offsets do not.
        for _, group_id, what in sorted(found, key=lambda entry: entry[:2]):
            self._turn_to(group_id)
            is_commit = type(what) is tuple and isinstance(what[1], DurableCommit)
            yield self._text(group_id), self._of_commit(*what) if is_commit else self.of(what)

    def _of_commit(self, index: int, commit: DurableCommit) -> Any:
        place, columns = commit.place_of(index), commit.columns
        what = columns.offsets[place], columns.leader_epochs[place], columns.texts()[place]
        return "commit", index, what, self.of(commit.kind)

    # ------------------------------------------------------------ time

    def _of_timers(self) -> Iterator[Any]:
        context = self._partition._context
        armed = [(timer.deadline_ms, timer._sequence, timer.key) for timer in context.timers.armed()]
        # Equal deadlines fire in the order of arming, so that counts, too.
        for deadline_ms, _, key in sorted(armed):
            if key.partition == context.partition:
                yield self._of_key(key), self._moment(deadline_ms)

    def _of_key(self, key: TimerKey) -> Any:
        return key.kind._name_, self._text(key.group_id), self._text(key.member_id)

    def _moment(self, at_ms: Any) -> Any:
        # An unknown time, such as -1, stays as it is.
        if type(at_ms) is not int or at_ms <= 0:
            return self.of(at_ms)
        return min(max(at_ms - self._now_ms, -self._names.age_max_ms), self._names.far_ms)

    # ------------------------------------------------------------ anything

    def of(self, value: Any) -> Any:
        kind = type(value)
        return value if kind in PLAIN else (_WALKS.get(kind) or _learn(kind))(self, value)

    def _instance(self, value: Any) -> Any:
        # Shared objects count once, and cycles end.
        known = self._walked.get(id(value))
        if known is not None:
            return "again", known
        self._walked[id(value)] = len(self._walked)
        kind = type(value)
        if not kind.__dictoffset__:
            return kind.__name__, self._value(value)
        names = tuple(value.__dict__)
        called = _CALLED.get(names) or _learn_called(names)
        return kind.__name__, called, self._attributes(kind, names, value.__dict__.values())

    def _value(self, value: Any) -> Any:
        kind = type(value)
        names, values_of = _ATTRIBUTES.get(kind) or _learn_attributes(kind)
        return self._attributes(kind, names, values_of(value))

    def _attributes(self, kind: type, names: tuple[str, ...], values: Iterable[Any]) -> Any:
        found = list(values)
        key = kind, names, tuple(map(type, found))
        for place, rule in _WALKED.get(key) or _learn_walked(key):
            found[place] = rule(self, found[place])
        return tuple(found)

    def _sequence(self, value: Any) -> Any:
        return tuple([each if type(each) in PLAIN else self.of(each) for each in value])

    def _unordered(self, value: Any) -> Any:
        # Sets have no order that is equal in every process.
        return tuple(sorted([self.of(each) for each in value], key=repr))

    def _mapping(self, value: Any) -> Any:
        return tuple([(self.of(key), self.of(each)) for key, each in value.items()])

    def _epoch_of(self, value: Any) -> Any:
        if type(value) is int:
            # Zero and negative epochs mean something else, such as joining or leaving.
            most = self._names.epochs_max
            return max(min(value - self._epoch, most), -most) if value > 0 else (value,)
        if isinstance(value, dict) or hasattr(value, "items"):
            return tuple([(self.of(key), self._epoch_of(each)) for key, each in value.items()])
        return tuple([self._epoch_of(each) for each in value]) if isinstance(value, tuple) else self.of(value)

    def _number(self, value: Any) -> Any:
        # Durable appends are all alike.
        return value - self._next_append if value > self._partition.writer.last_durable else None

    def _assigned(self, value: Any) -> Any:
        if type(value) is bytes:
            return self._names.assignment(value, self._epoch)
        if isinstance(value, dict):
            return tuple([(self._text(key), self._assigned(each)) for key, each in value.items()])
        return self.of(value)

    def _is_steady(self, steady: Any) -> Any:
        """Return the heartbeats that would be answered from memory now."""
        writes = getattr(self._group, "writes", 0)
        return tuple([(self._text(key), self._value(each)) for key, each in steady.items() if each.writes == writes])

    def _nothing(self, value: Any) -> Any:
        return None


Rule = Callable[[_Walk, Any], Any]

_RULES: dict[str, Rule] = {
    **dict.fromkeys(MOMENTS, _Walk._moment),
    **dict.fromkeys(EPOCHS | EPOCHS_INSIDE, _Walk._epoch_of),
    **dict.fromkeys(NUMBERS, _Walk._number),
    **dict.fromkeys(ASSIGNMENTS, _Walk._assigned),
    "group": _Walk._of_known_group,
    "token": lambda walk, value: walk._names.token(value),
    "steady": _Walk._is_steady,
}

_RULES_OF: dict[type, dict[str, Rule]] = {
    HeldTasks: {"active": _Walk._epoch_of},
    # A number that the application chooses.
    StreamsGroupTopologyRecord: {"epoch": _Walk.of},
}
_WALKS: dict[type, Rule] = {
    str: lambda walk, value: walk._text(value),
    bytes: lambda walk, value: value,
    UUID: lambda walk, value: value.bytes,
    # Armed timers are walked by deadline instead.
    Timer: _Walk._nothing,
    TimerKey: _Walk._of_key,
}

Walked = tuple[type, tuple[str, ...], tuple[type, ...]]
_WALKED: dict[Walked, tuple[tuple[int, Rule], ...]] = {}
"""Positions and rules of attributes that are not plain values."""

_CALLED: dict[tuple[str, ...], bytes] = {}
_ATTRIBUTES: dict[type, tuple[tuple[str, ...], Callable[[Any], Iterable[Any]]]] = {}


def left_out(kind: type) -> frozenset[str]:
    return declared(kind, "NOT_COUNTED") | declared(kind, "NOT_STATE")


def _learn_walked(key: Walked) -> tuple[tuple[int, Rule], ...]:
    of_class, names, kinds = key
    rules = {**_RULES, **_RULES_OF.get(of_class, {}), **dict.fromkeys(left_out(of_class), _Walk._nothing)}
    walks = [
        rules.get(name) or (None if kind in PLAIN else _WALKS.get(kind) or _learn(kind))
        for name, kind in zip(names, kinds, strict=True)
    ]
    found = _WALKED[key] = tuple((place, walk) for place, walk in enumerate(walks) if walk is not None)
    return found


def _learn_called(names: tuple[str, ...]) -> bytes:
    found = _CALLED[names] = blake2b(repr(names).encode(), digest_size=DIGEST_BYTES).digest()
    return found


def _learn_attributes(kind: type) -> tuple[tuple[str, ...], Callable[[Any], Iterable[Any]]]:
    fields = getattr(kind, "_fields", None) or tuple(each.name for each in getattr(kind, "__attrs_attrs__", ()))
    names = tuple(name for name in fields or attributes_of(kind) if name not in left_out(kind))
    found = _ATTRIBUTES[kind] = names, values_of(names)
    return found


def _learn(kind: type) -> Rule:
    rule: Rule = _Walk._instance
    # Parts are walked where they are state; functions and settings don't change.
    if kind in PART_CLASSES or issubclass(kind, (Config, FunctionType, MethodType)):
        rule = _Walk._nothing
    elif issubclass(kind, Enum):
        rule = lambda walk, value: value._name_  # noqa: E731
    elif hasattr(kind, "_fields") or (hasattr(kind, "__attrs_attrs__") and kind.__hash__ is not object.__hash__):
        rule = _Walk._value
    elif issubclass(kind, set | frozenset):
        rule = _Walk._unordered
    elif hasattr(kind, "items"):
        rule = _Walk._mapping
    elif hasattr(kind, "__iter__"):
        rule = _Walk._sequence
    _WALKS[kind] = rule
    return rule
