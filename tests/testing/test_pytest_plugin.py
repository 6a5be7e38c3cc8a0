"""The pytest plugin: no effect without its fixture, and clear errors with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytest_runs import WITHOUT_HYPOTHESIS, run_pytest


def run_test(tmp_path: Path, test: str, *options: str) -> tuple[int, str]:
    """Run a file of tests in a separate pytest, with all plugins but that of Hypothesis, and without our settings."""
    path = tmp_path / "test_it.py"
    path.write_text(test, "utf-8")
    return run_pytest(path, *WITHOUT_HYPOTHESIS, *options, cwd=tmp_path)


def test_who_does_not_ask_pays_little(tmp_path: Path) -> None:
    """A run without our fixtures loads neither Hypothesis nor the server for us, with warnings as errors."""
    test = """
import sys
def test_it():
    ours = sorted(name for name in sys.modules if name.split(".")[0] == "groupcoord")
    assert ours == ["groupcoord", "groupcoord.lazy", "groupcoord.testing", "groupcoord.testing.pytest_plugin"]
    assert not [name for name in sys.modules if name.split(".")[0] in ("kio", "hypothesis", "asyncio", "crc32c")]
"""
    status, output = run_test(tmp_path, test, "-W", "error", "-p", "no:xdist")

    assert status == 0, output


def test_without_the_extra_the_fixture_says_what_to_install(tmp_path: Path) -> None:
    """Without the wire codec, the fixture's error has the command that installs it."""
    test = "import sys\nsys.modules['kio'] = None\ndef test_it(groupcoord_server): pass\n"
    status, output = run_test(tmp_path, test)

    assert status == 1
    assert "pip install 'groupcoord[serve]'" in output


SERVERS = """
import sys
import threading
import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

@pytest.mark.groupcoord_server(topics={"t": 1})
def test_modules(groupcoord_server):
    loaders = {name: getattr(module, "__loader__", None) for name, module in sys.modules.items()}
    rewritten = [name for name, loader in loaders.items() if isinstance(loader, AssertionRewritingHook)]
    ours = {name for name in rewritten if name.startswith("groupcoord")}
    assert __name__ in rewritten
    assert ours <= {"groupcoord", "groupcoord.testing", "groupcoord.testing.pytest_plugin"}

def test_fails(groupcoord_server): assert False

def test_stopped(): assert not [t for t in threading.enumerate() if t.name == "groupcoord-server"]

@pytest.mark.groupcoord_server(topic={"t": 1})
def test_wrong_option(groupcoord_server): pass

def test_all_fixtures(groupcoord_server, groupcoord_server_factory, groupcoord_session_server):
    groupcoord_server_factory()
    assert False

def test_session(groupcoord_session_server): pass

def test_no_server(): assert False
"""


def test_servers_of_tests(tmp_path: Path) -> None:
    """The plugin's servers end with their tests, and show in a section of each failure what they saw.

    pytest rewrites assertions of the user's test, and of no module of the server. The marker is known to strict runs,
    and fails with the list of its options if one is unknown.
    """
    status, output = run_test(tmp_path, SERVERS, "-W", "error", "--strict-markers")

    assert status == 1
    assert "3 failed, 3 passed, 1 error" in output
    assert "takes topics, settings, data_dir, clock, nodes, users, tls, advertised_port; it got topic" in output
    assert output.count("groupcoord server 127.0.0.1:") == output.count("no groups\nno requests\n") == 1 + 3


def test_the_marker_is_described(pytestconfig: pytest.Config) -> None:
    assert [line for line in pytestconfig.getini("markers") if line.startswith("groupcoord_server(topics=None")]


@pytest.mark.ci
def test_each_worker_has_its_session_server(tmp_path: Path) -> None:
    """With pytest-xdist each worker has one server for all its tests, on its own port, with the session's options."""
    (tmp_path / "conftest.py").write_text(
        """
import pytest
@pytest.fixture(scope="session")
def groupcoord_session_options(): return {"topics": ["orders"]}
"""
    )
    test = """
import pytest
@pytest.mark.parametrize("number", range(6))
def test_it(groupcoord_session_server, worker_id, number):
    (record,) = groupcoord_session_server.produce("orders", ["x"])
    with open(f"{worker_id}.txt", "a") as file:
        print(groupcoord_session_server.port, record.offset, file=file)
"""
    status, output = run_test(tmp_path, test, "-n", "2", "--dist", "each", "-W", "error")

    assert status == 0, output
    workers = [[line.split() for line in path.read_text("utf-8").splitlines()] for path in tmp_path.glob("gw*.txt")]
    assert [[offset for _, offset in lines] for lines in workers] == [list("012345")] * 2
    assert len({port for lines in workers for port, _ in lines}) == 2


@pytest.mark.ci
def test_faults_of_a_test_do_not_reach_the_next(tmp_path: Path) -> None:
    """On the session's server rules, held appends and crashes end with their test, also one that fails; so in workers.

    What a function of the test raised is an error of that test.
    """
    test = """
import pytest
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit

def commit(broker):
    coordinator = broker.nodes.serving(broker.coordinator.partition_of("g"))
    return coordinator.call(OffsetCommit("g", (TopicToCommit("orders", (OffsetToCommit(0, 1),)),)))

@pytest.mark.parametrize("number", range(3))
def test_it_works(groupcoord_session_server, number):
    assert groupcoord_session_server.report().count("on purpose") == 0
    groupcoord_session_server.run(commit)
    groupcoord_session_server.assert_committed("g", {("orders", 0): 1})
    groupcoord_session_server.fail_next("Heartbeat", "NOT_COORDINATOR", times=5)
    groupcoord_session_server.hold_appends()
    groupcoord_session_server.crash(**({}, {"node": 1}, {"node": 2})[number])
    assert number == 0

def test_it_is_as_before(groupcoord_session_server):
    assert groupcoord_session_server.nodes == (1, 2)
    assert groupcoord_session_server.report().count("on purpose") == 0
    groupcoord_session_server.run(commit)
"""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n@pytest.fixture(scope='session')\n"
        "def groupcoord_session_options(): return {'topics': ['orders'], 'nodes': 2}\n"
    )
    status, output = run_test(tmp_path, test, "-W", "error", "-n", "2", "--dist", "each")

    assert status == 1
    assert "4 failed, 4 passed" in output, output
    assert "error" not in output.splitlines()[-1], output
    assert "on purpose: Heartbeat fails with NOT_COORDINATOR (met 0 of 5)" in output
