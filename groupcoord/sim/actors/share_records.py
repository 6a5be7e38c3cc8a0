"""The records that a simulated share group works on: how long they take, and how often they are delivered."""

from __future__ import annotations

from attrs import define, field

from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.sim.cluster.shared_topics import SharedTopics


@define
class ShareFigures:
    """What became of the records of a group.

    Attributes:
        redeliveries: how often somebody got a record that had been delivered before.
        done_ms: of each record that was accepted, how long that took since it was written.
        lock_waits_ms: of each record that somebody had who died: how long it took until another one got it.
    """

    redeliveries: int = 0
    done_ms: list[int] = field(factory=list)
    lock_waits_ms: list[int] = field(factory=list)


class ShareRecords:
    """The records of one share group.

    Args:
        group_id: the group.
        topics: which topics it reads.
        shared: what they hold.

    Attributes:
        figures: since the last :meth:`begin_measuring`.
    """

    def __init__(self, group_id: str, topics: tuple[str, ...], shared: SharedTopics) -> None:
        self.figures = ShareFigures()
        self._group_id, self._topics, self._shared = group_id, topics, shared
        self._archived_before = 0
        self._lost_ms: dict[tuple[SharePartitionKey, int], int] = {}

    def begin_measuring(self) -> None:
        """Forget what was until now."""
        self.figures = ShareFigures()
        self._archived_before += self.archived

    @property
    def archived(self) -> int:
        """How many records were given up since :meth:`begin_measuring`."""
        self._shared.follow()
        given_up = self._shared.given_up.items()
        return sum(len(offsets) for key, offsets in given_up if key.group_id == self._group_id) - self._archived_before

    def delivered(self, key: SharePartitionKey, offset: int, count: int, now_ms: int) -> None:
        """Somebody has got a record, for the how-manieth time."""
        self.figures.redeliveries += count > 1
        lost_ms = self._lost_ms.pop((key, offset), None)
        if lost_ms is not None:
            self.figures.lock_waits_ms.append(now_ms - lost_ms)

    def lost(self, key: SharePartitionKey, offset: int, now_ms: int) -> None:
        """Who has a record is dead."""
        self._lost_ms[key, offset] = now_ms

    def accepted(self, key: SharePartitionKey, offset: int, now_ms: int) -> None:
        """Somebody was told that a record is done."""
        self._lost_ms.pop((key, offset), None)
        topic = self._shared.registry.get_by_id(key.topic_id)
        if topic is not None:
            self.figures.done_ms.append(now_ms - self._shared.written_ms[topic.topic_id, key.partition][offset])

    def are_done(self) -> bool:
        """Tell whether all records of topics that there are were accepted, or given up.

        A record is given up as soon as its last lock is over, whatever the log says (as in Kafka, where such a write is
        not tried again): then only its leader knows, and forgets it with the process.
        """
        ends = {key: self._shared.end_offset(key) for key in self._shared.keys_of(self._group_id, self._topics)}
        left = {key: end for key, end in ends.items() if self._shared.unfinished(key, end) is not None}
        are_done = all(self._shared.start_offset(key) >= end for key, end in left.items())
        if are_done:
            self._shared.worked_off.update({key: end for key, end in ends.items() if key not in left})
        return are_done
