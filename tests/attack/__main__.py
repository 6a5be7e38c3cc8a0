"""``python -m tests.attack [KIND]``: attack a server in every way, and measure the waits of a healthy client meanwhile.

Exits with 1 if anything must not have happened, and prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from tests.attack.amplify import amplifications
from tests.attack.fuzz import ROUND_FRAMES, fuzz
from tests.attack.logs import attack_logs
from tests.attack.owners import attack_owners
from tests.attack.rig import Bounds, Result
from tests.attack.sharing import SHARING

PROGRAM = "python -m tests.attack"


class Runnable(Protocol):
    """Attack that fills a result."""

    @property
    def name(self) -> str: ...

    def run(self, result: Result, bounds: Bounds) -> None: ...


class Alone:
    """Attack without a server of the rig's."""

    def __init__(self, name: str, act: Callable[[Result], None]) -> None:
        self.name = name
        self._act = act

    def run(self, result: Result, bounds: Bounds) -> None:
        self._act(result)


def _fuzz(options: argparse.Namespace) -> Iterator[Runnable]:
    """Yield rounds with a seed each, so that each can be repeated alone."""
    if options.only is not None:
        yield fuzz(options.frames, options.seed, options.only)
        return
    for number in range(-(-options.frames // ROUND_FRAMES)):
        yield fuzz(min(options.frames - number * ROUND_FRAMES, ROUND_FRAMES), options.seed + number)


KINDS: dict[str, Callable[[argparse.Namespace], Iterator[Runnable]]] = {
    "fuzz": _fuzz,
    "amplify": lambda options: amplifications(),
    "sharing": lambda options: iter(SHARING),
    "owners": lambda options: iter(
        [Alone("stopped", partial(attack_owners, rounds=options.rounds, seed=options.seed))]
    ),
    "logs": lambda options: iter(
        [Alone("mutated", partial(attack_logs, count=options.count, seed=options.seed, only=options.only))]
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("kind", nargs="?", default="all", choices=["all", *KINDS])
    parser.add_argument("--seed", type=int, help="decides what is mutated; random by default")
    parser.add_argument("--frames", type=int, default=200_000, help="fuzz: how many requests the server must read")
    parser.add_argument("--count", type=int, default=500, help="logs: how many")
    parser.add_argument("--rounds", type=int, default=100, help="owners: how often one is stopped")
    parser.add_argument("--case", default="", help="only attacks with this in their names")
    parser.add_argument("--only", type=int, help="fuzz, logs: only the conversation or log of this number")
    parser.add_argument("--slowest-ms", type=float, default=Bounds.slowest_ms, help="longest wait of a healthy client")
    parser.add_argument("--memory-mib", type=float, default=Bounds.memory_mib, help="most memory of the server")
    return parser


def main() -> int:
    """Run attacks; return 1 if one of them found a fault, or if there was none to run."""
    options = _parser().parse_args()
    if options.seed is None:
        options.seed = random.randrange(2**31)
    bounds = Bounds(options.slowest_ms, options.memory_mib)
    print(f"seed {options.seed}", flush=True)
    begin_s, count, failed = time.monotonic(), 0, []
    for kind, attacks in KINDS.items():
        if options.kind not in ("all", kind):
            continue
        for attack in attacks(options):
            if options.case.lower() in attack.name.lower():
                result = Result(kind, attack.name)
                attack.run(result, bounds)
                print(f"{time.monotonic() - begin_s:7.1f} s  {result}", flush=True)
                count += 1
                if result.faults:
                    again = result.again or f"--seed {options.seed} --case {attack.name!r}"
                    failed.append(f"again: {PROGRAM} {kind} {again}")
    print(*failed, f"{count} attacks, {len(failed)} with faults", sep="\n")
    return int(bool(failed) or not count)


if __name__ == "__main__":
    sys.exit(main())
