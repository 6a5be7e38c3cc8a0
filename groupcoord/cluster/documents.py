"""Topics, settings and ACLs that all nodes of a cluster share, stored as documents in the engine of the log.

Each slot holds all documents, so the last one is enough. A writer puts the next slot; if another node was faster, it
learns that node's version and can retry. Nodes write rarely, from synchronous code, as to a disk. So the I/O runs in a
separate thread, and a write takes a bounded time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import NamedTuple, NoReturn

from groupcoord.cluster.slot_log import DOCUMENTS_PARTITION, MalformedSlotError, SlotLog, SlotLogError

logger = logging.getLogger("groupcoord")

WRITE_S = 1.0
"""Timeout of writes and polls. After a failed poll, writes fail at once until one succeeds."""

START_S = 10.0
LOOK_S = 0.25
AGAIN_S = 0.05


class _State(NamedTuple):
    slot: int
    documents: Mapping[str, tuple[int, str]]


class SlotDocuments:
    """Named documents in a slot log; implements ``Documents`` of :mod:`groupcoord.broker.json_file`.

    Any node may write them; all nodes poll for changes four times a second.

    Args:
        new_slot_log: returns an engine that ``async with`` opens and closes, for the use of this object alone.

    Attributes:
        refusals: how many writes failed because another node had written before.
        on_changed: is called in another thread soon after any node has written.
    """

    def __init__(self, new_slot_log: Callable[[], AbstractAsyncContextManager[SlotLog]]) -> None:
        self.refusals = 0
        self.on_changed: Callable[[], None] = lambda: None
        self._new_slot_log = new_slot_log
        self._state = _State(-1, {})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slot_log: SlotLog
        self._ended: asyncio.Event
        self._is_open: Future[None] = Future()
        self._is_seen = True
        self._told = self._purged = -1  # last slots of ``on_changed`` and of a purge
        # A process can end without closing this.
        self._thread = threading.Thread(target=self._run, name="groupcoord-documents", daemon=True)

    # ------------------------------------------------------------ life cycle

    def open(self) -> None:
        """Read the documents and start to poll for changes.

        Raises:
            SlotLogError: the engine failed.
            MalformedSlotError: a slot does not hold documents.
            TimeoutError: the engine does not answer.
        """
        self._thread.start()
        self._is_open.result(START_S)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._look_on())
        except BaseException as error:
            # Afterwards only the thread can report it.
            if self._is_open.done():
                raise
            self._is_open.set_exception(error)

    async def _look_on(self) -> None:
        self._ended = asyncio.Event()
        async with self._new_slot_log() as self._slot_log:
            await self._catch_up()
            # Documents of the start are no change.
            self._told = self._state.slot
            self._loop = asyncio.get_running_loop()
            self._is_open.set_result(None)
            while not self._ended.is_set():
                await self._look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), LOOK_S)
        self._loop = None

    async def _look(self) -> None:
        """Read what other nodes have written; log the first of consecutive failures."""
        try:
            async with asyncio.timeout(WRITE_S):
                await self._catch_up()
                last = self._state.slot
                if last > self._purged:
                    await self._slot_log.purge(DOCUMENTS_PARTITION, last)
                    self._purged = last
        except Exception as error:  # an engine may raise any error
            if self._is_seen:
                logger.warning("topics and settings stay as they were: the engine does not respond: %r", error)
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
        return f"{name} of the cluster"

    def stamp(self, name: str) -> object:
        found = self._state.documents.get(name)
        return None if found is None else found[0]

    def read(self, name: str) -> str:
        found = self._state.documents.get(name)
        if found is None:
            raise FileNotFoundError(name)
        return found[1]

    def write(self, name: str, text: str, seen: object) -> object:
        """Replace a document if its stamp is ``seen``, and return the new stamp.

        Raises:
            OSError: another node has written before, which :meth:`read` now shows. Or the engine does not answer and
                the document may have been written.
        """
        loop, before = self._loop, self._state
        if loop is None:
            raise OSError("what all nodes must know was closed")
        # A write would only wait for its timeout.
        if not self._is_seen:
            raise OSError("the engine does not respond")
        # The caller has to read the document first.
        if self.stamp(name) != seen:
            self._refuse()
        slot = before.slot + 1
        after = _State(slot, {**before.documents, name: (slot, text)})
        writing = asyncio.run_coroutine_threadsafe(self._put(after), loop)
        try:
            is_written = writing.result(WRITE_S)
        except TimeoutError:
            # The engine may still execute the put, so the outcome is unknown.
            writing.cancel()
            raise OSError("the engine does not answer: it may be written or not") from None
        if not is_written:
            self._refuse()
        return slot

    def _refuse(self) -> NoReturn:
        self.refusals += 1
        raise OSError("another node has written before")

    async def _put(self, state: _State) -> bool:
        """Fill the next slot and return whether this node did; otherwise apply what other nodes have put."""
        payload = _encoded(state)
        while True:
            try:
                if await self._slot_log.put(DOCUMENTS_PARTITION, state.slot, payload) is None:
                    self._state = state
                    return True
                slots = await self._slot_log.read(DOCUMENTS_PARTITION, state.slot)
                await self._catch_up()
            except SlotLogError:
                await asyncio.sleep(AGAIN_S)  # the next attempt shows whether the put was done
                continue
            if slots:  # none: the replica lags
                return slots[0].payload == payload  # an earlier attempt was written after all


def _encoded(state: _State) -> bytes:
    """Return a payload that no other put has, even with the same documents."""
    return json.dumps({"tag": secrets.token_hex(8), "documents": state.documents}).encode()


def _decoded(payload: bytes) -> Mapping[str, tuple[int, str]]:
    try:
        documents = json.loads(payload)["documents"]
        return {str(name): (int(slot), str(text)) for name, (slot, text) in documents.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise MalformedSlotError("a slot does not hold what all nodes must know") from None
