"""Fixtures for pytest, found through an entry point: a server for real Kafka clients in this process.

def test_my_consumer(groupcoord_server):
    consumer = KafkaConsumer(bootstrap_servers=groupcoord_server.bootstrap, ...)

Nothing here is imported or done for tests that do not ask for a fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from groupcoord.testing.server import ServerThread

__tracebackhide__ = True

MARKER = "groupcoord_server"
SERVERS = pytest.StashKey[list["ServerThread"]]()
"""Where a test has the servers that its fixtures have started."""

SESSION_SERVER = pytest.StashKey["ServerThread"]()
"""Where a run has the server of the session, once somebody has asked for it."""

FIRST_REQUEST = pytest.StashKey[int]()
"""Where a test has the number of the last request that came before it."""

OPTIONS = ("topics", "settings", "data_dir", "clock", "nodes", "users", "tls", "advertised_port")


class UnrewrittenModules:
    """Import finder for the modules of this package that bypasses pytest's assertion rewriting.

    pytest rewrites every module of a distribution that has a ``pytest11`` entry point. Without writable bytecode
    (PYTHONDONTWRITEBYTECODE, a read-only site-packages) it compiles all 370 modules of the server in every run.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module of groupcoord as Python finds it; None for any other module."""
        return PathFinder.find_spec(name, path) if name.startswith("groupcoord.") else None


sys.meta_path.insert(0, UnrewrittenModules)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(topics=None, settings=None, data_dir=None, clock=None, nodes=1, users=None, tls=False, "
        "advertised_port=None): "
        "how the fixture groupcoord_server is to be started; data_dir=True takes a temporary directory",
    )


@pytest.fixture
def groupcoord_server(
    request: pytest.FixtureRequest, groupcoord_server_factory: Callable[..., ServerThread]
) -> ServerThread:
    """A server of the test's own; ``bootstrap`` is its address. ``@pytest.mark.groupcoord_server(...)`` has options."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        unknown = [name for name in marker.kwargs if name not in OPTIONS]
        if marker.args or unknown:
            found = ", ".join([*map(repr, marker.args), *unknown])
            pytest.fail(f"the marker {MARKER} takes {', '.join(OPTIONS)}; it got {found}", pytrace=False)
        options.update(marker.kwargs)
    if options.get("data_dir") is True:
        options["data_dir"] = request.getfixturevalue("tmp_path") / "groupcoord"
    return groupcoord_server_factory(**options)


@pytest.fixture
def groupcoord_server_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., ServerThread]]:
    """A function that starts servers, with the arguments of ``ServerThread``; all are stopped after the test."""
    with ExitStack() as stack:
        servers = request.node.stash.setdefault(SERVERS, [])

        def start(**options: Any) -> ServerThread:
            server = _start(stack, options)
            servers.append(server)
            return server

        yield start


@pytest.fixture(scope="session")
def groupcoord_session_options() -> dict[str, Any]:
    """The arguments of ``groupcoord_session_server``: none, unless a fixture of yours has this name."""
    return {}


@pytest.fixture(scope="session")
def groupcoord_session_server(
    groupcoord_session_options: dict[str, Any], pytestconfig: pytest.Config
) -> Iterator[ServerThread]:
    """One server for all tests that ask for it; with pytest-xdist, one in each worker.

    What goes wrong on purpose is about one test: after each, faults are cleared, and crashed nodes run again.
    """
    with ExitStack() as stack:
        server = pytestconfig.stash[SESSION_SERVER] = _start(stack, groupcoord_session_options)
        stack.callback(pytestconfig.stash.__delitem__, SESSION_SERVER)
        yield server


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note what has come to the session's server before a test."""
    server = item.config.stash.get(SESSION_SERVER, None)
    if server is not None:
        item.stash[FIRST_REQUEST] = server.request_count


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Let no fault of a test reach the next one on the session's server."""
    try:
        yield
    finally:
        server = item.config.stash.get(SESSION_SERVER, None)
        if server is not None:
            server.mend()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the servers of a test have seen to the report of its failure."""
    report = yield
    if report.failed and report.when != "teardown":
        shown = [(server, 0) for server in item.stash.get(SERVERS, ())]
        session_server = item.config.stash.get(SESSION_SERVER, None)
        if session_server is not None and session_server in getattr(item, "funcargs", {}).values():
            shown.append((session_server, item.stash.get(FIRST_REQUEST, 0)))
        for server, first in shown:
            report.sections.append((f"groupcoord server {server.bootstrap}", server.report(after=first)))
    return report


def _start(stack: ExitStack, options: dict[str, Any]) -> ServerThread:
    try:
        from groupcoord.testing.server import ServerThread
    except ModuleNotFoundError as error:
        pytest.fail(f"the fixture needs pip install 'groupcoord[serve]': {error}", pytrace=False)
    return stack.enter_context(ServerThread(**options))
