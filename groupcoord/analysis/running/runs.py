"""What runs have in common, whatever engine does the work: what is read, where results go, and the page at the end."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import ClassVar, TypedDict, Unpack

from attrs import field, frozen

from groupcoord.analysis.columns.results import ResultDirectory
from groupcoord.analysis.figures.finished import FinishedTables
from groupcoord.analysis.figures.gathering import gather_report
from groupcoord.analysis.figures.page import steps, write_report
from groupcoord.analysis.report.model import Report
from groupcoord.analysis.running.share_states import ShareStates
from groupcoord.analysis.running.sources import LogSource, Source
from groupcoord.clock import Clock, SystemClock

INTERVAL_S = 10.0

Paths = Sequence[str | os.PathLike[str]] | Source
"""What is read."""

REPORT_SHARE = 4
"""After tables and page, updates go on without them for this many times as long as they took: a fifth of all."""


class RunOptions(TypedDict, total=False):
    """What every run may be told besides what it reads and where results go, as :class:`Run` explains it."""

    partitions: Iterable[int]
    end_offsets: str | None
    clock: Clock | None


class Run:
    """A run over some logs into one directory.

    Args:
        paths: segment files, folders of a log partition, data directories, or patterns of these; local, or URLs; or a
            :class:`groupcoord.analysis.running.sources.Source`, such as a cluster that runs.
        out: an empty directory, or one that does not exist yet; a URL is fine.
        partitions: only these log partitions; all if empty.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.analysis.columns.tables.END_OFFSETS`;
            read anew each time that tables are made.
        clock: says when the report is made, and how long that took.

    Raises:
        InputError: an input can't be read or holds nothing, or the directory can't be used.
    """

    _goes_on: ClassVar[str | None] = None
    """The name of what shows that a directory is that of an earlier run, where this one may go on."""

    def __init__(
        self,
        paths: Paths,
        out: str | os.PathLike[str],
        *,
        partitions: Iterable[int] = (),
        end_offsets: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._source = paths if isinstance(paths, Source) else LogSource(frozenset(partitions), end_offsets, paths)
        self._clock = clock or SystemClock()
        self._size_bytes = self._source.check(may_be_empty=self._goes_on is not None)
        self._results = self._open(out)
        self._share_states = ShareStates(self._source)

    def _open(self, out: str | os.PathLike[str]) -> ResultDirectory:
        return ResultDirectory(out, goes_on=self._goes_on)

    @cached_property
    def _retention_minutes(self) -> int | None:
        """What brokers say how long offsets are kept that nobody uses; None: it isn't told."""
        return self._source.offsets_retention_minutes()

    def _write_page(self, tables: FinishedTables) -> Report:
        """Write the table of share-partitions, the page and its figures, and return these."""
        self._share_states.write(tables)
        report = gather_report(tables, self._source.names, self._clock, self._retention_minutes)
        write_report(self._results, report)
        return report


class AnalysisRun(Run):
    """A run that reads the logs once.

    Args:
        paths: as for :class:`Run`, as those that are not named here.
        out: see there.
        verifies: load the log into coordinators too, and compare.

    Attributes:
        steps: the names of what ``run`` does, in order.

    Raises:
        InputError: see there.
    """

    def __init__(
        self, paths: Paths, out: str | os.PathLike[str], *, verifies: bool = False, **options: Unpack[RunOptions]
    ) -> None:
        super().__init__(paths, out, **options)
        self._verifies = verifies
        self.steps = steps(has_ends=self._source.has_ends, verifies=verifies)


@frozen
class Progress:
    """How far things are that are kept up to date.

    Attributes:
        update: the number of the last update.
        rows: how many rows of the table of records there are.
        report: what the page says, if it was made anew.
        seen_ms: when the input was looked at, in milliseconds since 1970.
        is_look: nothing but where topics end was looked at.
        tables: those that were made anew, if any were.
        earlier: rebalances that are in no table any more, by group and cause.
        leaderless: log partitions that were not read, since they have no leader.
    """

    update: int
    rows: int
    report: Report | None
    seen_ms: int
    is_look: bool = False
    tables: FinishedTables | None = None
    earlier: Mapping[tuple[str, str], int] = field(factory=dict)
    leaderless: Sequence[str] = ()


class FollowingRun(Run, ABC):
    """A run that keeps everything up to date as the logs grow.

    Args:
        paths: as for :class:`Run`, as those that are not named here.
        out: see there; or the directory of an earlier run over the same logs.
        interval_s: seconds from the end of an update to the next look at the logs.

    Raises:
        InputError: see there; or other logs were followed into the directory, or another process uses it.
    """

    def __init__(
        self,
        paths: Paths,
        out: str | os.PathLike[str],
        *,
        interval_s: float = INTERVAL_S,
        **options: Unpack[RunOptions],
    ) -> None:
        super().__init__(paths, out, **options)
        self._interval_s = interval_s
        with self._alone():
            self._claim()

    @property
    def cluster_name(self) -> str:
        """The id of the cluster that is followed; empty for files."""
        return self._source.cluster_name

    def _alone(self) -> AbstractContextManager[None]:
        """Keep others from following into the same directory."""
        return self._results.locked(self._goes_on or "", "follows logs into it")

    def _follow(self, is_stopped: Callable[[float], bool], tell: Callable[[Progress], None]) -> Report | None:
        """Keep everything up to date until it is stopped, and return what the page says then; None if there is none.

        An update that has begun is completed.

        Args:
            is_stopped: waits so many seconds, or until this is to stop, and says if it is.
            tell: is called after each update.
        """
        report: Report | None = None
        last, reported, next_ms = -1, -1, 0
        while True:
            seen_ms = self._clock.now_ms()
            update = self._update()
            is_new, is_behind = update > last, update > reported
            last = update
            made, tables, started_ms = None, None, self._clock.now_ms()
            is_look = not is_behind and self._source.asks_for_ends and update >= 0
            if (is_behind or is_look) and started_ms >= next_ms:
                tables = self._write(seen_ms) if is_behind else self._look(seen_ms)
                if is_behind:
                    made = report = self._write_page(tables)
                    reported = update
                ended_ms = self._clock.now_ms()
                next_ms = ended_ms + REPORT_SHARE * (ended_ms - started_ms)
            if is_new or tables is not None:
                only_ends = made is None and not is_new
                leaderless = self._leaderless()
                tell(Progress(update, self._rows(), made, seen_ms, only_ends, tables, self._earlier(), leaderless))
            if is_stopped(self._interval_s):
                break
        return self._write_page(self._write(seen_ms)) if update > reported else report

    @abstractmethod
    def _claim(self) -> None:
        """Make sure that the directory goes with these logs.

        Raises:
            InputError: it doesn't.
        """

    @abstractmethod
    def _update(self) -> int:
        """Read what is new, and return the number of the last update; -1: there was none yet."""

    @abstractmethod
    def _write(self, read_ms: int) -> FinishedTables:
        """Write the tables, and return them.

        Args:
            read_ms: when the logs were looked at, in milliseconds since 1970.
        """

    @abstractmethod
    def _look(self, read_ms: int) -> FinishedTables:
        """Write what may be another where nothing but the ends of topics can have changed, and return that."""

    @abstractmethod
    def _rows(self) -> int:
        """Return how many rows of the table of records there are."""

    def _earlier(self) -> Mapping[tuple[str, str], int]:
        """Return rebalances that are in no table any more, by group and cause."""
        return {}

    def _leaderless(self) -> Sequence[str]:
        """Return the log partitions that were not read, since they have no leader."""
        return ()
