"""Configuration of the whole suite: Hypothesis profiles, seeds, options, the order of tests.

Random tests make the same choices in each run, so that only a change of the code breaks them.
``GROUPCOORD_SEED=random`` or a number draws others, under the profile ``chance``.
The profile ``unshrunk`` reports failures unshrunk. No profile has a deadline, since other work slows examples.

The rest saves time: a third of what the workers do before the first test, and half of what it takes to start a server.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.expression import Expression
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadFileScheduling

from .samples import IS_SEEDED, SEED, VARIABLE, Sample, sample_random_tests
from .tables import Choice

LONG = (
    *("spark", "docs/test_testing", "docs/test_site", "cluster/test_chaos", "house/test_builds", "examples", "exam"),
    *("crash", "attack", "clients", "host/test_serve", "laws", "sim", "docs", "house", "member"),
)
"""What takes long comes first, so that no worker is left with it alone at the end; the longest begins."""

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("chance", derandomize=False, deadline=None, database=None)
settings.register_profile("unshrunk", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("chance" if IS_SEEDED else "steady")

# Hypothesis would read all modules that are loaded for numbers and words to try: seconds in each worker, and then
# what is tried depends on which files of tests are run beside. No setting, profile or hook of Hypothesis 6.170 turns
# that off (asked for in HypothesisWorks/hypothesis#4627), so this is a patch of what is private there.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--case PART``, for some cases of the tables that are one test each, ``--rewrite`` and ``--whole``."""
    parser.addoption("--case", default="", metavar="PART", help="of tables, try the cases with this in their names")
    parser.addoption("--rewrite", action="store_true", help="write anew what scripts print, and the reference lists")
    parser.addoption("--whole", action="store_true", help="try everything, where only a sample is tried by default")


def chooses(config: pytest.Config, mark: str) -> bool:
    """Return whether ``-m`` selects tests with this mark alone."""
    chosen = config.getoption("markexpr")
    return not chosen or Expression.compile(chosen).evaluate(lambda name, **_: name == mark)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Apply options and the seed, restore default signal handlers, and keep bytecode in a temporary folder if need be.

    Background jobs of a shell ignore SIGINT, and those of nohup SIGHUP: so would all processes that tests interrupt.
    Without bytecode each of these hundreds of processes would compile all that it imports.
    """
    if IS_SEEDED and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(SEED)
    Choice.part = config.getoption("--case")
    asks_for_all = config.getoption("--whole") or bool(Choice.part)
    Sample.is_whole = asks_for_all or chooses(config, "ci")
    Sample.is_long = asks_for_all or chooses(config, "slow")
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="bytecode-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder.name


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed, which ``-q`` would drop from pytest's header."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if IS_SEEDED and reporter is not None and not hasattr(session.config, "workerinput"):
        reporter.write_line(f"{VARIABLE}={SEED}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the seed to the report of a failure."""
    report = yield
    if IS_SEEDED and report.failed:
        report.sections.append(("seed", f"repeat with {VARIABLE}={SEED}"))
    return report


class FilesAndRooms(LoadFileScheduling):
    """Scheduling by files, and by rooms where a second worker would start another JVM or parse all sources again."""

    def _split_scope(self, nodeid: str) -> str:
        rooms = (room for room in ("tests/spark/", "tests/house/") if nodeid.startswith(room))
        return next(rooms, super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Return the scheduler that groups tests by worker."""
    return FilesAndRooms(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long tests first; select tables with the tests marked ``ci``, and random tests with those marked ``slow``."""
    random_tests, chooses_ci, chooses_slow = sample_random_tests(items), chooses(config, "ci"), chooses(config, "slow")
    for item in random_tests if chooses_slow else ():
        item.add_marker("slow")
    for item in items if chooses_ci else ():
        if item.get_closest_marker("sampled"):
            item.add_marker("ci")
    items.sort(key=lambda item: next((n for n, room in enumerate(LONG) if item.nodeid.startswith(f"tests/{room}")), 99))


def import_backwards() -> None:
    """Import the test modules, the last first.

    Workers collect in one order at the same time, so each would compile everything. One that starts at the other end
    finds half of the bytecode written. An error is left to the collection.
    """
    for path in sorted(Path(__file__).parent.rglob("test_*.py"), reverse=True):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(Path(__file__).parents[1]).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests with the garbage collector off, and freeze what exists then, which stays until the end.

    A test that unfreezes objects freezes them again.
    """
    gc.disable()
    try:
        worker_id = getattr(session.config, "workerinput", {}).get("workerid", "")
        if worker_id.endswith(("1", "3")) and session.config.args == session.config.getini("testpaths"):
            import_backwards()
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
