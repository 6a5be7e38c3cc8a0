"""The asyncio host: sockets around a :class:`~groupcoord.host.broker.Broker`. It feeds, flushes and wakes; it decides
nothing.

Everything runs in one thread, the event loop's. What a peer can make the host keep is bounded: a request by
``socket.request.max.bytes``, requests behind an unanswered one by ``BACKLOG_LIMIT_BYTES``, answers that the peer does
not read by ``WRITE_LIMIT_BYTES`` and what one more round of handling adds; after ``DRAIN_TIMEOUT_S`` it is
disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from types import TracebackType
from typing import Protocol, cast, runtime_checkable

from groupcoord.config import INT64_MAX
from groupcoord.host.broker import Broker
from groupcoord.host.connection import Connection
from groupcoord.log_store import LogStoreError

logger = logging.getLogger("groupcoord.host")

WRITE_LIMIT_BYTES = 1024 * 1024
DRAIN_TIMEOUT_S = 30.0
SHUTDOWN_TIMEOUT_S = 2.0
RETRY_S = 1.0
RELOAD_S = 1.0
COMPACTION_PAUSE_S = 0.02
"""Between two portions of compaction, of a millisecond or two each."""
SHORTEST_SWEEP_S, LONGEST_SWEEP_S = 0.01, 30.0
LONGEST_TIMER_S = 86_400.0
"""Event loops don't take absurd times; the timer is set anew when it fires."""

NEVER_MS = INT64_MAX
ACCEPT_BACKLOG = 1024


@runtime_checkable
class FlushingStore(Protocol):
    """A log store that wants to be told when a flush by time is due (``log.flush.interval.ms``)."""

    def flush_due(self, now_ms: int) -> int | None:
        """Flush what is due at ``now_ms``; return when the next flush will be, or None."""


@runtime_checkable
class CompactingStore(Protocol):
    """A log store that compacts what it holds, in portions (``log.cleaner.*``)."""

    def compact_some(self, now_ms: int) -> bool:
        """Do one portion, which takes a millisecond or two; return True if there is more to do."""


def kafka_host(address: str) -> str:
    """Return an IP address in the form in which Kafka reports a client's host: ``/127.0.0.1``, ``/0:0:0:0:0:0:0:1``."""
    plain, percent, scope = address.partition("%")
    try:
        parsed = ipaddress.ip_address(plain)
    except ValueError:
        return f"/{address}"
    if parsed.version == 4:
        return f"/{plain}"
    if parsed.ipv4_mapped is not None:
        return f"/{parsed.ipv4_mapped}"
    return "/" + ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + scope


class _Peer(asyncio.Protocol):
    """One socket."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._drain_timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self.connection: Connection | None = None
        self.transport: asyncio.Transport
        self.address = "?"
        self.last_active_s = server.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so there is nothing to assert here.
        self.transport = cast(asyncio.Transport, transport)
        peer_name = self.transport.get_extra_info("peername") or ("unknown", 0)
        self.address = f"{peer_name[0]}:{peer_name[1]}"
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        self.connection = self._server.accept(self, kafka_host(peer_name[0]))
        if self.connection is None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        connection, server = self.connection, self._server
        if connection is None:
            return
        connection.receive_data(data)
        self.last_active_s = server.loop.time()
        server.flush_soon()
        if not connection.wants_reading:
            self._read_if_wanted()

    def flush(self, now_s: float) -> None:
        """Send what the connection has to say; close if it must be.

        Args:
            now_s: the loop's time.
        """
        connection = self.connection
        if connection is None:
            return
        output = connection.take_output()
        if output:
            self.last_active_s = now_s
            self.transport.write(output)
        if connection.closing is not None:
            self.transport.write(connection.take_output())
            self.disconnect(connection.closing)
        elif not self._is_reading:
            self._read_if_wanted()

    def pause_writing(self) -> None:
        """The peer does not read its answers: handle nothing more until it does."""
        if self.connection is None:
            return
        self.connection.pause()
        self._read_if_wanted()
        reason = f"did not read its answers for {DRAIN_TIMEOUT_S:g} s"
        self._drain_timer = self._server.loop.call_later(DRAIN_TIMEOUT_S, self.disconnect, reason)

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._cancel_drain_timer()
        if self.connection is None:
            return
        self.connection.resume()
        self._server.flush()
        self._read_if_wanted()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_drain_timer()
        self._let_go()

    def disconnect(self, reason: str, level: int = logging.WARNING) -> None:
        """Close the connection and log why.

        Answers that were given before are still sent, unless the peer does not read.
        """
        if self.connection is None:
            return
        logger.log(level, "closed the connection of %s: %s", self.address, reason)
        is_stuck = self._drain_timer is not None
        self._cancel_drain_timer()
        self._let_go()
        if is_stuck:
            self.transport.abort()
        else:
            self.transport.close()

    def _let_go(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
            self._server.forget(connection)

    def _read_if_wanted(self) -> None:
        connection = self.connection
        if connection is None or self.transport.is_closing():
            return
        is_wanted = connection.wants_reading
        if is_wanted != self._is_reading:
            self._is_reading = is_wanted
            if is_wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _cancel_drain_timer(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None


class Server:
    """Listens, and runs a broker on the sockets: ``async with Server(broker, port=0) as server: server.port``.

    Works on asyncio's own loop and on uvloop. From :meth:`start` on the broker belongs to the server: call it from
    the event loop's thread only; :meth:`stop` closes it. Port 0 takes a free port; if the broker's node has port 0 as
    well, clients are told that one.

    Args:
        broker: answers the requests.
        host: the address to listen on.
        port: the port to listen on.
        sock: a bound socket to use instead.
    """

    def __init__(
        self, broker: Broker, host: str = "127.0.0.1", port: int = 9092, *, sock: socket.socket | None = None
    ) -> None:
        self.broker = broker
        self.host = host
        self.port = port
        self.loop: asyncio.AbstractEventLoop
        self._sock = sock
        self._listener: asyncio.Server | None = None
        self._peers: dict[Connection, _Peer] = {}
        self._send_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._reload_timer: asyncio.TimerHandle | None = None
        self._compaction_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken, or is not this machine's.
        """
        self.loop = asyncio.get_running_loop()
        if self._sock is not None:
            self._listener = await self.loop.create_server(self._new_peer, sock=self._sock, backlog=ACCEPT_BACKLOG)
        else:
            self._listener = await self.loop.create_server(self._new_peer, self.host, self.port, backlog=ACCEPT_BACKLOG)
        self.port = self._listener.sockets[0].getsockname()[1]
        if self.broker.node.port == 0:
            self.broker.node = self.broker.node._replace(port=self.port)
        self._sweep_idle()
        self._flush_store()
        self._compact_store()
        self._reload_failed()
        self._wake()

    async def stop(self) -> None:
        """Stop listening, send what is written, close every connection, then the broker and its log store."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.flush()
        timers = (self._timer, self._sweep_timer, self._flush_timer, self._reload_timer, self._compaction_timer)
        for timer in timers:
            if timer is not None:
                timer.cancel()
        peers = list(self._peers.values())
        for peer in peers:
            peer.transport.close()
        deadline_s = self.loop.time() + SHUTDOWN_TIMEOUT_S
        while self._peers and self.loop.time() < deadline_s:
            await asyncio.sleep(0.005)
        for peer in peers:
            peer.transport.abort()
        self.broker.close()

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._peers)

    # ------------------------------------------------------------ for the peers

    def accept(self, peer: _Peer, client_host: str) -> Connection | None:
        """Return a new connection; None if ``max.connections`` are open already."""
        limit = self.broker.config.max_connections
        if len(self._peers) >= limit:
            logger.warning("refused the connection of %s: max.connections (%d) are open", peer.address, limit)
            return None
        connection = self.broker.connect(client_host)
        self._peers[connection] = peer
        return connection

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""
        self._peers.pop(connection, None)

    def flush_soon(self) -> None:
        """Flush when all sockets were read that have something now.

        Most of what a small answer costs is waking whoever waits for it; many that are sent one after the other wake a
        client, or its processor, once.
        """
        if self._send_handle is None:
            self._send_handle = self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send everything that the broker has to say, and set the timer if it wants to be woken, or woken earlier."""
        if self._send_handle is not None:
            self._send_handle.cancel()
            self._send_handle = None
        broker, now_s = self.broker, self.loop.time()
        while broker.dirty:
            for connection in broker.take_dirty():
                peer = self._peers.get(connection)
                if peer is not None:
                    peer.flush(now_s)
        if broker.may_wake_earlier() or self._timer is None:
            deadline_ms = broker.next_deadline_ms()
            if deadline_ms is not None and (self._timer is None or deadline_ms < self._timer_ms):
                self._wake_at(deadline_ms)

    # ------------------------------------------------------------ timers

    def _new_peer(self) -> _Peer:
        return _Peer(self)

    def _wake_at(self, deadline_ms: int) -> None:
        # A later deadline leaves the timer as it is: it then fires once for nothing, which is cheaper than moving it
        # every time.
        if self._timer is not None:
            self._timer.cancel()
        delay_s = min(max(deadline_ms - self.broker.clock.now_ms(), 0) / 1000, LONGEST_TIMER_S)
        self._timer_ms = deadline_ms
        self._timer = self.loop.call_at(self.loop.time() + delay_s, self._wake)

    def _wake(self) -> None:
        """Let the broker do what is due."""
        self._timer = None
        try:
            self.broker.tick()
            self.flush()
        except Exception:
            logger.exception("timed work failed; the next try is in %g s", RETRY_S)
            self._timer_ms = self.broker.clock.now_ms() + int(RETRY_S * 1000)
            self._timer = self.loop.call_later(RETRY_S, self._wake)

    def _sweep_idle(self) -> None:
        """Close the connections that said nothing for ``connections.max.idle.ms``. One timer serves them all."""
        idle_s = self.broker.config.connections_max_idle_ms / 1000
        if idle_s < 0:
            return
        now_s = self.loop.time()
        for peer in list(self._peers.values()):
            if now_s - peer.last_active_s >= idle_s:
                peer.disconnect(f"idle for {idle_s:g} s (connections.max.idle.ms)", logging.INFO)
        pause_s = min(max(idle_s / 4, SHORTEST_SWEEP_S), LONGEST_SWEEP_S)
        self._sweep_timer = self.loop.call_later(pause_s, self._sweep_idle)

    def _reload_failed(self) -> None:
        """Try to serve log partitions again that failed."""
        try:
            self.broker.reload_failed()
            self.flush()
        except Exception:
            logger.exception("loading log partitions again failed")
        self._reload_timer = self.loop.call_later(RELOAD_S, self._reload_failed)

    def _flush_store(self) -> None:
        """Let the log store flush what has waited for ``log.flush.interval.ms``."""
        store, interval_ms = self.broker.log_store, self.broker.config.log_flush_interval_ms
        if interval_ms == NEVER_MS or not isinstance(store, FlushingStore):
            return
        pause_ms = interval_ms
        try:
            now_ms = self.broker.clock.now_ms()
            due_ms = store.flush_due(now_ms)
            if due_ms is not None:
                pause_ms = min(pause_ms, due_ms - now_ms)
        except LogStoreError as error:
            logger.error("the log could not be flushed: %s", error)
        pause_s = min(max(pause_ms / 1000, SHORTEST_SWEEP_S), LONGEST_TIMER_S)
        self._flush_timer = self.loop.call_later(pause_s, self._flush_store)

    def _compact_store(self) -> None:
        """Let the log store compact a little; often while there is something to do, rarely otherwise."""
        store = self.broker.log_store
        if not isinstance(store, CompactingStore):
            return
        pause_s = min(self.broker.config.log_cleaner_backoff_ms / 1000, LONGEST_TIMER_S)
        try:
            if store.compact_some(self.broker.clock.now_ms()):
                pause_s = COMPACTION_PAUSE_S
        except Exception:
            # A partition whose files were half replaced is put in order when it is used again.
            logger.exception("compacting the log failed; the next try is in %g s", pause_s)
        self._compaction_timer = self.loop.call_later(pause_s, self._compact_store)
