"""Sources of the suites: fetched from package registries by their ordinary clients, kept outside of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.suite import UnavailableError

LAST_LINES = 3


def default_cache() -> Path:
    """Return the default folder of sources and builds."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base is None and sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    return Path(base or Path.home() / ".cache") / "groupcoord" / "peers"


def need(*programs: str) -> None:
    """Check that programs are installed.

    Raises:
        UnavailableError: one isn't.
    """
    for program in programs:
        if shutil.which(program) is None:
            raise UnavailableError(f"there is no {program} here")


def run(words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a step of a build; return its stdout. Raises: UnavailableError: it failed. The message has its last lines of
    output.
    """
    done = subprocess.run(
        words, cwd=folder, env=os.environ | dict(environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-LAST_LINES:]
        raise UnavailableError(f"{' '.join(words[:3])} failed: {' / '.join(said)}")
    return done.stdout


def go_module(module: str, version: str, target: Path) -> None:
    """Copy the sources of a Go module to a folder, writable."""
    need("go")
    target.parent.mkdir(parents=True, exist_ok=True)
    told = json.loads(run(["go", "mod", "download", "-json", f"{module}@{version}"], target.parent))
    copy_writable(Path(told["Dir"]), target)


def crate(name: str, version: str, target: Path) -> None:
    """Copy the sources of a crate to a folder."""
    need("cargo")
    asking = target.parent / f"ask-{name}"
    (asking / "src").mkdir(parents=True, exist_ok=True)
    (asking / "src" / "lib.rs").write_text("")
    (asking / "Cargo.toml").write_text(
        f'[package]\nname = "ask"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{name} = "={version}"\n'
    )
    run(["cargo", "vendor", "--quiet", "vendor"], asking)
    copy_writable(asking / "vendor" / name, target)


def copy_writable(source: Path, target: Path) -> None:
    """Copy a tree whose files may be read-only."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
