"""Scopes and histories of the exploration: processes, settings, and steps as text such as ``crash 1``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from attrs import field, fields, fields_dict, frozen

from groupcoord.config import Config, MigrationPolicy
from groupcoord.config.files import KeyPath, TableReader, format_path
from groupcoord.config.settings import INT32_MAX
from groupcoord.errors import ConfigError, GroupcoordError
from groupcoord.log_store import (
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
)
from groupcoord.testing.machine.consumers import PARTITIONS, TOPIC, ClassicConsumer, Consumer
from groupcoord.testing.machine.modern_members import CONSUMERS, ModernMember, StreamsMember


class HistoryError(GroupcoordError):
    """Invalid history or scope; the message has place and reason."""


REFUSALS = MappingProxyType(
    {
        error("").error_code.name: error
        for error in (NotEnoughReplicasError, NotLeaderError, RecordTooLargeError, StorageError)
    }
)


class Word(NamedTuple):
    """Type of step."""

    summary: str
    operands: tuple[str, ...] = ()


WORDS = MappingProxyType(
    {
        "start": Word("a process starts a consumer, or restarts it, and sends its first request", ("process",)),
        "go": Word("a consumer sends its next request: a join, a sync, a heartbeat", ("process",)),
        "beat": Word("a member sends a heartbeat", ("process",)),
        "commit": Word("a consumer commits its partitions; without a process, a non-member does", ("[process]",)),
        "leave": Word("a consumer leaves its group in good order", ("process",)),
        "pause": Word("a static member leaves for a while: its place is kept (KIP-848)", ("process",)),
        "die": Word("a process dies; its requests may still wait", ("process",)),
        "retry": Word("a consumer that waits sends its request once more, as after a broken connection", ("process",)),
        "fetch": Word("a consumer fetches the offsets of its group", ("process",)),
        "time": Word("time passes, in milliseconds (default: step_ms of the scope); each timer fires", ("[number]",)),
        "ack": Word("the log writes the oldest waiting appends (default: one)", ("[number]",)),
        "refuse": Word("the log refuses the oldest append that waits", ("[error]",)),
        "lose": Word("the oldest waiting append times out", ("[written|unwritten]",)),
        "fail": Word("the log will refuse the next append at once", ("[error]",)),
        "crash": Word("the coordinator crashes and loads the log with this number of waiting appends", ("[number]",)),
        "move": Word("the log partition moves away and back, with this number of waiting appends", ("[number]",)),
        "unload": Word("the log partition goes away: to another leader, or its replica with it", ("[leader|replica]",)),
        "load": Word("the log partition comes back"),
        "read_breaks": Word("the next load breaks after this number of records", ("number",)),
        "txn": Word(
            "a consumer's producer commits its partitions; without a process, another one does",
            ("[process]",),
        ),
        "marker": Word("the transaction of a consumer's producer ends", ("process", "commit|abort")),
        "sweep": Word("time passes until expired offsets and groups are looked for"),
        "delete": Word("an administrator deletes the group, or its offsets of a topic", ("[topic]",)),
        "topic": Word("a topic comes, grows or goes", ("create|grow|delete", "topic", "[number]")),
        "recover": Word("faults stop, all clients run for some minutes, and all must be served"),
    }
)


class Step(NamedTuple):
    """Step of a history, such as ``crash 1``."""

    word: str
    operands: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.word, *map(str, self.operands)))

    @classmethod
    def of(cls, text: str) -> Step:
        word, *given = text.split() or ("",)
        if word not in WORDS:
            raise HistoryError(f"{text!r}: unknown word {word!r}; there are {', '.join(WORDS)}")
        kinds = WORDS[word].operands
        needed = sum(not kind.startswith("[") for kind in kinds)
        if not needed <= len(given) <= len(kinds):
            raise HistoryError(f"{text!r}: it is written {' '.join((word, *kinds))}")
        return cls(word, tuple(_read(text, kind.strip("[]"), value) for kind, value in zip(kinds, given, strict=False)))


def refusal(name: str | int | None) -> LogStoreError:
    return REFUSALS[str(name) if name is not None else "NOT_ENOUGH_REPLICAS"]("refused in this history")


def _read(text: str, kind: str, value: str) -> str | int:
    if kind == "number":
        if not value.isdecimal():
            raise HistoryError(f"{text!r}: {value!r} must be a whole number, and not negative")
        return int(value)
    choices = tuple(REFUSALS) if kind == "error" else tuple(kind.split("|")) if "|" in kind else ()
    if choices and value not in choices:
        raise HistoryError(f"{text!r}: {value!r} must be one of {', '.join(choices)}")
    return value


PARTITIONS_MAX = 1_000

WORDS_TO_EXPLORE = ("commit", "leave", "die", "time", "refuse", "crash", "move")

GROUP = "g"
STEP_MS = 5_000
FAR_MS = 10_000_000
THREE_STEPS_MS = 15_000
"""Rebalance timeout of classic consumers; the session timeout is two steps."""

SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "group.initial.rebalance.delay.ms": 0,
        "group.max.size": 4,
        "group.consumer.max.size": 4,
        "group.consumer.migration.policy": MigrationPolicy.BIDIRECTIONAL.value,
        "group.consumer.assignment.interval.ms": 0,
        "group.consumer.session.timeout.ms": 45_000,
        "group.share.assignment.interval.ms": 0,
        "group.share.max.size": 4,
        "group.streams.assignment.interval.ms": 0,
        "group.streams.initial.rebalance.delay.ms": 0,
        "group.streams.max.size": 4,
        "offsets.topic.num.partitions": 1,
        "offsets.retention.minutes": 1_000_000,
        "offsets.retention.check.interval.ms": 1_000_000_000,
        "offsets.commit.timeout.ms": 100_000_000,
    }
)
"""Default settings: small limits, no expiry, no append timeout."""


OPTIONAL = {"gives_back": (int, type(None))}
"""Types of options with default None that are not text."""


@frozen
class Process:
    """Process that runs one consumer at a time.

    Attributes:
        name: name in steps, and client id.
        protocol: ``group.protocol``.
        options: further attributes of its consumers, such as ``rebalance_timeout_ms`` or ``gives_back``.
    """

    name: str
    protocol: str = "classic"
    instance_id: str | None = None
    options: Mapping[str, Any] = field(factory=dict)

    def consumer(self, group_id: str, member_id: str) -> Consumer:
        """Return a new consumer without a request.

        Args:
            group_id: its group.
            member_id: its member id, if consumers generate it.

        Raises:
            HistoryError: the protocol or an option is unknown.
        """
        make = CONSUMERS.get(self.protocol)
        if make is None:
            raise HistoryError(f"process {self.name}: protocol {self.protocol!r} is none of {', '.join(CONSUMERS)}")
        consumer = make(self.name, group_id, self.instance_id)
        own: dict[str, Any] = {"member_id": member_id}
        if isinstance(consumer, ClassicConsumer):
            own = {"rebalance_timeout_ms": THREE_STEPS_MS}
        elif isinstance(consumer, ModernMember):
            own["topics"] = (TOPIC,)
        if isinstance(consumer, StreamsMember):
            own["process_id"] = self.name
        options = {**own, **self.options}
        for name, given in options.items():
            if name not in fields_dict(type(consumer)):
                raise HistoryError(f"process {self.name}: a {self.protocol} consumer has no {name!r}")
            value = tuple(given) if isinstance(given, list) else given
            usual = getattr(consumer, name)
            kinds = OPTIONAL.get(name, (str, type(None))) if usual is None else (type(usual),)
            if type(value) not in kinds or (isinstance(value, int) and value < 0):
                raise HistoryError(f"process {self.name}: {name} can't be {given!r}")
            setattr(consumer, name, value)
        return consumer


@frozen
class Scope:
    """Scope of histories.

    Attributes:
        log_is_late: appends wait for a step; otherwise they are written at once.
        settings: settings of the coordinator that differ from :data:`SETTINGS`, by Kafka's keys.
        topics: initial partition counts by name.
        step_ms: default duration of ``time``.
        words: types of steps to explore, in addition to ``start``, ``go`` and ``ack``.
        also: further steps to explore, without a process: ``commit`` (by a client that is no member), ``time 60000``,
            ``read_breaks 0``.
    """

    processes: tuple[Process, ...] = (Process("c1"), Process("c2"))
    log_is_late: bool = False
    settings: Mapping[str, Any] = field(factory=dict)
    topics: Mapping[str, int] = field(factory=lambda: {TOPIC: PARTITIONS})
    group_id: str = GROUP
    step_ms: int = STEP_MS
    words: tuple[str, ...] = WORDS_TO_EXPLORE
    also: tuple[str, ...] = ()

    def config(self) -> Config:
        """Return the coordinator's settings.

        Raises:
            HistoryError: a setting is invalid.
        """
        try:
            return Config.from_properties({**SETTINGS, **self.settings})
        except ConfigError as error:
            raise HistoryError(f"settings: {error}") from error

    @property
    def expires(self) -> bool:
        """True if offsets may expire, so that ages are part of the state."""
        config = self.config()
        return "sweep" in self.words or config.offsets_retention_check_interval_ms < FAR_MS

    @property
    def changes_topics(self) -> bool:
        """True if topics may change."""
        return any(step.split()[0] == "topic" for step in (*self.words, *self.also))

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Scope:
        """Parse a scope.

        Args:
            table: as from :meth:`table`, TOML or JSON; omitted values have their defaults.

        Raises:
            HistoryError: a value is invalid.
        """
        usual, reader = cls(), TableReader(table, (), _fail)
        reader.expect(*fields_dict(cls))
        processes = reader.table("processes", {process.name: {} for process in usual.processes})
        topics = reader.table("topics", usual.topics)
        words = reader.names("words", usual.words)
        for word in words:
            reader.require_known("words", word, WORDS)
        return cls(
            processes=tuple(_process(name, processes.table(name)) for name in processes.values),
            log_is_late=reader.flag("log_is_late", False),
            settings=reader.table("settings", {}).values,
            topics={name: topics.number(name, at_least=1, at_most=PARTITIONS_MAX) for name in topics.values},
            group_id=reader.text("group_id", GROUP),
            step_ms=reader.number("step_ms", STEP_MS, at_least=1, at_most=INT32_MAX),
            words=words,
            also=tuple(map(str, steps_of(reader.names("also", ())))),
        )

    def table(self) -> dict[str, Any]:
        """Return the scope as plain values for TOML or JSON."""
        processes = {
            process.name: {"protocol": process.protocol, **_given(instance_id=process.instance_id), **process.options}
            for process in self.processes
        }
        values = {attribute.name: getattr(self, attribute.name) for attribute in fields(type(self))}
        return {
            **values,
            "processes": processes,
            "settings": dict(self.settings),
            "topics": dict(self.topics),
            "words": list(self.words),
            "also": list(self.also),
        }


@frozen
class Trace:
    """History: steps in a scope."""

    scope: Scope
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Trace:
        """Parse a history.

        Args:
            table: has ``steps``, a list, and possibly ``scope``, a table for :meth:`Scope.of`; other keys are ignored.

        Raises:
            HistoryError: the steps are missing or invalid.
        """
        steps = table.get("steps")
        if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
            raise HistoryError("a history has 'steps', a list of them")
        return cls(Scope.of(table.get("scope", {})), steps_of(steps))

    def table(self) -> dict[str, Any]:
        """Return the history as plain values for TOML or JSON."""
        return {"scope": self.scope.table(), "steps": [str(step) for step in self.steps]}


def steps_of(lines: Iterable[str]) -> tuple[Step, ...]:
    return tuple(Step.of(text) for line in lines for text in line.split(","))


def _fail(path: KeyPath, message: str) -> NoReturn:
    raise HistoryError(f"{format_path(('scope', *path))}: {message}")


def _process(name: str, table: TableReader) -> Process:
    options = {key: value for key, value in table.values.items() if key not in ("protocol", "instance_id")}
    instance_id = None if table.take("instance_id", None) is None else table.text("instance_id")
    return Process(name, table.text("protocol", "classic"), instance_id, options)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


FAULTS = ("refuse", "crash", "move")
QUIET = ("commit", "leave", "die", "time", "move")
"""Steps without refusals or crashes: the log answers at once."""

ALL = ("commit", "leave", "die", "time", *FAULTS)


def scope_of(protocol: str, dynamic: int = 0, static: int = 0, words: tuple[str, ...] = ALL, **more: object) -> Scope:
    """Return a scope with processes of one protocol, or (``mixed``) of classic and consumer protocol in turn."""
    protocols = ("classic", "consumer") if protocol == "mixed" else (protocol,)
    processes = [Process(f"c{number + 1}", protocols[number % len(protocols)]) for number in range(dynamic)]
    for number in range(static):
        processes.append(Process(f"s{number + 1}", protocols[number % len(protocols)], f"i{number + 1}"))
    return Scope(tuple(processes), log_is_late="refuse" in words, words=words, **more)  # type: ignore[arg-type]


SHORT_RETENTION = MappingProxyType({"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 30_000})

NAMED: Mapping[str, Scope] = MappingProxyType(
    {
        "static-1": scope_of("classic", static=1, words=QUIET),
        "classic-1": scope_of("classic", 1, words=QUIET),
        "classic-2": scope_of("classic", 2),
        "classic-2-quiet": scope_of("classic", 2, words=QUIET),
        "classic-3": scope_of("classic", 3),
        "classic-static": scope_of("classic", 1, 1),
        "consumer-1": scope_of("consumer", 1),
        "consumer-2": scope_of("consumer", 2, topics={"orders": 2}),
        "consumer-static": scope_of("consumer", 1, 1, topics={"orders": 2}),
        "mixed-2": scope_of("mixed", 2),
        "share-1": scope_of("share", 1),
        "share-2": scope_of("share", 2, topics={"orders": 2}),
        "streams-1": scope_of("streams", 1),
        "streams-2": scope_of("streams", 2, topics={"orders": 2}),
        "transactions": scope_of("classic", static=1, words=("txn", *ALL)),
        "expiry": scope_of("classic", static=1, words=("sweep", *QUIET), settings=SHORT_RETENTION),
        "deletion": scope_of("classic", static=1, words=("delete", *ALL)),
        "topics": scope_of("consumer", 1, words=("topic", *QUIET), topics={"orders": 2}),
    }
)
"""Scopes named after protocol and size, or a feature."""
