"""The examples run as they stand, and print what their readers are promised."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.analysis.fold.history.broker_log import unpack_broker_log
from tests.clients.fleet import PARTITION_COUNT, TOPIC, open_server
from tests.pytest_runs import WITHOUT_HYPOTHESIS, run_pytest
from tests.samples import portion, sampled

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 60
SERVICE_TIMEOUT_S = 600
SPARK_TIMEOUT_S = 300


def run(*words: str | Path, cwd: Path) -> list[str]:
    """Run Python with these arguments and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
    )

    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_embed_in_30_lines(tmp_path: Path) -> None:
    """Three workers share five rooms among them, and exactly one of them leads."""
    lines = run(EXAMPLES / "embed_in_30_lines.py", cwd=tmp_path)

    matches = [re.fullmatch(r"(\w+) (leads|follows) and cleans: (.+) \(heartbeat: error 0\)", line) for line in lines]
    assert all(matches), lines
    assert sorted(match[1] for match in matches if match) == ["Ann", "Ben", "Cleo"]
    assert sorted(match[2] for match in matches if match) == ["follows", "follows", "leads"]
    rooms = sorted(room for match in matches if match for room in match[3].split())
    assert rooms == ["attic", "bathroom", "cellar", "hall", "kitchen"]


def test_the_embedding_takes_30_lines() -> None:
    """The host of the first example has as few lines as its name promises, imports included."""
    text = (EXAMPLES / "embed_in_30_lines.py").read_text("utf-8")
    host = text.partition("# -----")[0].rpartition('"""')[2]
    code = [line for line in host.splitlines() if line.strip() and not line.lstrip().startswith("#")]

    assert len(code) <= 30


def test_sqlite_log_store(tmp_path: Path) -> None:
    lines = run(EXAMPLES / "sqlite_log_store.py", tmp_path / "groups.sqlite", cwd=tmp_path)

    assert lines == [
        "before: generation 1, assignment 'orders 0 1', offsets 42 and 1337",
        "after: Stable, worker has 'orders 0 1'",
        "after: orders-0 at 42",
        "after: orders-1 at 1337 half way",
    ]


def test_asyncio_service(tmp_path: Path) -> None:
    """One worker crashes, the others take its shards over, and every item is done; the crashed one's last one twice."""
    lines = run(EXAMPLES / "asyncio_service.py", cwd=tmp_path)

    crash = next(i for i, line in enumerate(lines) if line.startswith("Ben crashes"))
    assert any("Ben has shards" in line for line in lines[:crash])
    assert not any("Ben has shards" in line for line in lines[crash:])
    assert sum("has shards" in line for line in lines[crash:]) >= 2
    done = re.fullmatch(r"48 of 48 items done, (\d+) of them twice", lines[-1])
    assert done is not None, lines
    assert int(done[1]) >= 1


def test_virtual_clock_test_passes(tmp_path: Path) -> None:
    status, output = run_pytest(EXAMPLES / "virtual_clock_test.py", cwd=tmp_path)

    assert status == 0, output
    assert output.splitlines()[-1].startswith("3 passed in ")


@pytest.mark.ci
def test_virtual_clock_test_tells_how_long_it_took(tmp_path: Path) -> None:
    """Run as a program, it prints a week and the milliseconds that it took: below a second."""
    lines = run(EXAMPLES / "virtual_clock_test.py", cwd=tmp_path)

    week = re.search(r"7 days in ([0-9.]+) ms", lines[0])
    assert week is not None, lines
    assert float(week[1]) < 1000


@pytest.mark.ci
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_asyncio_member(tmp_path: Path, protocol: str) -> None:
    """It joins, gets every partition, commits, and leaves when interrupted."""
    with open_server(tmp_path) as server:
        settings = ("--set", "auto.commit.interval.ms=300", "--set", f"group.protocol={protocol}")
        words = [server.bootstrap, "example", TOPIC, *settings]
        process = subprocess.Popen(
            [sys.executable, EXAMPLES / "asyncio_member.py", *words], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        assert process.stdout is not None
        overdue = threading.Timer(TIMEOUT_S, process.kill)
        overdue.start()
        lines: list[str] = []
        for line in process.stdout:
            if line.startswith("CommitCompleted(") and not any(told.startswith("CommitCompleted(") for told in lines):
                process.send_signal(signal.SIGINT)  # once: it commits again when it leaves
            lines.append(line.rstrip())
        overdue.cancel()
        assert process.wait(TIMEOUT_S) == 0, lines
        process.stdout.close()
    assert " ".join(["assigned", *(f"{TOPIC}-{number}" for number in range(PARTITION_COUNT))]) in lines
    assert lines[-1] == "Closed()"
    assert any("was_sent=True" in line for line in lines)


def test_the_host_of_a_member_is_short() -> None:
    """300 lines, the example's application included."""
    assert len((EXAMPLES / "asyncio_member.py").read_text("utf-8").splitlines()) <= 300


def test_rebalance_causes(tmp_path: Path) -> None:
    """Each rebalance in a real broker's log has its cause, and causes are counted."""
    unpack_broker_log(tmp_path)
    *lines, totals = run(EXAMPLES / "rebalance_causes.py", tmp_path, cwd=tmp_path)

    assert totals == (
        "join 30, leave 17, metadata change 3, static replace 3, leader rejoin 2, expiry or leave 2, session expiry 2"
    )
    assert len(lines) == 59
    left = r"churn-java-coop 5 -> 6: leave \(100%\), m3 .* left: known to be there 4011 ms before, less than"
    assert any(re.match(left, line) for line in lines)


RUN_BY = (
    Path(__file__),
    ROOT / "tests" / "storage" / "sql" / "replicas.py",
    ROOT / "tests" / "cluster" / "chaos" / "settings.py",
)
"""The files that run examples: those behind the first have a database for them."""


def test_every_example_is_run() -> None:
    runners = "".join(path.read_text("utf-8") for path in RUN_BY)
    for path in EXAMPLES.glob("*.py"):
        assert path.name in runners, f"{path.name} isn't run"
        assert f"examples/{path.name}" in path.read_text("utf-8").split('"""')[1], f"{path.name} doesn't say how"


@pytest.mark.ci
def test_sqlite_log_store_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of the example keeps the contract, and random lives over it keep the laws."""
    memory = Path("/dev/shm")  # spares the disk hundreds of small databases, where there is such a folder
    if memory.is_dir():
        monkeypatch.setenv("TMPDIR", str(memory))
    status, output = run_pytest(EXAMPLES / "sqlite_log_store_test.py", cwd=tmp_path)

    assert status == 0, output
    assert output.splitlines()[-1].startswith("2 passed in ")


@pytest.mark.ci
@pytest.mark.parametrize(("name", "count"), [("aiokafka_service_test.py", 4), ("confluent_kafka_service_test.py", 5)])
def test_services_pass_their_tests(name: str, count: int, tmp_path: Path) -> None:
    """Services with real clients rebalance, commit, die and go on, in tests of the server's fixture."""
    status, output = run_pytest(EXAMPLES / name, *WITHOUT_HYPOTHESIS, cwd=tmp_path)

    assert status == 0, output
    assert output.splitlines()[-1].startswith(f"{count} passed in ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "folder", "words"),
    [("go", "franz_go_service", ("test", "-count=1", "./...")), ("mvn", "java_service", ("-q", "-B", "test"))],
)
def test_services_in_other_languages_pass_their_tests(
    program: str, folder: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    """In Go, and in Java with Kafka's own client on three nodes that fail; needs the tools and their repositories."""
    found = shutil.which(program)
    if found is None or (program == "mvn" and shutil.which("javac") is None):
        pytest.skip(f"there is no {program}, or no Java")
    copy = shutil.copytree(EXAMPLES / folder, tmp_path / folder)
    environment = {**os.environ, "GROUPCOORD": str(Path(sys.executable).with_name("groupcoord"))}
    done = subprocess.run(
        [found, *words], cwd=copy, env=environment, capture_output=True, text=True, timeout=SERVICE_TIMEOUT_S
    )

    assert done.returncode == 0, done.stdout + done.stderr


@sampled
@pytest.mark.parametrize(
    "name",
    [
        *portion(("bad_night", "exactly_once", "mixed_group", "rolling_upgrade")),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("both_protocols", "rolling_restart", "standbys", "ways_to_assign")
        ),
    ],
)
def test_scenarios(name: str, tmp_path: Path) -> None:
    """The simulator runs each scenario, keeps every law, and writes a page."""
    page = tmp_path / "report.html"
    scenario = EXAMPLES / "scenarios" / f"{name}.toml"
    command = "from groupcoord.cli import main; main()"
    lines = run("-c", command, "simulate", scenario, "--seeds", "1", "--html", page, cwd=tmp_path)

    assert "every law held" in lines[-1]
    assert "<svg" in page.read_text("utf-8")


@pytest.mark.ci
def test_the_notebook_runs(tmp_path: Path) -> None:
    """Its cells run one after the other where nothing was registered, and show groups, causes and offsets of a log."""
    notebook = json.loads((EXAMPLES / "why_groups_rebalance.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = tmp_path / "notebook.py"
    program.write_text("\n\n".join(cells), "utf-8")
    logs = unpack_broker_log(tmp_path / "logs")
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "KAFKA_LOGS": str(logs)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT_S,
    )

    assert done.returncode == 0, done.stderr
    for told in ("expiry or leave", "rebalance storm", "Stable", "committed_offset"):
        assert told in done.stdout, told
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
