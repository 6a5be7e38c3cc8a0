"""``python -m tests.attack``: attack a server in every way, while a healthy client measures what that does to it.

Each kind of attack can be run alone. A failing case is printed with the line that runs it again.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.attack import clocks, connections, disk, followers, operators
from tests.attack.amplify import PATIENCE_S, amplifications, amplify
from tests.attack.batches import HOSTILE, send_hostile
from tests.attack.counts import API_KEYS, attack_acls, attack_counts
from tests.attack.flood import FLOODS, flood
from tests.attack.fuzz import ROUND_FRAMES, fuzz
from tests.attack.logins import attack_logins
from tests.attack.logs import attack_logs
from tests.attack.owners import attack_owners
from tests.attack.report import Result, print_table, write_json
from tests.attack.sharing import SHARING, attack_sharing
from tests.attack.siege import Bounds, Siege

PROGRAM = "python -m tests.attack"


def _fuzz(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    if options.only is not None:
        yield fuzz(siege, options.frames, options.seed, options.only)
        return
    # Each round is the first one of a seed of its own, so it can be run again alone.
    for number in range(-(-options.frames // ROUND_FRAMES)):
        yield fuzz(siege, min(options.frames - number * ROUND_FRAMES, ROUND_FRAMES), options.seed + number)


def _amplify(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    for case in amplifications(options.request_mib):
        if _is_wanted(case.name, options):
            replay = f"{PROGRAM} amplify --request-mib {options.request_mib:g} --case {case.name!r}"
            yield amplify(siege.ended_by_signal(), case, replay, options.patience_s)


def _counts(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    for api_key in API_KEYS:
        if options.case in (None, str(api_key)):
            yield attack_counts(siege, api_key, f"{PROGRAM} counts --case {api_key}")


def _acls(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    yield attack_acls(siege, f"{PROGRAM} acls")


def _batches(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    for case in HOSTILE:
        if _is_wanted(case.name, options):
            yield send_hostile(siege, case, f"{PROGRAM} batches --case {case.name!r}", options.patience_s)


def _flood(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    for case in FLOODS:
        if _is_wanted(case.name, options):
            yield flood(siege, case, f"{PROGRAM} flood --case {case.name!r}")


def _sharing(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    for name in SHARING:
        if _is_wanted(name, options):
            yield attack_sharing(siege, name, f"{PROGRAM} sharing --case {name!r}")


def _simple(kind: str, cases: dict[str, Callable[[Siege, str], Result]]) -> Kind:
    def run(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
        for name, case in cases.items():
            if _is_wanted(name, options):
                yield case(siege, f"{PROGRAM} {kind} --seed {options.seed} --case {name!r}")

    return run


def _connections(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    cases: dict[str, Callable[[Siege, str], Result]] = {
        "slow senders": connections.slow_senders,
        "churn": lambda siege, replay: connections.churn(siege, replay, options.connections, options.seed),
        "too many": connections.too_many,
    }
    yield from _simple("connections", cases)(siege, options)


def _owners(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    yield attack_owners(
        options.rounds, options.seed, f"{PROGRAM} owners --rounds {options.rounds} --seed {options.seed}"
    )


def _logs(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    yield attack_logs(options.count, options.seed, options.only)


def _logins(siege: Siege, options: argparse.Namespace) -> Iterator[Result]:
    yield attack_logins(siege, options.count, options.seed, options.only)


Kind = Callable[[Siege, argparse.Namespace], Iterator[Result]]

KINDS: dict[str, Kind] = {
    "fuzz": _fuzz,
    "amplify": _amplify,
    "counts": _counts,
    "acls": _acls,
    "batches": _batches,
    "flood": _flood,
    "sharing": _sharing,
    "connections": _connections,
    "descriptors": _simple(
        "descriptors", {"no descriptor left": connections.descriptors, "idle pages": connections.idle_pages}
    ),
    "operators": _simple(
        "operators", {"settings": operators.settings, "names": operators.names, "files": operators.files}
    ),
    "control": _simple("control", {"years pass": connections.years_pass}),
    "disk": _simple(
        "disk",
        {
            "small files": disk.small_files,
            "full disk": disk.full_disk,
            "start on a full disk": disk.start_on_full_disk,
            "unlinked segments": lambda siege, replay: disk.removed(siege, replay, directory=False),
            "removed directory": lambda siege, replay: disk.removed(siege, replay, directory=True),
        },
    ),
    "clocks": _simple(
        "clocks",
        {
            "steps": clocks.clock_steps,
            "sleep": clocks.sleeping_machine,
            "other years": clocks.other_years,
        },
    ),
    "followers": _simple(
        "followers",
        {
            "commits while their log is compacted": followers.compacted,
            "a first run that writes nothing": followers.started_in_vain,
            "a second server on the same folder": followers.second_server,
        },
    ),
    "owners": _owners,
    "logs": _logs,
    "logins": _logins,
}


def _is_wanted(name: str, options: argparse.Namespace) -> bool:
    return options.case is None or options.case.lower() in name.lower()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("kind", nargs="?", default="all", choices=["all", *KINDS], help="what to do; all by default")
    parser.add_argument("--seed", type=int, default=None, help="decides what is mutated; random by default")
    parser.add_argument("--frames", type=int, default=200_000, help="fuzz: how many requests the server must read")
    parser.add_argument("--count", type=int, default=500, help="logs, logins: how many logs, or log-ins")
    parser.add_argument("--connections", type=int, default=5_000, help="connections: how many come and go")
    parser.add_argument("--rounds", type=int, default=100, help="owners: how often one stands still")
    parser.add_argument("--request-mib", type=float, default=1.0, help="amplify: how large requests are made")
    parser.add_argument("--patience-s", type=float, default=PATIENCE_S, help="amplify, batches: how long to wait")
    parser.add_argument("--case", default=None, help="only the cases whose name holds this")
    parser.add_argument("--only", type=int, default=None, help="fuzz, logs, logins: only the one of this number")
    parser.add_argument("--slowest-ms", type=float, default=Bounds.slowest_ms, help="longest wait of a healthy client")
    parser.add_argument("--memory-mib", type=float, default=Bounds.memory_mib, help="most memory of the server")
    parser.add_argument("--json", type=Path, default=None, help="a file for all figures")
    parser.add_argument("--keep", action="store_true", help="keep the directories of attacks that found nothing, too")
    return parser


def main() -> int:
    """Run as told on the command line; return 1 if anything was found."""
    options = _parser().parse_args()
    if options.seed is None:
        options.seed = random.randrange(2**31)
    siege = Siege(bounds=Bounds(options.slowest_ms, options.memory_mib), keeps=options.keep)
    print(f"seed {options.seed}, {os.cpu_count()} processors", flush=True)
    results: list[Result] = []
    begin_s = time.monotonic()
    for name, kind in KINDS.items():
        if options.kind in ("all", name):
            for result in kind(siege, options):
                results.append(result)
                state = f"{len(result.faults)} faults" if result.faults else "held"
                found = "".join(f"\n            {fault}" for fault in result.faults)
                print(
                    f"{time.monotonic() - begin_s:7.1f} s  {result.attack}, {result.case}: {state}{found}", flush=True
                )
    print_table(results)
    if options.json is not None:
        write_json(options.json, results, options.seed)
    if not results:
        print(f"no case is named {options.case!r}", file=sys.stderr)
    return int(not results or any(result.faults for result in results))


if __name__ == "__main__":
    sys.exit(main())
