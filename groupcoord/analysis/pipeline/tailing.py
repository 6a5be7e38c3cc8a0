"""What comes to logs, look by look: files, or a cluster that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from groupcoord.analysis.decode.files import FileSet, cut_ranges
from groupcoord.analysis.decode.tailing import (
    Cursors,
    LogChangedError,
    advance,
    changes_told,
    check_unchanged,
    logs_of,
    ranges_to_read,
)
from groupcoord.analysis.decode.tasks import LogTask, RecordTask
from groupcoord.analysis.live.offset_ranges import SPLIT_BYTES as OFFSETS_SPLIT_BYTES
from groupcoord.analysis.live.offset_ranges import TopicEnds
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.live.tasks import check_same, tasks_between

SPLIT_BYTES = 16_777_216
"""How much of a file is read at a time, about: the rows of it are held until it is known that it is the same one."""

ATTEMPTS_MAX = 4
"""So often reading is begun if files change meanwhile."""


def attempted(read: Callable[[], None]) -> None:
    """Do what reads files, and again if they change meanwhile.

    Raises:
        LogChangedError: they changed each time.
    """
    for attempts_left in reversed(range(ATTEMPTS_MAX)):
        try:
            read()
        except LogChangedError:
            if not attempts_left:
                raise
        else:
            return


class Tail(ABC):
    """Reads logs as they grow. What a look gave comes again at the next one, unless it was taken.

    Attributes:
        leaderless: log partitions that the last look left out, since they have no leader.
    """

    leaderless: Sequence[str] = ()

    @abstractmethod
    def look(self) -> Sequence[RecordTask]:
        """Return what there is behind what was taken, cut into tasks."""

    @abstractmethod
    def check(self, task: RecordTask) -> None:
        """Make sure that what a task has read is what the look had found.

        Raises:
            LogChangedError: it isn't.
        """

    @abstractmethod
    def take(self) -> None:
        """All that the last look gave was read."""


class LogTail(Tail):
    """Reads files, up to the last whole batch of each log partition.

    Args:
        find: looks for the files.
    """

    def __init__(self, find: Callable[[], Sequence[FileSet]]) -> None:
        self._find = find
        self._taken: Cursors = {}
        self._seen: Cursors = {}

    def look(self) -> Sequence[RecordTask]:
        """See :class:`Tail`.

        Raises:
            LogChangedError: a file went meanwhile.
        """
        with changes_told():
            logs = logs_of(self._find())
            self._seen = self._taken | {folder: advance(log, self._taken.get(folder)) for folder, log in logs.items()}
            found = ranges_to_read(logs, self._taken, self._seen)
        return [
            LogTask(file_system, some)
            for file_system, ranges in found.items()
            for some in cut_ranges(ranges, SPLIT_BYTES)
        ]

    def check(self, task: RecordTask) -> None:
        """See :class:`Tail`."""
        assert isinstance(task, LogTask)
        check_unchanged(task.file_system, task.ranges)

    def take(self) -> None:
        """See :class:`Tail`."""
        self._taken = self._seen


class ClusterTail(Tail):
    """Reads a topic of a cluster, up to the high watermark of each partition.

    Args:
        address: where the cluster is.
        ends: asks it where the logs begin and end now.
    """

    def __init__(self, address: ClusterAddress, ends: Callable[[], TopicEnds]) -> None:
        self._address = address
        self._ends = ends
        self._topic_id: str | None = None
        self._taken: Mapping[int, int] = {}
        self._seen: Mapping[int, int] = {}

    def look(self) -> Sequence[RecordTask]:
        """See :class:`Tail`.

        Raises:
            LogCutError: what was read is no part of the topic any more.
            ClusterError: the cluster can't be reached.
        """
        ends = self._ends()
        self._topic_id = self._topic_id or str(ends.topic.topic_id)
        check_same(ends, self._topic_id, self._taken)
        topic = ends.topic.name
        self.leaderless = [f"{topic}-{partition}" for partition in ends.leaderless]
        self._seen = {**self._taken, **ends.ends}
        grown = {
            partition: end
            for partition, end in ends.ends.items()
            if end > self._taken.get(partition, ends.starts[partition])
        }
        if not grown:
            return []
        return tasks_between(self._address, topic, self._taken, grown, self._topic_id, OFFSETS_SPLIT_BYTES)

    def check(self, task: RecordTask) -> None:
        """See :class:`Tail`: what lies at an offset stays the same."""

    def take(self) -> None:
        """See :class:`Tail`."""
        self._taken = self._seen
