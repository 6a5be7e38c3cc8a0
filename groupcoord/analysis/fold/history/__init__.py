"""History of groups, from the records of ``__consumer_offsets``: generations, members, rebalances and their causes.

Pure Python without Spark, numpy, files or a clock. :class:`LogHistory` takes the batches of one log partition and
yields the rows of every group; :class:`GroupFold` takes the records of one group in order.
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
