"""Names of the files in a log directory, Kafka's and our own."""

from __future__ import annotations

import re

SEGMENT_SUFFIX = ".log"
SWAP_SUFFIX = ".log.swap"
OTHER_FILES = re.compile(
    r".*\.(?:index|timeindex|txnindex|snapshot|checkpoint|metadata)|.*-checkpoint|meta\.properties"
)
OFFSETS_FOLDER = re.compile(r"__consumer_offsets-(\d{1,10})")
PARTITION_FOLDER = re.compile(r".+-(\d{1,10})(?:\.[^.]+)?")
