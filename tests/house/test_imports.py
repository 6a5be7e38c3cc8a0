"""Import rules: layers, and the two packages of the base install."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sources import Source, check_sources, circles, import_graph, imported_modules, package_sources

EVERYTHING = "*"

EMBEDDED = ("core.events", "core.router.authorization", "core.messages")
"""The core's words in the signatures of what programs embed."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "lazy": (),
    "clock": (),
    "errors": ("core.fast_construct",),
    "config": ("errors",),
    "core": ("errors", "config", "schema"),
    "messages": ("core.messages",),
    "events": ("core.events",),
    "assignors": (
        *("core.groups.base.assignor", "core.topics", "core.groups.consumer.assignors"),
        *("core.groups.share.simple_assignor", "core.groups.streams.assignors", "errors"),
    ),
    "schema": (),
    "records": (
        *("schema", "core.log.records", "core.share_state", "core.columns"),
        *("core.consumer_protocol", "core.fast_construct", "errors"),
    ),
    "log_store": ("core", "errors", "config", "clock", "records"),
    "forking": ("core", "config"),
    "coordinator": (
        "assignors",  # the core imports nothing that a setting names
        *("core", "forking", "errors", "config", "clock"),
        "log_store",
        "records",
    ),
    "cluster": (
        *("lazy", "errors", "log_store", "records", "core.log.records"),
        "storage.log.segment_files",  # how records of batches are read
        *("aio", "coordinator", "core.messages", "core.events", "core.router.authorization"),  # of a replica
    ),
    "aio": ("coordinator", "log_store", "errors", *EMBEDDED),
    "laws": ("coordinator", "core", "errors", "log_store"),
    "storage": (
        *("lazy", "schema.primitives", "records", "log_store", "errors", "config.settings", "config.files"),
        "core.log.records",  # compaction tells records apart by what they are
        "core.fast_construct",  # some named tuples are made for each batch
    ),
    "wire": (
        *("schema", "core.messages", "core.fast_construct", "errors"),
        "core.columns",  # offsets stay columns on all their way
        "core.log.records",  # of these only what stands for "no id"
    ),
    "client": ("schema", "wire", "config", "errors"),
    "member": (
        *("core.messages", "core.consumer_protocol", "errors"),
        "core.javacompat",  # assignors walk maps as it does
        "config",  # how settings are named and checked
    ),
    "broker": (
        *("schema.primitives", "coordinator", "wire", "storage", "clock", "config"),
        "records.batches",  # what it writes itself; and what the header of a batch says
        "records.transactions",
        # share groups have their own coordinator
        *("core.share_state", "core.host_queries", "records.share_state"),
        "core.share_partition",
        "core.columns",  # offsets stay columns on all their way
        "core.consumer_protocol",  # what one partition of a topic is called
        "core.router.request_router",  # which requests describe groups of a kind, and in which order they are told
        "core.javacompat",  # topics are described in its order of names
        "core.topics",
        "core.fast_construct",
        # the vocabulary of what it is given and passes on
        *("log_store", "core.messages", "core.host_queries", "core.log.records", "core.router.authorization", "errors"),
    ),
    "host": (
        *("cluster", "core.router.authorization"),  # of a node that shares its log with others
        *("broker", "coordinator", "wire", "storage", "clock", "config"),
        # which states groups can be in
        *("core.groups.classic.group", "core.groups.consumer.group"),
        *("core.groups.share.group", "core.groups.streams.group"),
        "core.fast_construct",  # a process of its own may pause the garbage collector; a library may not
        *("log_store", "core.messages", "core.log.records", "errors"),
    ),
    "sim": (
        *("cluster", "coordinator", "member", "log_store", "clock", "config", "messages", "events", "errors", "laws"),
        "core.consumer_protocol",
        "assignors",  # whether a scenario names what there is
        "analysis.report",  # how it tells what came of it
        # its laws judge what is inside
        *("core.log.records", "core.log.log_partition", "core.offsets", "core.timers"),
        "core.host_queries",  # topics that applications of Kafka Streams need
        *(
            "core.groups.group",
            "core.groups.group_types",
            "core.groups.classic",
            "core.groups.consumer",
            "core.groups.base",
        ),
        *("core.groups.share", "core.groups.streams"),
        # records are shared by leaders of partitions, as brokers are
        *(
            "broker.share",
            "broker.records.topic_data",
            "broker.records.node_data",
            "broker.topics.registry",
            "broker.work",
        ),
        *("core.share_partition", "core.share_state", "schema.primitives"),
        *("core.messages", "core.router.authorization"),
        *("storage", "records.batches", "wire.share_messages"),
    ),
    "analysis": (),
    "analysis.errors": ("errors",),
    "analysis.options": ("analysis.errors",),
    "analysis.decode": (
        *("analysis.errors", "analysis.options", "schema.engine", "records", "core.log.records", "errors"),
        "storage",  # how segment files and their folders are named
    ),
    "analysis.fold": (
        *("analysis.decode", "schema.engine", "records", "errors", "clock"),
        "analysis.options",  # over which windows commits are counted
        # what coordinators make of a log, to be held against tables
        *("coordinator", "log_store", "config", "core"),
    ),
    "analysis.fold.history": (
        *("schema.engine", "records", "core.log.records", "errors"),
        # how consumers write subscriptions and assignments, which the group's record only carries
        "core.consumer_protocol",
        "core.groups.consumer.group",  # which assignor most members ask for
        "core.share_state",  # what a share coordinator makes of its log
    ),
    "analysis.rules": (
        *("analysis.decode", "analysis.fold", "analysis.options"),
        "analysis.report.text",  # how evidence writes durations
        *("core.administration", "core.consumer_protocol"),  # by which rules offsets expire
    ),
    "analysis.rules.statuses": ("analysis.options",),
    "analysis.report": (
        *("analysis.decode", "analysis.tables"),
        *("analysis.rules", "analysis.options"),  # labels and order of what is wrong
        "analysis.fold.history",  # colours and words for each cause
        "clock",  # a page says when it was made
    ),
    "analysis.report.html": (
        "analysis.report.text",
        "analysis.report.data.model",
        "analysis.fold.history.causes",
    ),
    "analysis.report.data.model": (),
    "analysis.live": (
        *("schema.engine", "analysis.decode", "analysis.errors", "analysis.options"),  # the same rows as of files
        *("records", "errors"),
        "config",  # how clients reach a cluster and log in
        "client",
        "wire",  # of these only errors and names of types
        "core.log.records",  # of these only what stands for "no id"
        "core.consumer_protocol",  # what one partition of a topic is called
    ),
    "analysis.poll": (
        *("schema.engine", "analysis", "clock"),  # from snapshots to the same rows as from logs
        "core.consumer_protocol",
    ),
    "analysis.pipeline": (
        *("analysis", "errors", "clock"),
        *("records.share_state", "core.log.records"),  # the log of share-partitions
    ),
    "analysis.pipeline.metrics": ("analysis", "clock"),
    "testing": (EVERYTHING,),
    "conformance": (EVERYTHING,),
    "cli": (EVERYTHING,),
    "spark": (EVERYTHING,),
    "__init__": (EVERYTHING,),
    "__main__": (EVERYTHING,),
}
"""From each part of the package, the other parts that it may import. A new line here is a decision about layers."""

LAZY_ONLY = {("log_store", "records"), ("coordinator", "records")}
"""Imported inside functions alone, so that who wants no bytes does not load the codec."""

TOP = frozenset(part for part, allowed in MAY_IMPORT.items() if allowed == (EVERYTHING,))
"""Nothing below imports these."""

BASE_REQUIREMENTS = frozenset({"attrs", "attr", "sortedcontainers"})

MAY_REQUIRE: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "clock": frozenset(),
    "config": BASE_REQUIREMENTS | {"javaproperties"},  # with a client's properties files, which the base has no use for
    "core": BASE_REQUIREMENTS | {"typing_extensions"},  # for type checkers, which bring it
    "messages": BASE_REQUIREMENTS,
    "events": BASE_REQUIREMENTS,
    "assignors": BASE_REQUIREMENTS,
    "schema": BASE_REQUIREMENTS,
    "log_store": BASE_REQUIREMENTS,
    "coordinator": BASE_REQUIREMENTS,
    "forking": BASE_REQUIREMENTS,
    "aio": BASE_REQUIREMENTS,
    "laws": BASE_REQUIREMENTS,
    "analysis.options": BASE_REQUIREMENTS,
    "analysis.fold.history": BASE_REQUIREMENTS,
    "analysis.rules.statuses": BASE_REQUIREMENTS,
    "analysis.report.text": BASE_REQUIREMENTS,
    "analysis.report.html": BASE_REQUIREMENTS | {"jinja2", "markupsafe"},
    "analysis.report.data.model": BASE_REQUIREMENTS,
    "analysis.report": frozenset({"attrs", "pyarrow"}),
    "analysis.live": frozenset({"attrs", "pyarrow"}),
    "analysis.decode": frozenset({"attrs", "numpy", "pyarrow", "fsspec", "crc32c"}),
    "analysis.fold": frozenset({"attrs", "numpy", "pyarrow", "fsspec"}),
    "analysis.rules": frozenset({"attrs", "numpy", "pyarrow"}),
    "analysis.poll": frozenset({"attrs", "pyarrow"}),
    "analysis.pipeline": frozenset({"attrs", "pyarrow", "fsspec"}),
    "analysis.pipeline.metrics": frozenset({"prometheus_client"}),  # who polls as a library needs none
    "__init__": BASE_REQUIREMENTS,
}
"""What the base install is made of imports no other package than these, nor does what tells histories and makes
pages; columns and analyses without Spark need numpy and Arrow."""

PYSPARK_ONLY_IN = "spark"

LAYERED = ("sim",)
"""Parts whose sub-packages are layers: they don't import each other in a circle either."""


CORE_LAYERS: tuple[tuple[str, ...], ...] = (
    # values: requests, records, events, what Java does
    (
        *("fast_construct", "javacompat", "columns", "consumer_protocol", "events", "timers", "topics"),
        *("messages", "records", "log.records", "log.record_keys", "share_state.records", "router.authorization"),
        *("groups.base.assignor", "groups.share.simple_assignor", "groups.streams.assignors"),
        *("groups.consumer.assignors", "groups.consumer.records", "groups.share.records", "groups.streams.records"),
        *("groups.consumer.reconciliation", "groups.streams.reconciliation"),
    ),
    # facts: what the log says, and what is asked of any group
    ("log.log_partition", "offsets.cache", "host_queries", "groups.group"),
    ("share_partition",),
    # state of the groups of each type
    (
        *("groups.base.state", "groups.base.group", "groups.classic.group"),
        *("groups.consumer.group", "groups.share.group"),
        *("groups.streams.topology", "groups.streams.group"),
    ),
    # what handlers have in common: outputs, appends in flight, deletion and expiry
    ("observer", "log.log_partition", "refusals", "handler_context"),
    ("offsets", "administration", "share_state.partition"),
    # handlers
    ("groups.base",),
    ("groups.classic",),
    ("groups.conversion",),
    ("groups.consumer", "groups.share", "groups.streams"),
    ("groups.group_types",),
    ("partition",),
    ("router",),
)
"""Modules of the core and their layers, the lowest first. No module imports from a layer above its own, nor does one
type of groups import another but the classic one; the longest name counts."""

TYPES_OF_GROUPS = ("groups.classic", "groups.consumer", "groups.share", "groups.streams")


def part_of(module: str) -> str:
    """Return the part of the package that a module ``groupcoord.…`` belongs to."""
    name = module.removeprefix("groupcoord").removeprefix(".")
    return max((part for part in MAY_IMPORT if is_allowed(name, (part,))), key=len, default=name or "__init__")


def inner_imports(source: Source) -> set[str]:
    """Return the modules of this package that a file imports, without the package's name."""
    modules = {module for module in source.imports if module.split(".")[0] == "groupcoord"}
    return {module.removeprefix("groupcoord.") for module in modules}


def outer_imports(source: Source) -> set[str]:
    """Return the packages that a file imports and that Python does not bring."""
    packages = {module.split(".")[0] for module in source.imports}
    return packages - sys.stdlib_module_names - {"groupcoord"}


def is_allowed(imported: str, allowed: tuple[str, ...]) -> bool:
    """Return whether a module is in one of the allowed parts."""
    return any(part == EVERYTHING or imported == part or imported.startswith(f"{part}.") for part in allowed)


def imports_beside_the_table(source: Source) -> Iterator[str]:
    """Yield what a file imports although the table doesn't name it for its part."""
    part = part_of(source.module)
    if part not in MAY_IMPORT:
        yield f"{part} is new: give it a line in MAY_IMPORT"
    allowed = (part, *MAY_IMPORT.get(part, ()))
    yield from (f"must not import {module}" for module in inner_imports(source) if not is_allowed(module, allowed))


def test_imports_follow_the_table() -> None:
    check_sources(package_sources(), imports_beside_the_table)


def imports_of_the_top(source: Source) -> Iterator[str]:
    if part_of(source.module) not in TOP:
        above = TOP - {"__init__"}
        yield from (f"imports {module}" for module in inner_imports(source) if module.split(".")[0] in above)


def test_nothing_below_imports_the_top() -> None:
    """Testing aids, conformance, commands and the pipeline are imported by each other only."""
    check_sources(package_sources(), imports_of_the_top)


def misplaced_packages(source: Source) -> Iterator[str]:
    """Yield the packages of others that a file must not import."""
    part = part_of(source.module)
    packages = outer_imports(source)
    yield from (f"imports {package}" for package in packages - MAY_REQUIRE.get(part, packages))
    if part != PYSPARK_ONLY_IN and "pyspark" in packages:
        yield "imports pyspark"


def test_foreign_packages_are_where_they_belong() -> None:
    """The core needs attrs and sortedcontainers; pyspark is imported by the pipeline alone."""
    check_sources(package_sources(), misplaced_packages)


def test_what_needs_no_pyspark_lies_elsewhere() -> None:
    """The folder ``spark`` holds what imports pyspark, and modules that Spark looks for."""
    pipeline = [source for source in package_sources() if part_of(source.module) == PYSPARK_ONLY_IN]
    without = {source.module for source in pipeline if "pyspark" not in outer_imports(source)}
    without = {module for module in without if not module.startswith("groupcoord.spark.data_sources.")}

    assert without == {"groupcoord.spark"}


@pytest.mark.parametrize(("part", "lazy"), sorted(LAZY_ONLY))
def test_the_codec_is_loaded_on_demand(part: str, lazy: str) -> None:
    """Lazy imports of the table are not at the top of the file."""
    for source in package_sources():
        if part_of(source.module) == part:
            for node in source.tree.body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    assert not any(module.startswith(f"groupcoord.{lazy}") for module in imported_modules([node]))


def test_the_core_does_no_io() -> None:
    """The core reads no clock, draws no random number, logs nothing and touches neither files nor sockets."""
    forbidden = {"asyncio", "datetime", "io", "logging", "os", "pathlib", "random", "secrets", "socket", "threading"}
    forbidden |= {"time", "select", "subprocess"}
    for source in package_sources():
        if part_of(source.module) == "core":
            found = {module.split(".")[0] for module in source.imports} & forbidden

            assert not found, f"{source.name} imports {found}"


def test_no_files_import_each_other() -> None:
    """No file reaches itself through what it imports, be it inside a function or, across folders, for types alone."""
    found = circles(import_graph())

    assert not found, "; ".join(", ".join(sorted(circle)) for circle in found)


@pytest.mark.parametrize("part", LAYERED)
def test_sub_packages_are_layers(part: str) -> None:
    prefix = f"groupcoord.{part}."
    graph: dict[str, set[str]] = {}
    for module, imported in import_graph().items():
        if module.startswith(prefix):
            names = {name.removeprefix(prefix).split(".")[0] for name in imported if name.startswith(prefix)}
            package = module.removeprefix(prefix).split(".")[0]
            graph.setdefault(package, set()).update(names - {package})

    assert not circles(graph)


def test_the_table_names_only_what_there_can_be() -> None:
    """All parts that a line of the table allows have a line."""
    for part, allowed in MAY_IMPORT.items():
        for name in allowed:
            assert name == EVERYTHING or any(is_allowed(known, (name, name.split(".")[0])) for known in MAY_IMPORT), (
                f"{part} may import {name}"
            )


BASE_PROGRAM = """
import sys

ALLOWED = {"attr", "attrs", "sortedcontainers", "groupcoord"}

class OnlyBase:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} is not part of the base install", name=name)

sys.meta_path.insert(0, OnlyBase())
import groupcoord
from groupcoord import Config, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.storage.stores import SqliteLogStore
from groupcoord.messages import GroupToFetch, OffsetCommit, OffsetFetch, OffsetToCommit, TopicToCommit

for store in (MemoryLogStore(), SqliteLogStore(sys.argv[1])):
    coordinator = GroupCoordinator(clock=ManualClock(), log_store=store)
    coordinator.load_all()
    coordinator.call(OffsetCommit("g", (TopicToCommit("t", (OffsetToCommit(0, 42),)),)))
    (group,) = coordinator.call(OffsetFetch((GroupToFetch("g"),))).groups
    assert group.topics[0].partitions[0].committed_offset == 42
loaded = sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - ALLOWED)
print([name for name in loaded if not name.startswith("_")])
"""


def test_the_base_install_needs_two_packages(tmp_path: Path) -> None:
    """With attrs and sortedcontainers alone, a coordinator works, in memory and over SQLite."""
    done = subprocess.run(
        [sys.executable, "-c", BASE_PROGRAM, str(tmp_path / "groups.sqlite")],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0, done.stderr
    assert not {"kio", "crc32c", "typer", "hypothesis", "pyspark"} & set(done.stdout.split("'"))


def test_exploration_and_the_museum_need_no_hypothesis() -> None:
    modules = "import groupcoord.testing.exploring.exploration, groupcoord.testing.museum.hunting"
    program = f"import sys; sys.modules['hypothesis'] = None; {modules}"
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


MODULES_OF_THE_COORDINATOR_MAX = 40


def test_the_coordinator_is_light_until_it_is_made() -> None:
    """Importing ``GroupCoordinator`` loads neither the handlers of group types nor the copying of coordinators."""
    program = "import sys, groupcoord; groupcoord.GroupCoordinator; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("groupcoord")}

    assert len(loaded) <= MODULES_OF_THE_COORDINATOR_MAX
    assert not [name for name in loaded if name.endswith((".kind", ".heartbeat", ".copies", ".request_router"))]


NOT_AT_THE_START = frozenset(
    {
        "hypothesis",  # kio imports it where it is installed
        "numpy",
        "prometheus_client",
        "pydantic",  # typer from 0.29 on imports it
        "pyspark",
        "rich",
        "groupcoord.testing.faults",
        "groupcoord.analysis.fold.history",
        "groupcoord.analysis.live",
        "groupcoord.member",
        "groupcoord.sim",
        "groupcoord.testing",
    }
)
"""What ``groupcoord serve`` has not imported when it begins to listen, or parts of which."""

SERVER_PROGRAM = """
import sys

class Telling:
    def find_spec(self, name, path=None, target=None):
        print(name, flush=True)

sys.meta_path.insert(0, Telling())
from groupcoord.cli import main

main()
"""

LATER_PROGRAM = """
import asyncio, sys
from groupcoord.host.process import import_modules_of_requests

asyncio.run(import_modules_of_requests())
print(*sys.modules)
"""

API_VERSIONS_REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def schemas(names: list[str]) -> set[str]:
    """Return the APIs whose schemas are among module names."""
    return {name.split(".")[2] for name in names if name.startswith("kio.schema.")}


def test_the_server_starts_with_little() -> None:
    """It loads no code of other commands, and for requests only the schemas that clients need."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER_PROGRAM, "serve", "--port", "0", "--topic", "orders:1"],
        stdout=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert server.stdout is not None
    with server:
        start = []
        while " listening on " not in (line := server.stdout.readline().strip()):
            assert line, "it ended"
            start.append(line)
        port = int(line.split(" (")[0].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(API_VERSIONS_REQUEST)
            answer = client.recv(4)
        server.terminate()
        later = server.communicate(timeout=30)[0].split()
    assert answer
    assert server.returncode == 0
    assert not [name for name in start if any(f"{name}.".startswith(f"{part}.") for part in NOT_AT_THE_START)]
    assert {name for name in start if name.startswith("groupcoord.cli.")} == {
        "groupcoord.cli.interrupts",
        "groupcoord.cli.messages",
        "groupcoord.cli.options",
        "groupcoord.cli.serve",
    }
    modules = subprocess.run([sys.executable, "-c", LATER_PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    assert schemas(later) - schemas(modules.stdout.split()) == {"api_versions"}


FOREIGN = {
    (one, other) for one in TYPES_OF_GROUPS for other in TYPES_OF_GROUPS if one != other and other != "groups.classic"
}
"""Pairs of types of which the first must not know the second."""


def layer_of(module: str) -> int:
    """Return the layer of a module, by its name below ``groupcoord.core``; -1 for packages and what is in none."""
    named = {name: rank for rank, names in enumerate(CORE_LAYERS) for name in names}
    return named[max((n for n in named if is_allowed(module, (n,))), key=len)] if layered(module) else -1


def layered(module: str) -> bool:
    """Return whether a module is in one of the layers."""
    return any(is_allowed(module, names) for names in CORE_LAYERS)


def upward_imports(source: Source) -> Iterator[str]:
    """Yield what a module of the core imports from a layer above its own, or from another type of groups."""
    name = source.module.removeprefix("groupcoord.core.")
    if not source.module.startswith("groupcoord.core.") or source.path.name == "__init__.py":
        return
    if not layered(name):
        yield f"{name} is new: give it a place in CORE_LAYERS"
        return
    kind = next((each for each in TYPES_OF_GROUPS if is_allowed(name, (each,))), None)
    for module in inner_imports(source):
        imported = module.removeprefix("core.")
        if module.startswith("core.") and layer_of(imported) > layer_of(name):
            yield f"must not import {module}, which is above it"
        elif module.startswith("core.groups.") and layer_of(imported) > 0:
            other = next((each for each in TYPES_OF_GROUPS if is_allowed(imported, (each,))), None)
            if other is not None and (name.startswith("groups.base.") or (kind, other) in FOREIGN):
                yield f"must not import {module}, another type of groups"


def test_the_core_imports_downwards() -> None:
    """Nothing in the core imports upwards: groups.base imports no type of groups, and records no handler."""
    check_sources(package_sources(), upward_imports)
