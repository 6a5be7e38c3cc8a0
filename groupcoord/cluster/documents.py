"""What all nodes of a cluster must know besides their log (topics, settings, ACLs): in the same engine, read by all.

Each slot has all documents, so the last one is enough. Whoever writes puts the next slot, and is refused if another
node was quicker: then it knows what that one has written, and can try again. Nodes write seldom, from code that waits
for nothing, as one waits for a disk; so that is done in a thread of its own, for a bounded time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, NoReturn

from groupcoord.cluster.slot_log import DOCUMENTS_PARTITION, SlotLog, SlotLogError
from groupcoord.cluster.slot_messages import MalformedSlotError

logger = logging.getLogger("groupcoord")

WRITE_S = 1.0
"""The longest that whoever writes is held up, and its thread; while a look takes as long, nobody writes."""

START_S = 10.0
LOOK_S = 0.25
AGAIN_S = 0.05


class _State(NamedTuple):
    """What the last slot has: of each document the slot in which it became what it is, and its text."""

    slot: int
    documents: Mapping[str, tuple[int, str]]


class SlotDocuments:
    """Documents in a slot log, by their names: written by any node, seen by all within a quarter of a second.

    Args:
        new_slot_log: returns an engine that ``async with`` opens and closes; this one is used by nobody else.

    Attributes:
        refusals: how often something was not written, since another node had written before.
        on_changed: is called in another thread soon after somebody has written.
    """

    def __init__(self, new_slot_log: Callable[[], AbstractAsyncContextManager[SlotLog]]) -> None:
        self.refusals = 0
        self.on_changed: Callable[[], None] = _nobody_is_told
        self._new_slot_log = new_slot_log
        self._state = _State(-1, {})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slot_log: SlotLog
        self._ended: asyncio.Event
        self._is_open: Future[None] = Future()
        self._is_seen = True
        self._told = self._purged = -1
        self._thread = threading.Thread(target=self._run, name="groupcoord-documents", daemon=True)

    # ------------------------------------------------------------ life cycle

    def open(self) -> None:
        """Read what is there, and look for news from now on.

        Raises:
            SlotLogError: the engine can't be asked.
            MalformedSlotError: it has something else.
            TimeoutError: it does not answer.
        """
        self._thread.start()
        self._is_open.result(START_S)

    def close(self) -> None:
        """Look no more."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._look_on())
        except BaseException as error:
            if self._is_open.done():
                raise
            self._is_open.set_exception(error)

    async def _look_on(self) -> None:
        self._ended = asyncio.Event()
        async with self._new_slot_log() as self._slot_log:
            await self._catch_up()
            self._told = self._state.slot
            self._loop = asyncio.get_running_loop()
            self._is_open.set_result(None)
            while not self._ended.is_set():
                await self._look()
                try:
                    await asyncio.wait_for(self._ended.wait(), LOOK_S)
                except TimeoutError:
                    continue
        self._loop = None

    async def _look(self) -> None:
        """Know what others have written; that it can't be known now is said once."""
        try:
            async with asyncio.timeout(WRITE_S):
                await self._catch_up()
                last = self._state.slot
                if last > self._purged:
                    await self._slot_log.purge(DOCUMENTS_PARTITION, last)
                    self._purged = last
        except Exception as error:  # an engine's own errors as well
            if self._is_seen:
                logger.warning("topics and settings are what they were: the engine can't be asked: %r", error)
            self._is_seen = False
            return
        self._is_seen = True
        if last > self._told:
            self._told = last
            self.on_changed()

    async def _catch_up(self) -> None:
        while slots := await self._slot_log.read(DOCUMENTS_PARTITION, self._state.slot + 1):
            number, payload = slots[-1]
            self._state = _State(number, _decoded(payload))

    # ------------------------------------------------------------ documents

    def place_of(self, name: str) -> str:
        """See :class:`~groupcoord.broker.json_file.Documents`."""
        return f"{name} of the cluster"

    def stamp(self, name: str) -> object:
        """See :class:`~groupcoord.broker.json_file.Documents`."""
        found = self._state.documents.get(name)
        return None if found is None else found[0]

    def read(self, name: str) -> str:
        """See :class:`~groupcoord.broker.json_file.Documents`.

        Raises:
            FileNotFoundError: there is no such document.
        """
        found = self._state.documents.get(name)
        if found is None:
            raise FileNotFoundError(name)
        return found[1]

    def write(self, name: str, text: str, seen: object) -> object:
        """See :class:`~groupcoord.broker.json_file.Documents`.

        Raises:
            OSError: another node has written before, which is known now; or the engine does not answer, and it may be
                written or not. While it can't be asked nobody waits for that.
        """
        loop, before = self._loop, self._state
        if loop is None:
            raise OSError("what all nodes must know was closed")
        if not self._is_seen:
            raise OSError("the engine can't be asked")
        if self.stamp(name) != seen:
            self._refuse()
        slot = before.slot + 1
        after = _State(slot, {**before.documents, name: (slot, text)})
        writing = asyncio.run_coroutine_threadsafe(self._put(after), loop)
        try:
            is_written = writing.result(WRITE_S)
        except TimeoutError:
            writing.cancel()
            raise OSError("the engine does not answer: it may be written or not") from None
        if not is_written:
            self._refuse()
        return slot

    def _refuse(self) -> NoReturn:
        self.refusals += 1
        raise OSError("another node has written before")

    async def _put(self, state: _State) -> bool:
        """Have the next slot, and tell whether this one has it; else what others have put is known."""
        payload = _encoded(state)
        while True:
            try:
                if await self._slot_log.put(DOCUMENTS_PARTITION, state.slot, payload) is None:
                    self._state = state
                    return True
                slots = await self._slot_log.read(DOCUMENTS_PARTITION, state.slot)
                await self._catch_up()
            except SlotLogError:
                await asyncio.sleep(AGAIN_S)  # it is put or not: asked again, the engine says which
                continue
            if slots:
                return slots[0].payload == payload


def _encoded(state: _State) -> bytes:
    """Return what no other put has, though it may say the same."""
    return json.dumps({"tag": secrets.token_hex(8), "documents": state.documents}).encode()


def _decoded(payload: bytes) -> Mapping[str, tuple[int, str]]:
    try:
        documents = json.loads(payload)["documents"]
        return {str(name): (int(slot), str(text)) for name, (slot, text) in documents.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise MalformedSlotError("a slot does not hold what all nodes must know") from None


def _nobody_is_told() -> None:
    """Nobody but who reads goes by what others have written."""
