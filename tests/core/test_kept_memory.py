"""A server keeps the memory that it has freed: the system need not clear it again for the next batch."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """\
import resource
from groupcoord.core.fast_construct import keep_freed_memory
{keep}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(1_000_000)
before = faults()
for _ in range(100):
    bytearray(1_000_000), bytearray(1_000_000)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to tell another C library")
@pytest.mark.parametrize(("keep", "keeps"), [("keep_freed_memory()", True), ("", False)])
def test_freed_memory_is_used_again(keep: str, keeps: bool) -> None:
    """A buffer takes the pages of the one before it, which otherwise are given back and cleared each time."""
    done = subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], check=True, capture_output=True, text=True)
    assert (int(done.stdout) < 2_000) is keeps
