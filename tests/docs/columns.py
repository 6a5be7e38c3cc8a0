"""Tables of columns on the pages about analyses, made from the columns that the code declares.

    python -m tests.docs.columns

writes them anew: below a heading the first Markdown table whose first column is called "column".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from groupcoord.analysis.decode import group_tables
from groupcoord.analysis.decode import schema as tables
from groupcoord.analysis.decode.schema import COLUMNS, Columns

from .markdown import DOCS

SPARK_TYPES = {
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
}
WITH_TYPES: Mapping[str, Mapping[str, Columns]] = {
    "spark.md": {
        "Input": tables.MESSAGES,
        "Records": COLUMNS,
        "commits": tables.COMMITS,
        "current_offsets": tables.CURRENT_OFFSETS,
        "lag": tables.LAG,
        "End offsets": tables.LIVE_END_OFFSETS,
        "Record times": tables.RECORD_TIMES,
        "partition_load": tables.PARTITION_LOAD,
        "corrupt": tables.CORRUPT,
        "read_counts": tables.READ_COUNTS,
    }
}
"""By page and heading, the columns of simple types."""

WITHOUT_TYPES: Mapping[str, Mapping[str, Columns]] = {
    "spark.md": {
        name: getattr(group_tables, name.upper())
        for name in (
            *("groups", "generations", "members", "rebalances", "epochs", "memberships", "moves", "revocations"),
            *("anomalies", "offset_expiry", "stale_groups", "share_partitions"),
        )
    }
    | {"verify": group_tables.DIFFERENCES}
}
"""Likewise, with columns of structures."""


def with_tables(page: str, text: str) -> str:
    """Return the text of a page with its tables as the code declares them."""
    for heading, columns in WITH_TYPES.get(page, {}).items():
        rows = [f"| {one.name} | {SPARK_TYPES[one.type]} | {one.comment} |" for one in columns]
        text = _replaced(text, heading, "\n".join(["| column | type | |", "|---|---|---|", *rows]))
    for heading, columns in WITHOUT_TYPES.get(page, {}).items():
        rows = [f"| {one.name} | {one.comment} |" for one in columns]
        text = _replaced(text, heading, "\n".join(["| column | |", "|---|---|", *rows]))
    return text


def _replaced(text: str, heading: str, table: str) -> str:
    pattern = re.compile(rf"(^#+ {re.escape(heading)}\n(?:(?!#).*\n)*?)\| column \|.*\n(?:\|.*\n)+", re.MULTILINE)
    found, count = pattern.subn(lambda match: f"{match[1]}{table}\n", text)
    assert count == 1, f"{count} tables of columns below {heading!r}"
    return found


if __name__ == "__main__":
    for page in WITH_TYPES:
        path = DOCS / page
        path.write_text(with_tables(page, path.read_text("utf-8")), "utf-8")
