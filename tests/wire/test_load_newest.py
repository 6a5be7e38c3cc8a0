"""Getting ready before the first request."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from groupcoord.wire import decode_request, load_newest
from groupcoord.wire.registry import APIS
steps = list(load_newest())
loaded = set(sys.modules)
heartbeat = bytes.fromhex("000c0004 00000007 0001 63 00 0267 00000001 026d 00 00")
join = bytes.fromhex("000b0009 00000007 0001 63 00 0267 00002710 00002710 01 00 02 78 01 00 00")
for frame in (heartbeat, join):
    decode_request(frame, "/127.0.0.1")
print(len(steps) == len(APIS), sorted(set(sys.modules) - loaded))
"""


def test_nothing_is_left_for_the_first_request() -> None:
    """There is a step for each API, and afterwards requests of the newest versions load nothing more."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"
