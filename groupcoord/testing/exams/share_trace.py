"""What the instances of a share group did with records: which they accepted, gave back and gave up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from groupcoord.core.share_partition.in_flight import AcknowledgeType
from groupcoord.errors import ErrorCode
from groupcoord.testing.asserting.requests import ReceivedRequest
from groupcoord.testing.exams.laws import Breach
from groupcoord.wire.share_messages import AcknowledgementBatch, ShareAcknowledge, ShareFetch, ShareFetchResponse

Place = tuple[int, int]
"""A record: its partition, and its offset there."""


class ShareTrace:
    """Follows what becomes of records that members of a share group are given.

    Args:
        topic: what they read.
        name_of: returns the name of a topic with an id.
        processed: how often each record was written to the output; somebody else keeps it up to date.
        works_late_s: so long after a record was accepted, another instance may still finish its work on it.

    Attributes:
        unreadable: records that may be given up.
        accepted_s: when each record was accepted.
        ahead: acceptances of what was not processed.
        afterwards: work on what had been accepted long before.
    """

    def __init__(
        self, topic: str, name_of: Callable[[UUID], str | None], processed: Mapping[Place, int], works_late_s: float
    ) -> None:
        self._topic, self._name_of, self._processed = topic, name_of, processed
        self._works_late_s = works_late_s
        self._unanswered: dict[int, list[Place]] = {}
        self._unprocessed: dict[int, list[Place]] = {}
        self.unreadable: set[Place] = set()
        self.accepted_s: dict[Place, float] = {}
        self.ahead: list[Breach] = []
        self.afterwards: list[Breach] = []

    def came(self, request: ReceivedRequest) -> None:
        """Take note of acknowledgements that have come: what they accept has to be processed by now.

        Whether they had an effect is not known until they are answered, and never if the answer is lost.
        """
        accepted = list(self._accepted_by(request.message))
        self._unanswered[request.number] = accepted
        self._unprocessed[request.number] = [place for place in accepted if not self._processed.get(place)]

    def answered(self, request: ReceivedRequest, now_s: float) -> None:
        """Take note of what became of acknowledgements."""
        self._unanswered.pop(request.number, None)
        unprocessed = self._unprocessed.pop(request.number, [])
        refused = set(self._refused(request.message, request.answer))
        for place in self._accepted_by(request.message):
            if place[0] not in refused:
                self.accepted_s.setdefault(place, now_s)
        taken = [place for place in unprocessed if place[0] not in refused]
        if taken:
            index, offset = taken[0]
            more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
            text = f"accepts record {index}-{offset}{more}, not processed"
            self.ahead.append(Breach(now_s, request.listener, text))

    def worked(self, who: str, place: Place, now_s: float) -> None:
        """Take note of work on a record."""
        accepted_s = self.accepted_s.get(place)
        if accepted_s is not None and now_s - accepted_s > self._works_late_s:
            index, offset = place
            text = f"works on record {index}-{offset} {now_s - accepted_s:.1f} s after it was accepted"
            self.afterwards.append(Breach(now_s, who, text))

    def given_up(self, index: int, end_offset: int) -> list[int]:
        """Return which records before an offset nobody has accepted, of those that can be read.

        Who got no answer may have accepted them, even if it was told something else when it asked again.
        """
        known = self.unreadable.union(self.accepted_s, *self._unanswered.values())
        return [offset for offset in range(end_offset) if (index, offset) not in known]

    def _accepted_by(self, message: ShareFetch | ShareAcknowledge) -> Iterator[Place]:
        for topic in message.topics:
            if self._name_of(topic.topic_id) == self._topic:
                for partition in topic.partitions:
                    for batch in partition.acknowledgement_batches:
                        for offset in _accepted_in(batch):
                            yield partition.partition_index, offset

    @staticmethod
    def _refused(message: ShareFetch | ShareAcknowledge, answer: Any) -> Iterator[int]:
        """Yield the partitions whose acknowledgements had no effect."""
        if answer.error_code is not ErrorCode.NONE:
            yield from (partition.partition_index for topic in message.topics for partition in topic.partitions)
        for topic in answer.responses:
            for partition in topic.partitions:
                code = (
                    partition.acknowledge_error_code if isinstance(answer, ShareFetchResponse) else partition.error_code
                )
                if code is not ErrorCode.NONE:
                    yield partition.partition_index


def _accepted_in(batch: AcknowledgementBatch) -> Iterator[int]:
    types = batch.acknowledge_types
    for offset in range(batch.first_offset, batch.last_offset + 1):
        if types[0 if len(types) == 1 else offset - batch.first_offset] == AcknowledgeType.ACCEPT:
            yield offset
