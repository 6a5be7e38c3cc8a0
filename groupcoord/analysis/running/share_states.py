"""The table of share-partitions, which has a log of its own."""

from __future__ import annotations

from groupcoord.analysis.columns.errors import InputError
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.folding.share_states import share_partitions
from groupcoord.analysis.history.views import SHARE
from groupcoord.analysis.running.sources import Source
from groupcoord.analysis.tables import TableFiles


def write_share_partitions(source: Source, tables: FinishedTables, files: TableFiles) -> None:
    """Write what the log of share groups' states tells; nothing if there is none, or it may not be read.

    Args:
        source: of the groups' log, beside which it is looked for.
        tables: those that were written: members tell what topics are called.
        files: where the table goes.
    """
    try:
        tasks = source.share_state_tasks()
    except InputError:
        return
    if tasks:
        members = (row for row in tables.rows("members", ("type", "assignment")) if row["type"] == SHARE)
        assigned = (one for row in members for one in row["assignment"])
        names = {one["topic_id"]: one["topic"] for one in assigned if one["topic"] is not None}
        files.write_rows("share_partitions", share_partitions(tasks, names))
