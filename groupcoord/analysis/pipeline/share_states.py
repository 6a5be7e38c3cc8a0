"""The table of share-partitions, which has a log of its own."""

from __future__ import annotations

from groupcoord.analysis.decode.errors import InputError
from groupcoord.analysis.fold.history.views import SHARE
from groupcoord.analysis.fold.share_states import SHARE_STATE_SETTINGS, ShareStateFold
from groupcoord.analysis.live.errors import LogCutError
from groupcoord.analysis.pipeline.sources import Source
from groupcoord.analysis.pipeline.tailing import attempted
from groupcoord.analysis.report.data.finished import FinishedTables
from groupcoord.analysis.tables import TableFiles

_TABLE = "share_partitions"


class ShareStates:
    """What the log of share groups' states tells, as far as it was read.

    Args:
        source: of the groups' log, beside which it is looked for.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begin()

    def _begin(self) -> None:
        self._tail = self._source.share_state_tail()
        self._fold: ShareStateFold | None = None

    def write(self, tables: FinishedTables) -> None:
        """Read what is new, and write the table; nothing if there is no such log, or it may not be read.

        Args:
            tables: those that were written: members tell what topics are called.
        """
        try:
            attempted(self._read)
        except LogCutError:
            self._begin()  # the topic was made again: what it holds now is read the next time
        except InputError:
            pass
        if self._fold is not None:
            members = (row for row in tables.rows("members", ("type", "assignment")) if row["type"] == SHARE)
            assigned = (one for row in members for one in row["assignment"])
            names = {one["topic_id"]: one["topic"] for one in assigned if one["topic"] is not None}
            files = TableFiles(tables.results)
            files.write_rows(_TABLE, self._fold.rows(names))
            tables.counts |= files.counts

    def _read(self) -> None:
        for task in self._tail.look():
            runs = [(number, list(batches)) for number, batches in task.runs(SHARE_STATE_SETTINGS)]
            self._tail.check(task)
            self._fold = self._fold or ShareStateFold()
            for number, batches in runs:
                self._fold.add(number, batches)
        self._tail.take()
