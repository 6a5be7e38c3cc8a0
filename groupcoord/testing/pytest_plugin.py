"""pytest fixtures, found through an entry point: a broker for real Kafka clients in this process.

def test_my_consumer(groupcoord_server):
    consumer = KafkaConsumer(bootstrap_servers=groupcoord_server.bootstrap, ...)

Tests without these fixtures import nothing of it.
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
SESSION_SERVER = pytest.StashKey["ServerThread"]()
FIRST_REQUEST = pytest.StashKey[int]()
"""Number of the last request before the test."""

OPTIONS = ("topics", "settings", "data_dir", "clock", "nodes", "users", "tls", "advertised_port")


class UnrewrittenModules:
    """Import finder for the modules of this package that bypasses pytest's assertion rewriting.

    pytest rewrites every module of a distribution that has a ``pytest11`` entry point. Without writable bytecode
    (PYTHONDONTWRITEBYTECODE, a read-only site-packages) it compiles all the server's modules in every run.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path) if name.startswith("groupcoord.") else None


sys.meta_path.insert(0, UnrewrittenModules)


def pytest_configure(config: pytest.Config) -> None:
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
    """Server of one test; the marker ``@pytest.mark.groupcoord_server(...)`` passes arguments of ``ServerThread``."""
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
    """Function that starts servers with arguments of ``ServerThread``; all stop after the test."""
    with ExitStack() as stack:
        servers = request.node.stash.setdefault(SERVERS, [])

        def start(**options: Any) -> ServerThread:
            server = _start(stack, options)
            servers.append(server)
            return server

        yield start


@pytest.fixture(scope="session")
def groupcoord_session_options() -> dict[str, Any]:
    """Arguments of ``groupcoord_session_server``; override this fixture to set them."""
    return {}


@pytest.fixture(scope="session")
def groupcoord_session_server(
    groupcoord_session_options: dict[str, Any], pytestconfig: pytest.Config
) -> Iterator[ServerThread]:
    """One server for the run, or for each pytest-xdist worker; faults are cleared and nodes
    restarted after each test.
    """
    with ExitStack() as stack:
        server = pytestconfig.stash[SESSION_SERVER] = _start(stack, groupcoord_session_options)
        stack.callback(pytestconfig.stash.__delitem__, SESSION_SERVER)
        yield server


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    server = item.config.stash.get(SESSION_SERVER, None)
    if server is not None:
        item.stash[FIRST_REQUEST] = server.request_count


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    finally:
        server = item.config.stash.get(SESSION_SERVER, None)
        if server is not None:
            server.mend()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
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
