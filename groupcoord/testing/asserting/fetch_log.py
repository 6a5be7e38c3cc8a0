"""Fetch positions of group members: which partitions each client has fetched from since it was assigned them.

Fetch names no member (KIP-227 sessions do not even name all partitions), so that clients are told apart by client id
and connection. ShareFetch names its member.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from attrs import Factory, define

from groupcoord.core.messages import (
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponse,
    SyncGroupResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.testing.asserting.groups import MemberDescription
from groupcoord.wire.broker_messages import Fetch
from groupcoord.wire.share_messages import ShareFetch, ShareFetchResponse

ENTRIES_MAX = 10_000
"""How many members, and partitions of one connection, are kept; the oldest are dropped first."""

Place = tuple[str | UUID, int]
"""A partition as a request names it: by topic name or topic id."""


@define(eq=False)
class _Connection:
    """What one connection fetches.

    Attributes:
        client_id: of its last fetch.
        share_member: group and member id, if it sends ShareFetch.
        last_fetch: the number of its last fetch.
        session: the partitions of its fetch session, which every fetch covers.
        named: for each other partition the number of the last fetch that named it.
        failed: the partitions that its last fetch got an error for.
    """

    client_id: str = ""
    share_member: tuple[str, str] | None = None
    last_fetch: int = 0
    session: set[Place] = Factory(set)
    named: dict[Place, int] = Factory(dict)
    failed: set[Place] = Factory(set)

    def note_fetch(self, number: int, client_id: str, message: Fetch) -> None:
        gone: list[Place] = [(_name(topic), i) for topic in message.forgotten_topics for i in topic.partition_indexes]
        self._note(number, client_id, message.session_epoch, message.topics, gone)

    def note_share_fetch(self, number: int, client_id: str, message: ShareFetch) -> None:
        self.share_member = (message.group_id or "", message.member_id or "")
        gone: list[Place] = [(topic.topic_id, i) for topic in message.forgotten_topics_data for i in topic.partitions]
        self._note(number, client_id, message.share_session_epoch, message.topics, gone)

    def _note(self, number: int, client_id: str, epoch: int, topics: Iterable[Any], gone: list[Place]) -> None:
        named: list[Place] = [(_name(topic), one.partition_index) for topic in topics for one in topic.partitions]
        self.client_id = client_id
        self.last_fetch = number
        self.failed.clear()
        if epoch <= 0:
            self.session.clear()
        if epoch >= 0:
            self.session.update(named)
        self.session.difference_update(gone)
        for place in gone:
            self.named.pop(place, None)
        self.named.update(dict.fromkeys(named, number))
        while len(self.named) > max(ENTRIES_MAX, len(named)):
            del self.named[next(iter(self.named))]

    def note_errors(self, answer: Any) -> None:
        for topic in answer.responses if isinstance(answer, ShareFetchResponse) else answer.topics:
            failed = (one.partition_index for one in topic.partitions if one.error_code is not ErrorCode.NONE)
            self.failed.update((_name(topic), index) for index in failed)
        if answer.error_code is not ErrorCode.NONE:
            self.failed.update(self.session, self.named)
        for place in self.failed:
            self.named.pop(place, None)

    def last_fetch_of(self, places: tuple[Place, ...]) -> int:
        """Return the number of the last fetch that covered a partition, which has several names; 0 if none did."""
        if not self.failed.isdisjoint(places):
            return 0
        if not self.session.isdisjoint(places):
            return self.last_fetch
        return max(self.named.get(place, 0) for place in places)


class FetchLog:
    """Who fetches what, kept from the requests and answers of a server."""

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}
        self._assigned_at: dict[tuple[str, str], int] = {}

    def note_request(self, number: int, connection: int, client_id: str, message: object) -> None:
        """Note a request that has come."""
        if isinstance(message, Fetch):
            self._connections.setdefault(connection, _Connection()).note_fetch(number, client_id, message)

    def note_answer(self, connection: int, client_id: str, message: Any, answer: Any, request_count: int) -> None:
        """Note an answer; ``request_count`` is the number of the last request that has come."""
        if isinstance(message, Fetch | ShareFetch):
            fetching = self._connections.setdefault(connection, _Connection())
            if isinstance(message, ShareFetch):
                # Until its first answer a share-partition may begin behind records that are produced meanwhile.
                fetching.note_share_fetch(request_count, client_id, message)
            fetching.note_errors(answer)
            return
        member_id = _assigned_member(message, answer)
        if member_id is not None:
            self._assigned_at.pop((message.group_id, member_id), None)
            self._assigned_at[message.group_id, member_id] = request_count
            if len(self._assigned_at) > ENTRIES_MAX:
                del self._assigned_at[next(iter(self._assigned_at))]

    def session(self, connection: int) -> frozenset[Place]:
        """Return the partitions of the fetch session of a connection."""
        fetching = self._connections.get(connection)
        return frozenset() if fetching is None else frozenset(fetching.session)

    def closed(self, connection: int) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)

    def readers(self, group_id: str, member: MemberDescription, places: tuple[Place, ...]) -> int:
        """Return how many connections of a member's client have fetched from a partition since it was assigned."""
        since = self._assigned_at.get((group_id, member.member_id), 0)
        share_member = (group_id, member.member_id) if member.protocol == "share" else None
        return sum(
            connection.last_fetch_of(places) > since
            for connection in self._connections.values()
            if connection.share_member == share_member
            and (share_member is not None or connection.client_id == member.client_id)
        )


def _name(topic: Any) -> str | UUID:
    name: str | UUID = getattr(topic, "name", None) or topic.topic_id
    return name


def _assigned_member(message: Any, answer: Any) -> str | None:
    """Return the id of the member that an answer tells its assignment; None for other answers."""
    match answer:
        case SyncGroupResponse(error_code=ErrorCode.NONE):
            return str(message.member_id)
        case ConsumerGroupHeartbeatResponse() | ShareGroupHeartbeatResponse() if answer.assignment is not None:
            return answer.member_id or str(message.member_id)
        case StreamsGroupHeartbeatResponse() if answer.active_tasks is not None:
            return str(message.member_id)
    return None
