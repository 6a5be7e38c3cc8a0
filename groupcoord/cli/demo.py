"""``groupcoord demo``: a narrated minute. Real clients join over TCP, one dies, offsets survive a kill."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import tempfile
import time
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import groupcoord
from groupcoord.cli.demo_member import Options
from groupcoord.cli.demo_processes import (
    DemoError,
    MemberProcess,
    ServerProcess,
    acknowledged,
    committed_offsets,
    describe_group,
    own_each_once,
    wait_until,
)
from groupcoord.cli.demo_screen import Screen
from groupcoord.cli.interrupts import BeforeTheEnd, show_cursor

FAILURE, USAGE_ERROR = 1, 2
TOPIC, PARTITION_COUNT, GROUP_ID = "orders", 6, "demo"
MEMBER_COUNT = 3
SESSION_TIMEOUT_MS = 2_000
SETTINGS = {"group.min.session.timeout.ms": 1_000, "group.initial.rebalance.delay.ms": 500}
COMMIT_INTERVAL_MS, ROUNDS = 100, 8
DEADLINE_S = 30.0
NEXT = "Now with your own clients: groupcoord serve --port 9092 --topic orders:6"


class Library(StrEnum):
    """The client libraries that a member can be made of, the preferred one first."""

    KAFKA_PYTHON = "kafka-python"
    AIOKAFKA = "aiokafka"
    CONFLUENT_KAFKA = "confluent-kafka"

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported."""
        module = "kafka" if self is Library.KAFKA_PYTHON else self.replace("-", "_")
        spec = importlib.util.find_spec(module)
        return spec is not None and spec.origin is not None

    @property
    def label(self) -> str:
        """Its name and version."""
        try:
            return f"{self} {importlib.metadata.version(self)}"
        except importlib.metadata.PackageNotFoundError:
            return str(self)


def demo(
    client: Annotated[
        Library | None, typer.Option(help="The client library to use. [default: the first that is installed]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave no time for reading.")] = False,
) -> None:
    """Watch a group at work: real clients join over TCP, one dies, offsets survive a kill.

    Exit status: 0 if all was as told, 1 if something was not, 2 if there is no client library.
    """
    library = client or next((library for library in Library if library.is_installed), None)
    if library is None:
        _refuse("no Kafka client library is installed; try: pip install 'groupcoord[demo]'")
    if not library.is_installed:
        _refuse(f"{library} is not installed; try: pip install {library}")
    title = f"groupcoord {groupcoord.__version__}: a server in Python, and clients that are {library.label}"
    with ExitStack() as stack:
        data_dir = tempfile.TemporaryDirectory(prefix="groupcoord-demo-")
        stack.enter_context(data_dir)
        stack.enter_context(BeforeTheEnd(data_dir.cleanup))
        stack.enter_context(BeforeTheEnd(show_cursor))
        screen = stack.enter_context(Screen(Console(highlight=False), title, is_quick=quick))
        story = Story(screen, library, Path(data_dir.name))
        stack.callback(story.end)
        try:
            story.run()
        except DemoError as error:
            screen.fail(str(error))
            raise typer.Exit(FAILURE) from None


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(f"groupcoord demo: {message}\n")
    raise typer.Exit(USAGE_ERROR)


class Story:
    """The events, in their order. What is told is checked; what is not as told raises DemoError.

    Args:
        screen: where it is told.
        library: what the members are made of.
        data_dir: where the server keeps its data.
    """

    def __init__(self, screen: Screen, library: Library, data_dir: Path) -> None:
        self._screen = screen
        self._library = library
        self._data_dir = data_dir
        self._begin_s = time.monotonic()

    def run(self) -> None:
        """Tell it from the beginning to the end."""
        self._start_server()
        self._join()
        self._kill_member()
        self._kill_server()
        self._go_on()
        self._leave()

    def end(self) -> None:
        """Kill every process that is left."""
        for child in (*self._screen.members, self._screen.server):
            if child is not None:
                child.kill()

    @property
    def _server(self) -> ServerProcess:
        server = self._screen.server
        assert server is not None
        return server

    @property
    def _alive(self) -> list[MemberProcess]:
        return [member for member in self._screen.members if member.is_alive]

    def _start_server(self) -> None:
        self._screen.chapter("A server starts")
        self._open_server(port=0)
        self._screen.tell(f"groupcoord serve keeps topics, groups and offsets in {self._data_dir}.")
        self._screen.confirm(f"Process {self._server.pid} listens on {self._server.bootstrap}.")

    def _open_server(self, port: int) -> None:
        # The members commit offsets of their own making, of records that nobody has written.
        self._screen.server = ServerProcess(
            self._data_dir, port=port, topics={TOPIC: PARTITION_COUNT}, settings=SETTINGS, words=["--no-records"]
        )

    def _join(self) -> None:
        self._screen.chapter("Three members join")
        self._screen.tell(f"Each is a process of its own: a consumer of {self._library}, in group “{GROUP_ID}”.")
        for number in range(1, MEMBER_COUNT + 1):
            options = Options(
                library=self._library,
                bootstrap=self._server.bootstrap,
                group_id=GROUP_ID,
                topic=TOPIC,
                client_id=f"member-{number}",
                session_timeout_ms=SESSION_TIMEOUT_MS,
                commit_interval_ms=COMMIT_INTERVAL_MS,
            )
            self._screen.members.append(MemberProcess(options))
        self._wait_for_owners(self._screen.members)
        self._screen.show_owners()
        self._screen.confirm(f"Each of the {PARTITION_COUNT} partitions of “{TOPIC}” has exactly one owner.")
        self._wait_for_commits(ROUNDS)
        count = sum(member.commit_count for member in self._screen.members)
        self._screen.confirm(f"They work, and have committed {count} times.")

    def _kill_member(self) -> None:
        dead = self._screen.members[1]
        self._screen.chapter("A member dies")
        orphans = sorted(dead.owned)
        dead.kill()
        owned = ", ".join(map(str, orphans))
        self._screen.tell(f"kill -9 {dead.pid}: {dead.name} is gone without a goodbye. It owned partitions {owned}.")
        self._screen.tell(f"Its session ends after {SESSION_TIMEOUT_MS / 1000:g} s without a heartbeat …")
        took_s = self._wait_for_owners(self._alive)
        self._screen.show_owners()
        resumed = {partition: offset for member in self._alive for partition, offset in member.started_at.items()}
        for partition in orphans:
            if resumed[partition] < dead.offset(partition):
                raise DemoError(
                    f"partition {partition} goes on at {resumed[partition]}, but {dead.name} had committed "
                    f"{dead.offset(partition)}"
                )
        self._screen.confirm(f"After {took_s:.1f} s the others own all partitions, and go on where it had committed.")

    def _kill_server(self) -> None:
        self._screen.chapter("The server dies")
        self._wait_for_commits(ROUNDS)
        self._screen.tell("The members hold still for a moment, so that the numbers do.")
        for member in self._alive:
            member.pause()
        wait_until(lambda: all(member.is_paused for member in self._alive), DEADLINE_S, "the members hold still")
        before = acknowledged(self._screen.members)
        self._member_ids = describe_group(self._server.port, GROUP_ID).member_ids
        self._screen.tell(f"kill -9 {self._server.pid}, and start it again on the same port and data directory.")
        self._server.kill()
        self._open_server(self._server.port)
        stored = committed_offsets(self._server.port, GROUP_ID, TOPIC)
        self._screen.compare_offsets(before, stored)
        if stored != before:
            raise DemoError("the server does not have the offsets that it acknowledged")
        self._screen.confirm("Every offset that was acknowledged is there.")

    def _go_on(self) -> None:
        self._screen.chapter("The group goes on")
        for member in self._alive:
            member.resume()
        self._wait_for_commits(ROUNDS)
        self._wait_for_owners(self._alive)
        same = describe_group(self._server.port, GROUP_ID).member_ids == self._member_ids
        how = "under the ids they had before: nobody had to join again" if same else "after joining again by themselves"
        self._screen.confirm(f"The same processes own all partitions and commit, {how}.")

    def _leave(self) -> None:
        self._screen.chapter("They leave")
        leaving = self._alive
        for member in leaving:
            member.ask_to_stop()
        for member in leaving:
            member.stop()
        described = describe_group(self._server.port, GROUP_ID)
        if described.state != "Empty":
            raise DemoError(f"all members have left, but the group is {described.state}")
        if committed_offsets(self._server.port, GROUP_ID, TOPIC) != acknowledged(self._screen.members):
            raise DemoError("the server does not have the offsets that it acknowledged")
        self._screen.confirm("The group is empty; its offsets stay.")
        self._screen.end(f"All was as told, in {time.monotonic() - self._begin_s:.0f} s.", NEXT)

    def _wait_for_owners(self, members: list[MemberProcess]) -> float:
        def is_settled() -> bool:
            self._server.check_alive()
            if not own_each_once(members, PARTITION_COUNT):
                return False
            described = describe_group(self._server.port, GROUP_ID)
            return described.state == "Stable" and described.client_ids == tuple(member.name for member in members)

        return wait_until(is_settled, DEADLINE_S, "every partition has one owner, and the server says so")

    def _wait_for_commits(self, rounds: int) -> None:
        wanted = {member.name: member.commit_count + rounds for member in self._alive}

        def have_committed() -> bool:
            self._server.check_alive()
            for member in self._screen.members:
                if member.name in wanted:
                    member.check_alive()
            return all(member.commit_count >= wanted[member.name] for member in self._alive)

        wait_until(have_committed, DEADLINE_S, "the members commit")
