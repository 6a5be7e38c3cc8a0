"""The plugin does nothing for who does not ask, and says what is wrong for who does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytest_runs import WITHOUT_HYPOTHESIS, run_pytest


def run_test(tmp_path: Path, test: str, *options: str) -> tuple[int, str]:
    """Run a file of tests in a pytest of its own, with all plugins but that of Hypothesis, and no settings of ours."""
    path = tmp_path / "test_it.py"
    path.write_text(test, "utf-8")
    return run_pytest(path, *WITHOUT_HYPOTHESIS, *options, cwd=tmp_path)


def test_who_does_not_ask_pays_little(tmp_path: Path) -> None:
    """A run without our fixtures loads neither Hypothesis nor the server for us, with warnings as errors."""
    test = """
import sys
def test_it():
    ours = sorted(name for name in sys.modules if name.split(".")[0] == "groupcoord")
    assert ours == ["groupcoord", "groupcoord.testing", "groupcoord.testing.pytest_plugin"]
    assert not [name for name in sys.modules if name.split(".")[0] in ("kio", "hypothesis", "asyncio", "crc32c")]
"""
    status, output = run_test(tmp_path, test, "-W", "error", "-p", "no:xdist")

    assert status == 0, output


def test_the_server_is_imported_without_assertion_rewriting(tmp_path: Path) -> None:
    """pytest compiles the plugin's own modules alone anew, not those of the server; the user's test is rewritten."""
    test = """
import sys
from _pytest.assertion.rewrite import AssertionRewritingHook
def test_it(groupcoord_server):
    loaders = {name: getattr(module, "__loader__", None) for name, module in sys.modules.items()}
    rewritten = [name for name, loader in loaders.items() if isinstance(loader, AssertionRewritingHook)]
    ours = {name for name in rewritten if name.startswith("groupcoord")}
    assert __name__ in rewritten
    assert ours <= {"groupcoord", "groupcoord.testing", "groupcoord.testing.pytest_plugin"}
"""
    status, output = run_test(tmp_path, test, "-W", "error")

    assert status == 0, output


def test_the_marker_is_known(tmp_path: Path) -> None:
    """Strict markers accept ours, and ``--markers`` describes it."""
    test = "import pytest\n@pytest.mark.groupcoord_server(topics={'t': 1})\ndef test_it(groupcoord_server): pass\n"

    assert run_test(tmp_path, test, "--strict-markers", "-W", "error")[0] == 0
    assert "groupcoord_server(topics=None" in run_test(tmp_path, test, "--markers")[1]


def test_a_wrong_option_is_told(tmp_path: Path) -> None:
    """An option that the marker does not have makes the test fail with the list of those that it has."""
    test = "import pytest\n@pytest.mark.groupcoord_server(topic={'t': 1})\ndef test_it(groupcoord_server): pass\n"
    status, output = run_test(tmp_path, test)

    assert status == 1
    assert "takes topics, settings, data_dir, clock, nodes, users, tls, advertised_port; it got topic" in output


def test_without_the_extra_the_fixture_says_what_to_install(tmp_path: Path) -> None:
    """Where the wire codec is missing, the fixture names the command that brings it."""
    test = "import sys\nsys.modules['kio'] = None\ndef test_it(groupcoord_server): pass\n"
    status, output = run_test(tmp_path, test)

    assert status == 1
    assert "pip install 'groupcoord[serve]'" in output


def test_a_server_of_a_failed_test_is_stopped(tmp_path: Path) -> None:
    """A test that fails leaves no server behind for the next one."""
    test = """
import threading
def test_one(groupcoord_server): assert False
def test_two(): assert not [t for t in threading.enumerate() if t.name == "groupcoord-server"]
"""
    status, output = run_test(tmp_path, test)

    assert status == 1
    assert "1 failed, 1 passed" in output


def test_a_failed_test_shows_what_its_servers_saw(tmp_path: Path) -> None:
    """A failure has a section for each server, those of the factory and of the session too; other tests have none."""
    test = """
def test_one(groupcoord_server, groupcoord_server_factory, groupcoord_session_server):
    groupcoord_server_factory()
    assert False
def test_two(groupcoord_server): pass
def test_three(): assert False
"""
    status, output = run_test(tmp_path, test)

    assert status == 1
    assert "2 failed, 1 passed" in output
    assert output.count("groupcoord server 127.0.0.1:") == 3
    assert output.count("no groups\nno requests\n") == 3


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
