"""From fetches, acknowledgements and answers alone it is known what became of the records of a share group."""

from __future__ import annotations

from groupcoord import ErrorCode
from groupcoord.messages import ShareGroupHeartbeat, ShareGroupHeartbeatResponse, TopicPartitions
from groupcoord.wire.share_messages import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledge,
    ShareAcknowledgedPartition,
    ShareAcknowledgeResponse,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchResponse,
    SharePartitionData,
    TopicIdEntry,
)

from .test_trace import TOPIC_ID, Stand

ACCEPT, RELEASE = 1, 2


class Queue(Stand):
    """Trace of requests and responses between members of a share group and leaders."""

    def acknowledge(
        self,
        who: str,
        first: int,
        *kinds: int,
        code: ErrorCode = ErrorCode.NONE,
        session: ErrorCode = ErrorCode.NONE,
        last: int | None = None,
        is_answered: bool = True,
    ) -> None:
        """Acknowledge records of partition 0, with a type for each, or one for all up to the last."""
        batch = AcknowledgementBatch(first, first + len(kinds) - 1 if last is None else last, kinds)
        asked = ShareAcknowledge("exam", "m", 1, (TopicIdEntry(TOPIC_ID, (ShareFetchPartition(0, (batch,)),)),))
        topics = (TopicIdEntry(TOPIC_ID, (ShareAcknowledgedPartition(0, code),)),)
        answer = ShareAcknowledgeResponse(session, responses=() if session else topics)
        self.say(who, asked, answer, is_answered=is_answered)


def test_what_is_accepted_before_it_is_processed_is_seen() -> None:
    """The first such record is named, and the others counted; rejected and released ones don't count."""
    queue = Queue()
    queue.produce("a", "0-0", "0-1")
    queue.acknowledge("a", 0, ACCEPT, ACCEPT, RELEASE)
    queue.acknowledge("a", 2, ACCEPT, code=ErrorCode.INVALID_RECORD_STATE)
    queue.acknowledge("a", 2, ACCEPT, session=ErrorCode.SHARE_SESSION_NOT_FOUND)
    assert queue.trace.shared.ahead == []

    queue.acknowledge("a", 2, ACCEPT, last=4)
    (breach,) = queue.trace.shared.ahead
    assert (breach.who, breach.text) == ("a", "accepts record 0-2 and 2 more, not processed")


def test_work_after_acceptance_is_seen() -> None:
    """A slow member may finish within a time; later it is a breach. Unaccepted records are open."""
    queue = Queue(works_late_s=0.0)
    queue.produce("a", "0-0")
    queue.acknowledge("b", 0, ACCEPT)
    queue.produce("a", "0-0", "0-1")
    (breach,) = queue.trace.shared.afterwards
    assert (breach.who, breach.text.startswith("works on record 0-0 ")) == ("a", True)


def test_what_nobody_has_accepted_is_given_up() -> None:
    """Records that can't be read may be; what was accepted counts if the answer is lost, too."""
    queue = Queue()
    queue.trace.excuse(0, 1)
    queue.acknowledge("a", 0, ACCEPT)
    queue.acknowledge("a", 3, ACCEPT, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert queue.trace.shared.given_up(0, 4) == [2, 3]
    queue.acknowledge("a", 2, ACCEPT, is_answered=False)
    queue.acknowledge("a", 2, ACCEPT, code=ErrorCode.INVALID_RECORD_STATE)
    assert queue.trace.shared.given_up(0, 4) == [3]


def test_members_and_their_records_are_followed() -> None:
    """Heartbeats have the subscription and a member's leaving; fetches are events if they acquire records."""
    queue = Queue()
    own = (TopicPartitions(TOPIC_ID, (0, 2)),)
    joined = ShareGroupHeartbeatResponse(ErrorCode.NONE, member_id="m", member_epoch=1, assignment=own)
    queue.say("a", ShareGroupHeartbeat("exam", "m", 0), joined)
    assert queue.trace.seats["a"].owned == {0, 2}

    asked = ShareFetch("exam", "m", 1, 0, 1, 1, 1, 1, ())
    found = SharePartitionData(0, acquired_records=(AcquiredRecords(3, 5, 2),))
    for partition in (SharePartitionData(0), found):
        queue.say("a", asked, ShareFetchResponse(ErrorCode.NONE, 0, (TopicIdEntry(TOPIC_ID, (partition,)),)))
    queue.acknowledge("a", 3, RELEASE, RELEASE)
    queue.say("a", ShareGroupHeartbeat("exam", "m", -1), ShareGroupHeartbeatResponse(ErrorCode.NONE, member_epoch=-1))

    assert queue.trace.seats["a"].has_left
    assert [event.text for event in queue.trace.events] == [
        "ShareGroupHeartbeat exam, epoch 0, member m -> epoch 1, in-0, in-2",
        "ShareFetch nothing -> in-0 from 3 to 5 (time 2)",
        "ShareAcknowledge releases in-0 from 3 to 4 -> fine",
        "ShareGroupHeartbeat exam, epoch -1, member m -> epoch -1",
    ]
