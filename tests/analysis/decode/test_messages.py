"""Keys and values from anywhere: what is known of offsets that are missing among them."""

from __future__ import annotations

import pyarrow as pa

from groupcoord.analysis.decode.records import accounts_of_messages, rows_of_messages


def test_a_gap_says_nothing_of_what_lies_behind_it() -> None:
    """Each log partition is complete from behind its last gap on, in whatever order the messages come."""
    places = [(1, 8), (2, 0), (1, 5), (1, 7), (2, 1), (1, 9)]
    messages = pa.RecordBatch.from_pydict(
        {
            "key": [b"k"] * len(places),
            "value": [None] * len(places),
            "partition": pa.array([partition for partition, _ in places], pa.int32()),
            "offset": pa.array([offset for _, offset in places], pa.int64()),
            "timestamp": pa.array([0] * len(places), pa.int64()),
        }
    )
    accounts = accounts_of_messages(rows_of_messages(messages)).to_pylist()

    found = [(row["kind"], row["log_partition"], row["log_offset"], row["end_offset"]) for row in accounts]
    assert found == [("read", 1, 5, 10), ("read", 2, 0, 2)]
    assert [row["complete_from"] for row in accounts] == [7, 0]
