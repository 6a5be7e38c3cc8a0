"""Distributions: sdist and wheel are reproducible, complete and small, and the wheel passes the README's examples."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from groupcoord.config.files import data_files

from .sources import ROOT

pytestmark = pytest.mark.ci

WHEEL_BYTES_MAX = 1_600_000
DATA_FOLDERS = ("groupcoord/conformance/transcripts", "groupcoord/testing/museum/exhibits")
TIMEOUT_S = 300
STAMP = "1767225600"  # 2026-01-01


class Distributions(NamedTuple):
    """The files of one build."""

    sdist: Path
    wheel: Path


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0, done.stdout
    return done.stdout


def build(source: Path, out: Path) -> Distributions:
    """Build the sdist of a folder, and from it the wheel, with the installed build backend."""
    run(sys.executable, "-m", "build", "--no-isolation", "-o", out, source, cwd=out.parent, SOURCE_DATE_EPOCH=STAMP)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Distributions(sdist, wheel)


def unpack(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The distributions of this checkout."""
    return build(ROOT, tmp_path_factory.mktemp("built"))


def test_builds_are_reproducible(built: Distributions, tmp_path: Path) -> None:
    """Building the unpacked sdist, with other file times, gives the same bytes."""
    top = unpack(built.sdist, tmp_path / "unpacked")
    for path in top.rglob("*"):
        os.utime(path, (0, 0))
    (tmp_path / "again").mkdir()
    again = build(top, tmp_path / "again")

    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()


def test_the_wheel_is_small(built: Distributions, tmp_path: Path) -> None:
    """The wheel has no more bytes than the bound, and the values of each data folder in an archive."""
    with zipfile.ZipFile(built.wheel) as wheel:
        wheel.extractall(tmp_path)
    others = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("groupcoord/**/*.*") if path.suffix != ".py"}

    pages = {str(path.relative_to(ROOT)) for kind in ("css", "jinja") for path in ROOT.glob(f"groupcoord/**/*.{kind}")}
    assert others == {"groupcoord/py.typed", *pages, *(f"{folder}.json.xz" for folder in DATA_FOLDERS)}
    for folder in DATA_FOLDERS:
        packed, files = ([value for _, value in data_files(top / folder)] for top in (tmp_path, ROOT))
        assert packed == files
    assert built.wheel.stat().st_size <= WHEEL_BYTES_MAX


def test_the_sdist_is_whole(built: Distributions, tmp_path: Path) -> None:
    """The sdist has every file that git tracks."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    top = unpack(built.sdist, tmp_path)
    tracked = set(run("git", "ls-files", cwd=ROOT).splitlines())
    packed = {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}

    assert sorted(tracked - packed) == []


def test_an_index_takes_them(built: Distributions) -> None:
    """The metadata and the README's markup are valid."""
    run(sys.executable, "-m", "twine", "check", "--strict", *built, cwd=built.wheel.parent)


def test_the_wheel_passes_the_readme(built: Distributions, tmp_path: Path) -> None:
    """Installed in a new environment, the wheel passes the tests of the README from an sdist without its package."""
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    (packages,) = venv.glob("lib/python*/site-packages")
    # Dependencies come from this environment. Its .pth files, which name the checkout, do not count there.
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(others), "utf-8")
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", built.wheel, cwd=tmp_path)
    top = unpack(built.sdist, tmp_path / "unpacked")
    shutil.rmtree(top / "groupcoord")

    found = run(python, "-c", "import groupcoord; print(groupcoord.__file__)", cwd=top)
    assert Path(found.strip()).is_relative_to(packages)
    assert "passed" in run(python, "-m", "pytest", "tests/docs/test_readme.py", "-m", "", "-n", "0", cwd=top)
