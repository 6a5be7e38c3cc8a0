"""``python -m tests.crash --kills 10000 --seed 7``: kill a server again and again, and see that it loses nothing."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.crash.harness import Harness

PROGRESS_S = 10.0
STEP = 25


def main() -> int:
    """Run with the options of the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="decides what clients do and when; random by default")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to keep everything; a temporary one by default"
    )
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"{options.kills} kills, seed {seed}", flush=True)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="groupcoord-crash-"))
    folder.mkdir(parents=True, exist_ok=True)
    harness = Harness(folder, seed)
    begin_s = last_s = time.monotonic()
    try:
        while harness.kill_count < options.kills:
            harness.run(min(STEP, options.kills - harness.kill_count))
            now_s = time.monotonic()
            if now_s - last_s >= PROGRESS_S or harness.kill_count == options.kills:
                last_s = now_s
                each_ms = 1000 * (now_s - begin_s) / harness.kill_count
                print(
                    f"{harness.kill_count} kills, {harness.answer_count} answers, nothing lost; {each_ms:.0f} ms each",
                    flush=True,
                )
    except Exception:
        traceback.print_exc()
        print(f"failed at kill {harness.kill_count} of seed {seed}; the data is in {folder}", file=sys.stderr)
        print(f"again: python -m tests.crash --kills {options.kills} --seed {seed}", file=sys.stderr)
        return 1
    finally:
        harness.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
