"""What attacks found: a table for the terminal, and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHORT = 300
PIPE_WIDTH_MIN = 180


@dataclass
class Result:
    """One attack.

    Attributes:
        attack: its kind.
        case: what was done.
        replay: the command line that does it again.
        inputs: how much was tried, by what it is: frames, connections, bytes, logs.
        healthy_answers: how many answers the healthy client had meanwhile.
        slowest_ms: its slowest answer, by what it asked.
        memory_mib: the most that the server had in memory.
        sockets: connections that the server held when every client was gone.
        log_lines: how many lines the server wrote to its log.
        duration_s: of the attack, without what was checked before and after.
        notes: what else is worth knowing.
        faults: what must not be.
    """

    attack: str
    case: str
    replay: str
    inputs: dict[str, int] = field(default_factory=dict)
    healthy_answers: int = 0
    slowest_ms: dict[str, float] = field(default_factory=dict)
    memory_mib: float = 0.0
    sockets: int = 0
    log_lines: int = 0
    duration_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def slowest(self) -> tuple[float, str]:
        """The slowest answer of all that the healthy client had, in milliseconds, and what it had asked."""
        return max(((time, name) for name, time in self.slowest_ms.items()), default=(0.0, ""))

    def count(self, what: str, number: int = 1) -> None:
        """Add to an input."""
        self.inputs[what] = self.inputs.get(what, 0) + number

    def fault(self, text: str) -> None:
        """Note what must not be."""
        self.faults.append(text)


def print_table(results: Sequence[Result]) -> None:
    """Print a table of all attacks, then the faults, each with the line that replays it."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, PIPE_WIDTH_MIN))
    table = Table("attack", "case", "inputs", title="Attacks")
    for heading in ("s", "slowest healthy answer, ms", "memory, MiB", "sockets left", "log lines", "faults"):
        table.add_column(heading, justify="right")
    for result in results:
        slowest_ms, asked = result.slowest
        table.add_row(
            result.attack,
            result.case,
            "\n".join(f"{number:,} {what}" for what, number in result.inputs.items()),
            f"{result.duration_s:.1f}",
            f"{slowest_ms:,.1f} {asked}" if result.healthy_answers else "-",
            f"{result.memory_mib:,.0f}" if result.memory_mib else "-",
            str(result.sockets),
            f"{result.log_lines:,}",
            f"[red]{len(result.faults)}[/]" if result.faults else "0",
        )
    console.print(table)
    for result in results:
        for note in result.notes:
            console.print(f"{result.attack}, {result.case}: {note}", markup=False, soft_wrap=True)
    for result in results:
        for fault in result.faults:
            console.print(f"FAULT {result.attack}, {result.case}: {fault}", markup=False, style="red", soft_wrap=True)
        if result.faults:
            console.print(f"again: {result.replay}", markup=False, soft_wrap=True)


def write_json(path: Path, results: Sequence[Result], seed: int) -> None:
    """Write all results to a file."""
    found: dict[str, Any] = {"seed": seed, "results": [dataclasses.asdict(result) for result in results]}
    path.write_text(json.dumps(found, indent=1) + "\n")


def one_line(text: str) -> str:
    """Return the last line of a text, shortened."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:SHORT] if lines else ""
