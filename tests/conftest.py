"""What all tests share: random ones make the same choices each time, so that a change alone can break them.

Nor does it matter how long an example takes, which depends on what else the machine does. Who only wants to know
whether something fails takes the profile ``unshrunk``.

The rest saves time: a third of what the workers do before the first test, and half of what it takes to start a server.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from typing import Any

import pytest
from _pytest.mark.expression import Expression
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadFileScheduling

from .samples import Sample, sample_random_tests
from .tables import Choice

LONG = ("spark", "crash", "attack", "clients", "host/test_serve", "examples", "laws", "sim", "docs", "bench", "member")
"""What takes long comes first, so that no worker is left with it alone at the end; the longest begins."""

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("chance", derandomize=False, deadline=None)
settings.register_profile("unshrunk", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("steady")

# Hypothesis would read all modules that are loaded for numbers and words to try: seconds in each worker, and then
# what is tried depends on which files of tests are run beside. No setting, profile or hook of Hypothesis 6.170 turns
# that off (asked for in HypothesisWorks/hypothesis#4627), so this is a patch of what is private there.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest FILE --case PART``: of the tables that are one test each, try some cases alone; and ``--whole``."""
    parser.addoption("--case", default="", metavar="PART", help="of tables, try the cases with this in their names")
    parser.addoption("--whole", action="store_true", help="try everything, where only a sample is tried by default")


def chooses_ci(config: pytest.Config) -> bool:
    """Tell whether ``-m`` chooses what is marked ``ci``."""
    chosen = config.getoption("markexpr")
    return not chosen or Expression.compile(chosen).evaluate(lambda name, **_: name == "ci")


def pytest_configure(config: pytest.Config) -> None:
    """Take signals as in the foreground, and keep bytecode, where none may lie beside the sources, in a folder.

    Background jobs of a shell ignore SIGINT, and those of nohup SIGHUP: so would all processes that tests interrupt.
    Without bytecode each of these hundreds of processes would compile all that it imports.
    """
    Choice.part = config.getoption("--case")
    Sample.is_whole = config.getoption("--whole") or bool(Choice.part) or chooses_ci(config)
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="bytecode-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder.name


class FilesAndSpark(LoadFileScheduling):
    """All tests of a file run in one worker, and all with Spark: a second Java would have to warm up, too."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Say which tests go together to a worker."""
    return FilesAndSpark(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes long first, and choose with what is marked ``ci`` all that is only sampled elsewhere."""
    sample_random_tests(items)
    for item in items:
        if chooses_ci(config) and item.get_closest_marker("sampled"):
            item.add_marker("ci")
    items.sort(key=lambda item: next((n for n, room in enumerate(LONG) if item.nodeid.startswith(f"tests/{room}")), 99))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage, and leave what there is then out of what is looked through later.

    There are eighteen thousand tests, and conversations besides, which all stay until the end: a whole collection of
    them takes three seconds. A test that unfreezes objects freezes them again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
