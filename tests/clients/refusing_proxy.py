"""A TCP proxy in front of a server that refuses one request of each group, as the group's name says.

``JoinGroup-2-UNKNOWN_MEMBER_ID`` is the name of a group whose second JoinGroup is answered with that error. It keeps a
list of what each group's members ask, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from typing import Any

from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    FindCoordinator,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from groupcoord.errors import ErrorCode
from groupcoord.testing.faults.error_answers import refuse
from groupcoord.wire import RequestHeader, decode_request, encode_response
from tests.clients.counting_proxy import HOST, CountingProxy

TOLD = (FindCoordinator, JoinGroup, SyncGroup, OffsetCommit, LeaveGroup)
"""What goes into a group's list; heartbeats and questions come as time goes by. But heartbeats of consumer groups that
tell something are there too."""


def told(request: Any) -> str | None:
    """Return how a request stands in a group's list; None: not at all."""
    api = type(request).__name__
    if isinstance(request, JoinGroup):
        return api if request.member_id else f"{api} as a new member"
    if not isinstance(request, ConsumerGroupHeartbeat):
        return api if isinstance(request, TOLD) else None
    if request.member_epoch <= 0:
        return f"{api} with epoch {request.member_epoch}"
    fields = {
        "time-out": request.rebalance_timeout_ms != -1,
        "topics": request.subscribed_topic_names is not None,
        "partitions": request.topic_partitions is not None,
    }
    words = [name for name, is_told in fields.items() if is_told]
    return f"{api} with {', '.join(words)}" if words else None


class Unanswered:
    """Number of unanswered requests of a connection: responses must come in order. Attributes: none: whether all are
    answered.
    """

    def __init__(self) -> None:
        self._count = 0
        self.none = asyncio.Event()
        self.none.set()

    def add(self) -> None:
        """Count one more request."""
        self._count += 1
        self.none.clear()

    def remove(self) -> None:
        """One more was answered."""
        self._count -= 1
        if not self._count:
            self.none.set()


class RefusingProxy(CountingProxy):
    """Proxy that refuses requests by group names, as the module describes. Attributes: asked: requests of members by
    group, in the form of :func:`told`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: defaultdict[str, list[str]] = defaultdict(list)
        self._counts: Counter[tuple[str, str]] = Counter()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
        unanswered = Unanswered()
        answers = asyncio.create_task(self._bring_back(far_reader, writer, unanswered))
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                header, request = decode_request(frame, "/127.0.0.1")
                refusal = self._refusal(header, request)
                if refusal is None:
                    unanswered.add()
                    far_writer.write(size + frame)
                else:
                    await unanswered.none.wait()
                    writer.write(refusal)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            answers.cancel()
            far_writer.close()
            writer.close()

    async def _bring_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unanswered: Unanswered
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = await reader.readexactly(4)
                writer.write(size + await reader.readexactly(int.from_bytes(size, "big")))
                unanswered.remove()
        writer.close()

    def _refusal(self, header: RequestHeader, request: Any) -> bytes | None:
        group_id = group_of(request)
        if group_id is None:
            return None
        api = type(request).__name__
        line = told(request)
        if line is not None:
            self.asked[group_id].append(line)
        self._counts[group_id, api] += 1
        refused, number, name = group_id.split("-")[-3:]
        if api != refused or self._counts[group_id, api] != int(number):
            return None
        response = refuse(request, ErrorCode[name])
        assert response is not None
        return encode_response(header, response)


def group_of(request: Any) -> str | None:
    if isinstance(request, FindCoordinator):
        return request.keys[0]
    if isinstance(request, OffsetFetch):
        return request.groups[0].group_id
    return getattr(request, "group_id", None)
