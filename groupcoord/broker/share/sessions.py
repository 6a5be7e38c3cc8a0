"""Share sessions: what a member reads, and how its requests are counted (KIP-932).

A session is the member's, of its group, and ends with the connection on which it was opened. Source:
``ShareSessionCache``, ``SharePartitionManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from groupcoord.broker.connection import Connection
from groupcoord.errors import ErrorCode
from groupcoord.wire.share_messages import FINAL_EPOCH, FIRST_EPOCH

LAST_EPOCH = 2**31 - 1


class SharedPartition(NamedTuple):
    """A partition of a topic, by the id of the topic."""

    topic_id: UUID
    partition: int


class ShareSession:
    """What a member of a share group reads.

    Attributes:
        group_id, member_id: whose it is.
        connection: where it was opened.
        epoch: of the next request.
        partitions: what is read, with the names of the topics, as they were when they came to it; "" if there was none.
        due: partitions that the next answer names also if there is nothing to tell.
    """

    def __init__(self, group_id: str, member_id: str, connection: Connection) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = FIRST_EPOCH + 1
        self.partitions: dict[SharedPartition, str] = {}
        self.due: set[SharedPartition] = set()

    def count(self) -> None:
        """A request has come: the next one has another epoch."""
        self.epoch = FIRST_EPOCH + 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def add(self, partition: SharedPartition, name: str) -> None:
        """Read a partition from now on."""
        if partition not in self.partitions:
            self.partitions[partition] = name
            self.due.add(partition)

    def forget(self, partitions: Iterable[SharedPartition]) -> None:
        """Read partitions no longer."""
        for partition in partitions:
            self.partitions.pop(partition, None)
            self.due.discard(partition)

    def rotated(self, epoch: int) -> list[SharedPartition]:
        """Return the partitions in the order in which a request of this epoch reads them: each is first at times."""
        partitions = list(self.partitions)
        first = epoch % len(partitions) if partitions else 0
        return partitions[first:] + partitions[:first]


class ShareSessions:
    """All sessions of a broker."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_connection: dict[Connection, dict[tuple[str, str], ShareSession]] = {}
        self._of_group: dict[str, int] = {}
        self._opened_last: dict[Connection, str] = {}  # of which group

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: Connection) -> ShareSession:
        """Return a new session, in place of one that the member may have."""
        known = self._sessions.get((group_id, member_id))
        if known is not None:
            self.remove(known)
        session = ShareSession(group_id, member_id, connection)
        self._sessions[group_id, member_id] = session
        self._of_connection.setdefault(connection, {})[group_id, member_id] = session
        self._of_group[group_id] = self._of_group.get(group_id, 0) + 1
        self._opened_last[connection] = group_id
        return session

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """Return the session that a request of an epoch goes on with, or ends, and count the request."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.count()
        return session

    def has(self, group_id: str, member_id: str) -> bool:
        """Tell whether a member has a session."""
        return (group_id, member_id) in self._sessions

    def of_connection(self, connection: Connection) -> list[ShareSession]:
        """Return the sessions that were opened on a connection."""
        return list(self._of_connection.get(connection, {}).values())

    def disconnected(self, connection: Connection, ended: list[ShareSession]) -> list[str]:
        """A connection is closed, and its sessions have ended: return the groups that have none left.

        Counted is also the group whose session was opened there last, if that had ended before.
        """
        group_ids = dict.fromkeys(session.group_id for session in ended)
        last = self._opened_last.pop(connection, None)
        if last is not None:
            group_ids[last] = None
        return [group_id for group_id in group_ids if group_id not in self._of_group]

    def remove(self, session: ShareSession) -> None:
        """Forget a session; nothing happens if another one has taken its place."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return
        del self._sessions[key]
        opened = self._of_connection[session.connection]
        del opened[key]
        if not opened:
            del self._of_connection[session.connection]
        self._of_group[session.group_id] -= 1
        if not self._of_group[session.group_id]:
            del self._of_group[session.group_id]
