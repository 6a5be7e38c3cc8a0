"""What is wrong with groups, as far as polls tell: by the rules for logs, on what a log would hold of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pyarrow as pa
from attrs import asdict

from groupcoord.analysis.fold.commits import LAST_COMMITS, MINUTES, PARTITION, REWINDS, CommitFacts
from groupcoord.analysis.fold.history import DUPLICATE, GROUP, MEMBER, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.live.snapshots import Snapshot
from groupcoord.analysis.pipeline.tables import HISTORY_ROWS_MAX
from groupcoord.analysis.poll.groups import Changes
from groupcoord.analysis.poll.lag import LagWatch, Place
from groupcoord.analysis.poll.rows import Row
from groupcoord.analysis.rules.anomalies import anomalies
from groupcoord.analysis.rules.assignment_balance import assigned
from groupcoord.analysis.rules.ends import Ends


class PolledAnomalies:
    """What polls have shown that is to be known for anomalies, kept up to date."""

    def __init__(self) -> None:
        self._rebalances: deque[Row] = deque(maxlen=HISTORY_ROWS_MAX)
        self._since_ms: dict[str, int] = {}

    def take(
        self,
        snapshot: Snapshot,
        changes: Changes,
        groups: Iterable[Row],
        members: Iterable[Row],
        watch: LagWatch,
        ends: Ends,
    ) -> list[Row]:
        """Return what is wrong with groups (:data:`groupcoord.analysis.decode.group_tables.ANOMALIES`).

        Offsets that were others than before are commits; one of the same offset, no poll shows. So nothing stalls: who
        commits the same offset again and again has stopped.

        Args:
            snapshot: what the next poll has shown.
            changes: what of it is new.
            groups: rows of the table of this name.
            members: likewise.
            watch: has taken the snapshot.
            ends: where topics end, as polls have shown it.
        """
        now_ms = snapshot.at_ms
        self._rebalances.extend(row | {"log_partition": None} for row in changes.rebalances)
        told = {group_id: one.offsets is not None for group_id, one in snapshot.groups.items()}
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in told.keys() | snapshot.missing}
        self._since_ms |= {row["group_id"]: now_ms for row in changes.rebalances if row["group_id"] in self._since_ms}
        found = {
            GROUP: [
                row | {"log_partition": None, "state_timestamp_ms": self._since_ms[row["group_id"]]}
                for row in groups
                if told[row["group_id"]]  # of others it isn't known whether they have committed
            ],
            MEMBER: [row | {"log_offset": 0} for row in members],
            REBALANCE: list(self._rebalances),
            **{kind: [] for kind in (DUPLICATE, REVOCATION, MEMBERSHIP)},
        }
        return anomalies(found, _facts(watch), assigned(found), ends, now_ms)


def _facts(watch: LagWatch) -> CommitFacts:
    """Return what snapshots have shown as what is known of commits."""
    last = [
        _of(place)
        | {
            "log_offset": number,
            "log_timestamp_ms": one.at_ms,
            "commit_timestamp_ms": one.at_ms,
            "committed_offset": one.committed_offset,
            "tombstone": False,
        }
        for place, window in watch.windows.items()
        for number, one in enumerate(window)
    ]
    rewinds = [_of(place) | asdict(one) for place, one in watch.rewinds.items()]
    return CommitFacts(
        pa.Table.from_pylist(last, LAST_COMMITS),
        pa.Table.from_pylist(rewinds, REWINDS),
        MINUTES.empty_table(),
        are_samples=True,
    )


def _of(place: Place) -> Row:
    return dict(zip(PARTITION, (None, *place), strict=True))
