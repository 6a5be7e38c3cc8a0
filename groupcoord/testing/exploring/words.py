"""The words of a history: what processes, their coordinator, its log and administrators do, one step at a time."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from groupcoord.errors import GroupcoordError
from groupcoord.log_store import (
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
)

__all__ = ["REFUSALS", "WORDS", "HistoryError", "Step", "Word"]


class HistoryError(GroupcoordError):
    """A history, or the scope in which it is to happen, can't be read. The message says where and why."""


REFUSALS = MappingProxyType(
    {
        error("").error_code.name: error
        for error in (NotEnoughReplicasError, NotLeaderError, RecordTooLargeError, StorageError)
    }
)
"""What a log can say to an append that it does not write, by the name of Kafka's error code."""


class Word(NamedTuple):
    """What a step can be.

    Attributes:
        tells: what happens.
        operands: what stands behind the word, each a kind of operand; in brackets what may be left out. A kind is
            ``process``, ``number``, ``error``, ``topic``, or the words to choose from, with ``|`` between them.
    """

    tells: str
    operands: tuple[str, ...] = ()


WORDS = MappingProxyType(
    {
        "start": Word("a process starts a consumer, anew if it has one, and sends its first request", ("process",)),
        "go": Word("a consumer sends what its protocol wants next: a join, a sync, a heartbeat", ("process",)),
        "beat": Word("a member heartbeats, whatever its protocol wants next", ("process",)),
        "commit": Word("a consumer commits what it owns; without a process, somebody who is no member", ("[process]",)),
        "leave": Word("a consumer leaves its group in good order", ("process",)),
        "pause": Word("a static member leaves for a while: its place is kept (KIP-848)", ("process",)),
        "die": Word("a process ends without a word; requests of it may still wait", ("process",)),
        "retry": Word("a consumer that waits sends its request once more, as after a broken connection", ("process",)),
        "fetch": Word("a consumer asks for the offsets of its group", ("process",)),
        "time": Word("so many milliseconds pass, a step of the scope if not said; each timer fires", ("[number]",)),
        "ack": Word("the log writes the oldest appends that wait, one if not said", ("[number]",)),
        "refuse": Word("the log refuses the oldest append that waits", ("[error]",)),
        "lose": Word("nobody knows what became of the oldest append that waits", ("[written|unwritten]",)),
        "fail": Word("the log will refuse the next append at once", ("[error]",)),
        "crash": Word("the coordinator dies; another one loads the log, with so many of the appends", ("[number]",)),
        "move": Word("the log partition goes away, and comes back with so many of the appends", ("[number]",)),
        "unload": Word("the log partition goes away: to another leader, or its replica with it", ("[leader|replica]",)),
        "load": Word("the log partition comes back"),
        "read_breaks": Word("the next load will break off after so many records", ("number",)),
        "txn": Word(
            "a consumer's producer commits what it owns; without one, a producer that is no member", ("[process]",)
        ),
        "marker": Word("the transaction of a consumer's producer ends", ("process", "commit|abort")),
        "sweep": Word("time passes until expired offsets and groups are looked for"),
        "delete": Word("an administrator deletes the group, or its offsets of a topic", ("[topic]",)),
        "topic": Word("a topic comes, grows or goes", ("create|grow|delete", "topic", "[number]")),
        "recover": Word("faults stop, everybody goes on for some minutes, and all have to be served"),
    }
)
"""What can happen, by the word for it."""


class Step(NamedTuple):
    """One step of a history, such as ``crash 1``.

    Attributes:
        word: one of :data:`WORDS`.
        operands: what stands behind it.
    """

    word: str
    operands: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.word, *map(str, self.operands)))

    @classmethod
    def of(cls, text: str) -> Step:
        """Read a step.

        Args:
            text: as :func:`str` writes one.

        Raises:
            HistoryError: it is none.
        """
        word, *given = text.split() or ("",)
        if word not in WORDS:
            raise HistoryError(f"{text!r}: there is no word {word!r}; there are {', '.join(WORDS)}")
        kinds = WORDS[word].operands
        needed = sum(not kind.startswith("[") for kind in kinds)
        if not needed <= len(given) <= len(kinds):
            raise HistoryError(f"{text!r}: it is written {' '.join((word, *kinds))}")
        return cls(word, tuple(_read(text, kind.strip("[]"), value) for kind, value in zip(kinds, given, strict=False)))


def refusal(name: str | int | None) -> LogStoreError:
    """Return what a log says that refuses an append.

    Args:
        name: one of :data:`REFUSALS`; None: too few replicas.
    """
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
