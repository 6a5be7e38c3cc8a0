"""History of groups, from the records of ``__consumer_offsets``: generations, members, rebalances and their causes.

Pure Python without Spark, numpy, files or a clock. :class:`LogHistory` takes the batches of one log partition and
yields the rows of every group; :class:`GroupFold` takes the records of one group in order.
"""

from groupcoord.analysis.fold.history.causes import CAUSES as CAUSES
from groupcoord.analysis.fold.history.group_fold import (
    FoldOptions as FoldOptions,
    GroupFold as GroupFold,
    LogOrderError as LogOrderError,
)
from groupcoord.analysis.fold.history.log_history import (
    KINDS as KINDS,
    GroupRecord as GroupRecord,
    HistoryRow as HistoryRow,
    LastCommit as LastCommit,
    LogHistory as LogHistory,
)
from groupcoord.analysis.fold.history.rows import (
    DUPLICATE as DUPLICATE,
    EPOCH as EPOCH,
    GENERATION as GENERATION,
    GROUP as GROUP,
    MEMBER as MEMBER,
    MEMBERSHIP as MEMBERSHIP,
    MOVE as MOVE,
    REBALANCE as REBALANCE,
    REVOCATION as REVOCATION,
    Row as Row,
)
