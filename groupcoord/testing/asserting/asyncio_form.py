"""Waiting on an event loop, which goes on meanwhile: for tests whose clients live there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from groupcoord.broker.broker import Broker
from groupcoord.testing.asserting.differences import (
    Committed,
    Expected,
    Owned,
    Owners,
    Produced,
    checked_offsets,
    checked_owners,
    with_story,
)
from groupcoord.testing.asserting.groups import GroupDescription
from groupcoord.testing.asserting.records import IsolationLevel, ProducerRecord, to_records
from groupcoord.testing.asserting.requests import Requests
from groupcoord.testing.asserting.waiting import LOOK_AGAIN_S, WAIT_S, Attempts, Condition, Reading, Stability, Wanted
from groupcoord.testing.asserting.words import callers_frames

__tracebackhide__ = True

T = TypeVar("T")


class Submitting(Protocol):
    """Takes functions that are called in the server's thread: a :class:`~groupcoord.testing.ServerThread`."""

    def submit(self, function: Callable[[Broker], T]) -> Future[T]:
        """Have a function called with the broker."""

    @property
    def requests(self) -> Requests:
        """What has come."""


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
        try:
            return await asyncio.wrap_future(self._server.submit(function))
        except Exception as error:
            raise error.with_traceback(callers_frames(error)) from error.__cause__

    async def wait_until_stable(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group is Stable; see :meth:`Assertions.wait_until_stable`.

        Raises:
            TimeoutError: it did not become stable; the message says how it stood.
        """
        return await self._wait(Stability(group_id, members), timeout_s)

    async def wait_until_reading(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until each member of a group has fetched from its partitions; see :meth:`Assertions.wait_until_reading`.

        Raises:
            TimeoutError: a member has not fetched; the message names each, and its partitions.
        """
        return await self._wait(Reading(group_id, members), timeout_s)

    async def wait_until(self, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait until a condition holds that is about this server; see :meth:`Assertions.wait_until`.

        Raises:
            TimeoutError: it did not come to hold; the message says how the groups stood.
        """
        await self._wait(Condition(condition), timeout_s)

    async def assert_committed(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], timeout_s: float = WAIT_S
    ) -> None:
        """Assert that a group commits these offsets and no others; see :meth:`Assertions.assert_committed`.

        Raises:
            AssertionError: it has not.
        """
        await self._assert(Committed(group_id, checked_offsets(offsets)), timeout_s)

    async def assert_owned(self, group_id: str, owners: Owners, timeout_s: float = WAIT_S) -> None:
        """Assert who comes to own which partitions in a group; see :meth:`Assertions.assert_owned`.

        Raises:
            AssertionError: it isn't so.
        """
        await self._assert(Owned(group_id, checked_owners(owners)), timeout_s)

    async def assert_produced(
        self,
        topic: str,
        values: Iterable[ProducerRecord | str | bytes | None],
        *,
        partition: int | None = None,
        isolation_level: IsolationLevel = "read_committed",
        timeout_s: float = WAIT_S,
    ) -> None:
        """Assert that a topic comes to hold these records and no others; see :meth:`Assertions.assert_produced`.

        Raises:
            AssertionError: it does not.
            LookupError: there is no such topic, or partition.
        """
        await self._assert(Produced(topic, to_records(values), partition, isolation_level), timeout_s)

    async def _assert(self, expected: Expected, timeout_s: float) -> None:
        try:
            await self._wait(expected, timeout_s)
        except TimeoutError as error:
            message = f"{error}"
        else:
            return
        tell = partial(with_story, requests=self._server.requests, expected=expected, message=message)
        raise AssertionError(await self.run(tell))

    async def _wait(self, wanted: Wanted[T], timeout_s: float) -> T:
        attempts = Attempts(timeout_s)
        while True:
            found, reason = await self.run(wanted.look)
            if found is not None:
                return found
            attempts.count(wanted, reason)
            await asyncio.sleep(LOOK_AGAIN_S)
