"""The scopes that come with groupcoord, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from groupcoord.testing.exploring.scope import Process, Scope

__all__ = ["FAULTS", "NAMED", "scope_of"]

FAULTS = ("refuse", "crash", "move")
"""What goes wrong with the log and the coordinator."""

QUIET = ("commit", "leave", "die", "time", "move")
"""What happens where the log answers at once, and nothing is refused."""

ALL = ("commit", "leave", "die", "time", *FAULTS)


def scope_of(protocol: str, dynamic: int = 0, static: int = 0, words: tuple[str, ...] = ALL, **more: object) -> Scope:
    """Return a scope with processes of one protocol, or (``mixed``) of the classic one and KIP-848 in turn.

    Args:
        protocol: of all.
        dynamic: how many have no instance id.
        static: how many have one.
        words: what may happen. The log is late if it may refuse.
        more: further attributes of the scope.
    """
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
"""What they are is in their names: the protocol, and how many members there are."""
