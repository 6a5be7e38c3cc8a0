"""``python -m tests.attack.stepped_clock``: groupcoord with a wall clock that is off by as many seconds as a file says.

Nothing else is imported here: what a server doesn't need must not be there when its first client waits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STEPS_FILE = "GROUPCOORD_ATTACK_CLOCK"
"""The variable that names the file."""


def read_step(path: Path) -> float:
    """Return how many seconds a file says."""
    return float(path.read_text() or 0)


def main() -> None:
    """Run the words of the command line, as the command itself does."""
    path = Path(os.environ[STEPS_FILE])
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + read_step(path)
    time.time_ns = lambda: now_ns() + int(read_step(path) * 1e9)
    from groupcoord.cli import main as groupcoord_main

    groupcoord_main()


if __name__ == "__main__":
    main()
