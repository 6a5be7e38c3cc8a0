"""Waiting on an event loop, which goes on meanwhile: for tests whose clients live there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from groupcoord.broker.broker import Broker
from groupcoord.testing.asserting.groups import GroupDescription
from groupcoord.testing.asserting.waiting import LOOK_AGAIN_S, WAIT_S, Attempts, Condition, Stability, Wanted

T = TypeVar("T")


class Submitting(Protocol):
    """Takes functions that are called in the server's thread: a :class:`~groupcoord.testing.ServerThread`."""

    def submit(self, function: Callable[[Broker], T]) -> Future[T]:
        """Have a function called with the broker."""


class AsyncServer:
    """What of a server takes time, for tests on an event loop: ``await server.asyncio.wait_until_stable("billing")``.

    All else that a server can be asked is answered at once, and may be called from a coroutine as it is.

    Args:
        server: the server, which runs in a thread of its own.
    """

    def __init__(self, server: Submitting) -> None:
        self._server = server

    async def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function in the server's thread with its broker, and return what it returns.

        Raises:
            RuntimeError: the server does not run.
        """
        return await asyncio.wrap_future(self._server.submit(function))

    async def wait_until_stable(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group is Stable; see :meth:`Assertions.wait_until_stable`.

        Raises:
            TimeoutError: it did not become stable; the message says how it stood.
        """
        return await self._wait(Stability(group_id, members), timeout_s)

    async def wait_until(self, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait until a condition holds that is about this server; see :meth:`Assertions.wait_until`.

        Raises:
            TimeoutError: it did not come to hold; the message says how the groups stood.
        """
        await self._wait(Condition(condition), timeout_s)

    async def _wait(self, wanted: Wanted[T], timeout_s: float) -> T:
        attempts = Attempts(timeout_s)
        while True:
            found, reason = await self.run(wanted.look)
            if found is not None:
                return found
            attempts.count(wanted, reason)
            await asyncio.sleep(LOOK_AGAIN_S)
