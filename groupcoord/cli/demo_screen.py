"""How the demonstration looks: a running account, and on a terminal the processes below it as they change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from groupcoord.cli.demo_processes import MemberProcess, ServerProcess

READING_S = 1.6
REFRESHES_PER_SECOND = 10
MEMBER_STYLES = ("cyan", "magenta", "yellow", "blue", "green")


class Screen:
    """Tells the story. Use it as a context manager.

    Args:
        console: where to.
        title: what stands above all.
        is_quick: leave no time for reading.
    """

    def __init__(self, console: Console, title: str, *, is_quick: bool) -> None:
        self.server: ServerProcess | None = None
        self.members: list[MemberProcess] = []
        self._console = console
        self._title = title
        self._chapter = 0
        self._live: Live | None = None
        self._reading_s = 0.0
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._render, console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True
            )
            self._reading_s = 0.0 if is_quick else READING_S

    def __enter__(self) -> Screen:
        self._print(Text(self._title, style="bold"))
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def chapter(self, heading: str) -> None:
        """Begin a part of the story."""
        self._chapter += 1
        self._print(Text())
        self._print(Text(f"{self._chapter}. {heading}", style="bold"))

    def tell(self, text: str) -> None:
        """Say what happens."""
        self._print(Text(f"   {text}"))

    def confirm(self, text: str) -> None:
        """Say what has been checked and found so, and leave time to read it."""
        self._print(Text.assemble(("   ✓ ", "bold green"), text))
        time.sleep(self._reading_s)

    def end(self, *lines: str) -> None:
        """Close the account."""
        self._print(Text())
        for line in lines:
            self._print(Text(line, style="bold"))

    def fail(self, text: str) -> None:
        """Say what was not as it should be."""
        self._print(Text.assemble(("   ✗ ", "bold red"), text))

    def show_owners(self) -> None:
        """List who owns what. On a terminal it can be seen all the time."""
        if self._live is None:
            for member in self.members:
                if member.is_alive:
                    owned = ", ".join(map(str, sorted(member.owned)))
                    self.tell(f"{member.name} (process {member.pid}) owns partitions {owned}")

    def compare_offsets(self, acknowledged: Mapping[int, int], stored: Mapping[int, int]) -> None:
        """Show the offsets that were acknowledged and those that are stored, side by side."""
        width = max(6, *(len(str(offset)) + 2 for offset in (*acknowledged.values(), *stored.values())))
        partitions = sorted({*acknowledged, *stored})
        for heading, cells in (
            ("partition", {partition: partition for partition in partitions}),
            ("acknowledged before", acknowledged),
            ("stored after restart", stored),
        ):
            self.tell(f"{heading:<20}" + "".join(f"{cells.get(partition, '-'):>{width}}" for partition in partitions))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=self._live is None)

    def _render(self) -> RenderableType:
        if self.server is None:
            return Text()
        is_alive = self.server.is_alive
        state = Text("● serves" if is_alive else "✗ killed", style="green" if is_alive else "bold red")
        server = Text.assemble("server  ", state, f"  process {self.server.pid}, {self.server.bootstrap}")
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("member", "", "process", "partition:committed offset"):
            table.add_column(heading, header_style="dim", no_wrap=True)
        for number, member in enumerate(self.members):
            self._add_member(table, member, MEMBER_STYLES[number % len(MEMBER_STYLES)])
        return Panel(Group(server, "", table) if self.members else server, expand=False, border_style="dim")

    def _add_member(self, table: Table, member: MemberProcess, style: str) -> None:
        if not member.is_alive:
            state = Text("left" if member.has_left else "✗ killed", style="dim" if member.has_left else "bold red")
        elif member.started_at:
            state = Text("● paused" if member.is_paused else "● works", style="yellow" if member.is_paused else "green")
        else:
            state = Text("… joins", style="dim")
        owned = {partition: member.offset(partition) for partition in sorted(member.owned)}
        offsets = "  ".join(f"{partition}:{offset}" for partition, offset in owned.items())
        table.add_row(Text(member.name, style=style), state, str(member.pid), Text(offsets, style=style))
