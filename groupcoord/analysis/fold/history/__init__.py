"""What happened to groups, from the records of ``__consumer_offsets``: generations, members, rebalances and why.

Pure Python on records: neither Spark nor numpy, neither files nor a clock. :class:`LogHistory` takes the batches of one
log partition and gives the rows of every group; :class:`GroupFold` takes the records of one group, for programs that
bring them in order themselves, as the pipeline on Spark does. Names of rows are those of the pipeline's tables.
"""

from groupcoord.analysis.fold.history.causes import CAUSES
from groupcoord.analysis.fold.history.group_fold import FoldOptions, GroupFold, LogOrderError
from groupcoord.analysis.fold.history.log_history import KINDS, GroupRecord, HistoryRow, LastCommit, LogHistory
from groupcoord.analysis.fold.history.rows import (
    DUPLICATE,
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
    Row,
)

__all__ = [
    "CAUSES",
    "DUPLICATE",
    "EPOCH",
    "GENERATION",
    "GROUP",
    "KINDS",
    "MEMBER",
    "MEMBERSHIP",
    "MOVE",
    "REBALANCE",
    "REVOCATION",
    "FoldOptions",
    "GroupFold",
    "GroupRecord",
    "HistoryRow",
    "LastCommit",
    "LogHistory",
    "LogOrderError",
    "Row",
]
