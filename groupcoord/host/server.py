"""Asyncio server of a :class:`~groupcoord.broker.broker.Broker`: sockets, TLS and timers, without Kafka's protocol.

Everything runs in the thread of the event loop, in turns of bounded time; jobs run in another thread
(``host/process.py``). What a peer can make the host keep is bounded: a request by ``socket.request.max.bytes``, waiting
requests by ``BACKLOG_LIMIT_BYTES``, unread responses by ``OUTPUT_LIMIT_BYTES``, ``WRITE_LIMIT_BYTES`` and one response
more. A connection counts for ``max.connections`` until its socket is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.security.principals import ClientPrincipal, NewPrincipal, UnmappedNameError
from groupcoord.broker.work import Job
from groupcoord.config.settings import INT64_MAX
from groupcoord.core.messages import Node
from groupcoord.host.process import JOBS, Listening, bind, descriptor_limit, is_reserved
from groupcoord.log_store import FlushingStore, LogStoreError

if TYPE_CHECKING:
    from groupcoord.broker.security.security import Security
    from groupcoord.broker.security.settings import Listener


WRITE_LIMIT_BYTES = 1024 * 1024
DRAIN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0

CLOSED = "closed the connection of %s: %s"


def forgets_limits(version: tuple[int, ...]) -> bool:
    """Return whether this Python's transports ignore the write limit in ``writelines`` (CVE-2024-12254)."""
    return (3, 12) <= version < (3, 12, 9) or (3, 13) <= version < (3, 13, 2)


FORGETS_LIMITS = forgets_limits(sys.version_info[:3])


def kafka_host(address: str) -> str:
    """Return a client's address as Kafka reports it: ``/127.0.0.1``, ``/0:0:0:0:0:0:0:1``, or ``/`` and other text."""
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


class Peer(asyncio.Protocol):
    """One socket of a server."""

    def __init__(self, server: Server, listener: str = "") -> None:
        self._server = server
        self.listener = listener
        self._drain_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_closing = False
        self._has_ended = False
        self.connection: Connection | None = None
        self.transport: asyncio.Transport
        self.address = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        peer_name = self.transport.get_extra_info("peername")
        if peer_name is None:  # the peer has disconnected already
            self.transport.abort()
            return
        self.address = f"{peer_name[0]}:{peer_name[1]}"
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        self.connection = self._server.accept(self, kafka_host(peer_name[0]), sock.fileno())
        if self.connection is None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        connection, server = self.connection, self._server
        if connection is None:
            return
        is_handled = connection.receive_data(data)
        if server.turn_handle is None:
            server.flush_soon()
        if is_handled:
            return
        if not connection.wants_reading:
            self._read_if_wanted()
        if server.broker.turns.is_over and server.broker.dirty:
            server.flush()

    def eof_received(self) -> bool:
        connection = self.connection
        self._has_ended = True
        if connection is not None and (connection.is_busy or connection.output_bytes):
            # As in Kafka's selector, received requests are still handled.
            self._arm_close_timer()
        else:
            self.disconnect("the peer has ended it", logging.DEBUG)
        return True

    def flush(self, now_s: float) -> None:
        connection = self.connection
        if connection is None:
            return
        parts = connection.take_output_parts()
        if parts:
            connection.active_at_s = now_s
        while parts:
            if len(parts) == 1:
                self.transport.write(parts[0])
            # Transports of uvloop and TLS respect the limit.
            elif FORGETS_LIMITS and isinstance(self.transport, asyncio.Transport):
                self.transport.write(b"".join(parts))
            else:
                self.transport.writelines(parts)
            # The rest stays in the connection.
            if not connection.output_bytes or self._drain_timer is not None:
                break
            parts = connection.take_output_parts()
        if self._is_closing:
            if not connection.output_bytes:
                self.transport.close()
        elif connection.closing is not None:
            self.disconnect(connection.closing, connection.closing_level)
        elif self._has_ended and not (connection.is_busy or connection.output_bytes):
            self.disconnect("the peer has ended it", logging.DEBUG)
        elif not self._is_reading:
            self._read_if_wanted()

    def pause_writing(self) -> None:
        reason = f"did not read its answers for {DRAIN_TIMEOUT_S:g} s"
        # A peer that never reads must not keep its responses.
        self._drain_timer = self._server.loop.call_later(DRAIN_TIMEOUT_S, self.disconnect, reason)
        if self.connection is not None:
            self.connection.pause()
            self._read_if_wanted()

    def resume_writing(self) -> None:
        self._cancel_drain_timer()
        if self.connection is None:
            return
        self.connection.resume()
        self.flush(self._server.broker.now_s())
        self._server.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_drain_timer()
        if self._close_timer is not None:
            self._close_timer.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
            self._server.forget(connection)

    def disconnect(self, reason: str, level: int = logging.WARNING) -> None:
        """Close the connection and log the reason. Earlier responses are still sent, unless the peer does not read."""
        connection = self.connection
        if connection is None or self._is_closing:
            return
        self._server.log.log(level, "closed connection", self._server.broker.now_s(), CLOSED, self.address, reason)
        self._is_closing = True
        connection.end(reason)
        if self._drain_timer is not None:
            self.transport.abort()
            return
        self._arm_close_timer()
        self._read_if_wanted()
        self.flush(self._server.broker.now_s())

    def _arm_close_timer(self) -> None:
        if self._close_timer is None:
            self._close_timer = self._server.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    def _read_if_wanted(self) -> None:
        connection = self.connection
        if connection is None or self.transport.is_closing():
            return
        is_wanted = not self._is_closing and not self._has_ended and connection.wants_reading
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


HANDSHAKE_TIMEOUT_S = 10.0
_READ_BYTES = 256 * 1024


class TlsTransport:
    """Encrypting transport; other methods are those of the inner one."""

    def __init__(self, transport: Any, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
        self._transport = transport
        self._tls = tls
        self._outgoing = outgoing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes | memoryview) -> None:
        if not self._transport.is_closing():
            self._tls.write(data)
            self.send_pending()

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        if not self._transport.is_closing():
            for part in parts:
                self._tls.write(part)
            self.send_pending()

    def send_pending(self) -> None:
        data = self._outgoing.read()
        if data:
            self._transport.write(data)

    def close(self) -> None:
        if not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self.send_pending()
        self._transport.close()


class TlsPeer(Peer):
    """Socket of a listener with TLS."""

    def __init__(
        self, server: Server, listener: str, context: ssl.SSLContext, new_principal: NewPrincipal | None
    ) -> None:
        super().__init__(server, listener)
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._outgoing = outgoing
        self._tls = context.wrap_bio(self._incoming, outgoing, server_side=True)
        self._new_principal = new_principal
        self._is_shaking_hands = True
        self._timer: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.connection is not None:
            self.transport = cast(Any, TlsTransport(transport, self._tls, self._outgoing))
            reason = f"the TLS handshake took longer than {HANDSHAKE_TIMEOUT_S:g} s"
            self._timer = self._server.loop.call_later(HANDSHAKE_TIMEOUT_S, self.disconnect, reason)

    def data_received(self, data: bytes) -> None:
        if self.connection is None:
            return
        self._incoming.write(data)
        try:
            if self._is_shaking_hands:
                self._tls.do_handshake()
                self._finish_handshake()
            self._read()
        except ssl.SSLWantReadError:
            self._send_pending()
        except ssl.SSLError as error:
            self._send_pending()
            what = "the TLS handshake failed" if self._is_shaking_hands else "TLS failed"
            self.disconnect(f"{what}: {error.reason or error}")
        except UnmappedNameError as error:
            self.disconnect(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _finish_handshake(self) -> None:
        self._is_shaking_hands = False
        self._cancel_timer()
        self._send_pending()
        if self._new_principal is not None and self.connection is not None:
            principal = self._new_principal(self._tls.getpeercert())
            self.connection.principal = ClientPrincipal(principal, self.connection.client_host)

    def _read(self) -> None:
        while plain := self._tls.read(_READ_BYTES):
            super().data_received(plain)
        self.eof_received()

    def _send_pending(self) -> None:
        cast(Any, self.transport).send_pending()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


logger = logging.getLogger("groupcoord.host")

SHUTDOWN_TIMEOUT_S = 2.0
RETRY_S = 1.0
RELOAD_S = 1.0
COMPACTION_PAUSE_S = 0.02
SHORTEST_SWEEP_S, LONGEST_SWEEP_S = 0.01, 30.0
LONGEST_TIMER_S = 86_400.0
"""Longest timer of the event loop; a longer one is set again when it fires."""

NEVER_MS = INT64_MAX
"""Value of ``log.flush.interval.ms`` with which the server never flushes."""
ACCEPT_BACKLOG = 1024


def advertised(node: Node, listener: Listener, port: int, number: int) -> Node:
    """Return a node with its address for the clients of a listener."""
    advertised_port = listener.advertised_port + number if listener.advertised_port else port
    return node._replace(host=listener.advertised_host, port=advertised_port)


class Server:
    """Listens and runs a broker on the sockets: ``async with Server(broker, port=0) as server: server.port``.

    Works with asyncio's own loop and uvloop. From :meth:`start` on the broker belongs to the server: call it in the
    thread of the event loop only. :meth:`stop` closes it. Port 0 takes a free port, which clients get if the broker's
    node has port 0.

    Args:
        broker: handles the requests.
        host: the address to listen on.
        port: the port to listen on.
        sock: a bound socket to use instead.
        socks: bound sockets by the names of the listeners in the broker's security settings, or ``""`` without
            listeners (then equal to ``sock``). With listeners, ``host``, ``port`` and ``sock`` are ignored.
        number: added to the ports of ``advertised.listeners``, for one of several nodes.

    Attributes:
        ports: the port of each listener by name, after the start.
    """

    def __init__(
        self,
        broker: Broker,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        sock: socket.socket | None = None,
        socks: Mapping[str, socket.socket] | None = None,
        number: int = 0,
    ) -> None:
        self.broker = broker
        self.host = host
        self.port = port
        self._number = number
        self.loop: asyncio.AbstractEventLoop
        self._socks = {**(socks or {}), **({} if sock is None else {"": sock})}
        self.log = RateLimitedLogger(logger)
        self.ports: dict[str, int] = {}
        self._listening: list[Listening] = []
        self._connecting: set[asyncio.Task[Any]] = set()
        self._peers: dict[Connection, Peer] = {}
        self.turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._periodic: dict[Callable[[], None], asyncio.TimerHandle] = {}

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
            OSError: the address is taken, or does not belong to this machine.
        """
        self.loop = asyncio.get_running_loop()
        self.broker.start_job = self._start_job
        security = self.broker.security
        if not security.listeners:
            self.port = await self._listen(Peer, "", self.host, self.port)
            if self.broker.node.port == 0:
                self.broker.node = self.broker.node._replace(port=self.port)
        else:
            await self._listen_on_all(security)
        self._sweep_idle()
        self._flush_store()
        self._compact()
        self._reload_failed()
        self._wake()

    async def _listen_on_all(self, security: Security) -> None:
        """Listen on every listener and set its address for clients; the first one's is the node's own."""
        nodes = []
        try:
            for listener in security.listeners:
                name = listener.name
                port = await self._listen(_new_peer(security, name), name, listener.host, listener.port)
                nodes.append(advertised(self.broker.node, listener, port, self._number))
                security.advertise(name, nodes[-1])
                self.ports[name] = port
        except OSError:
            self._stop_listening()
            raise
        self.port, self.broker.node = self.ports[security.listeners[0].name], nodes[0]

    async def _listen(self, new_peer: Callable[[Server, str], Peer], listener: str, host: str, port: int) -> int:
        sock = self._socks.get(listener)
        socks = await bind(host, port) if sock is None else [sock]
        accepted = partial(self._connect, partial(new_peer, self, listener))
        self._listening.append(Listening(socks, ACCEPT_BACKLOG, accepted, self._fail_to_accept))
        return self._listening[-1].port

    def _connect(self, factory: Callable[[], Peer], sock: socket.socket) -> None:
        task = self.loop.create_task(self.loop.connect_accepted_socket(factory, sock))
        self._connecting.add(task)
        task.add_done_callback(partial(self._end_connecting, sock))

    def _end_connecting(self, sock: socket.socket, task: asyncio.Task[Any]) -> None:
        self._connecting.discard(task)
        if task.cancelled() or task.exception() is not None:
            sock.close()

    def _fail_to_accept(self, error: OSError) -> None:
        self.log.warning("a connection could not be accepted", self.broker.now_s(), "no connection: %s", error)

    def _stop_listening(self) -> None:
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    async def stop(self) -> None:
        """Stop listening, send pending responses, and close the connections, the broker and its log store."""
        self._stop_listening()
        self._turn()
        self._cancel_timers()
        peers = list(self._peers.values())
        for peer in peers:
            peer.transport.close()
        await self._wait_until_closed()
        for peer in peers:
            peer.transport.abort()
        self.broker.close()
        self.log.report(self.broker.now_s(), ends=True)
        self.broker.security.failures.report(ends=True)

    async def abort(self) -> None:
        """Stop as a killed process does: nothing more is sent, handled or flushed. For tests."""
        self.kill()
        await self._wait_until_closed()

    def kill(self) -> None:
        """Stop as :meth:`abort`, without waiting for the sockets."""
        self._stop_listening()
        for sock in self._socks.values():
            sock.close()
        self._cancel_timers()
        self.drop_connections()
        self.broker.abandon()

    def cut_off(self, connection: Connection) -> None:
        """Reset a connection; pending responses are lost."""
        peer = self._peers.get(connection)
        if peer is not None:
            peer.transport.abort()

    def client_ids(self) -> set[str]:
        """Return the client ids of connected clients, from their ApiVersions requests."""
        return {connection.client_id for connection in self._peers if connection.client_id}

    def drop_connections(self, client_id: str | None = None) -> int:
        """Reset connections, as a network failure does; pending responses are lost.

        Returns:
            The number of connections.
        """
        dropped = [
            peer for connection, peer in self._peers.items() if client_id is None or connection.client_id == client_id
        ]
        for peer in dropped:
            peer.transport.abort()
        return len(dropped)

    def _cancel_timers(self) -> None:
        for timer in (self.turn_handle, self._timer, *self._periodic.values()):
            if timer is not None:
                timer.cancel()

    async def _wait_until_closed(self) -> None:
        """Wait until all connections are closed, for ``SHUTDOWN_TIMEOUT_S`` at most."""
        deadline_s = self.loop.time() + SHUTDOWN_TIMEOUT_S
        while (self._peers or self._connecting) and self.loop.time() < deadline_s:
            await asyncio.sleep(0.005)

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._peers)

    # ------------------------------------------------------------ for the peers

    def accept(self, peer: Peer, client_host: str, descriptor: int) -> Connection | None:
        """Return a new connection; None if the server stops, ``max.connections`` is reached or descriptors run out."""
        if not self._listening:
            return None
        limit = self.broker.config.max_connections
        if self.connection_count >= limit:
            self._refuse(peer, "too many connections", f"max.connections ({limit}) are open")
            return None
        # The log needs the last descriptors.
        if is_reserved(descriptor):
            reason = f"too many open files: {descriptor} of {descriptor_limit()} (ulimit -n)"
            self._refuse(peer, "too many open files", reason)
            return None
        connection = self.broker.connect(client_host, peer.listener)
        self._peers[connection] = peer
        return connection

    def _refuse(self, peer: Peer, kind: str, reason: str) -> None:
        self.log.warning(kind, self.broker.now_s(), "refused the connection of %s: %s", peer.address, reason)

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._peers.pop(connection, None)

    def flush_soon(self) -> None:
        """Schedule a flush and a turn for waiting requests after all readable sockets are read."""
        if self.turn_handle is None:
            # Responses that are sent together wake their receiver once.
            self.turn_handle = self.loop.call_soon(self._turn)

    def flush(self) -> None:
        """Send all pending responses, and set the timer if the broker wants to be woken earlier."""
        broker = self.broker
        now_s = broker.now_s()
        while broker.dirty:
            for connection in broker.take_dirty():
                peer = self._peers.get(connection)
                if peer is not None:
                    peer.flush(now_s)
        deadline_ms = broker.nearer_deadline_ms()  # in any case: it notes the state of the timers
        if self._timer is None:
            deadline_ms = broker.next_deadline_ms()
        self._set_timer(deadline_ms)
        if broker.turns.waiting:
            self.flush_soon()

    def _set_timer(self, deadline_ms: int | None) -> None:
        # Firing once for nothing is cheaper than moving the timer.
        if deadline_ms is not None and (self._timer is None or deadline_ms < self._timer_ms):
            self._wake_at(deadline_ms)

    def notice(self) -> None:
        """Schedule a flush and a look at deadlines after the broker was used outside of the event loop's callbacks."""
        if self.broker.dirty or self.broker.turns.waiting:
            self.flush_soon()
        else:
            self._set_timer(self.broker.next_deadline_ms())

    def clock_has_leapt(self) -> None:
        """Send pending responses and set the timer again, because the broker's clock was advanced."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.flush()

    def _turn(self) -> None:
        self.turn_handle = None
        broker = self.broker
        self.flush()
        # Sockets are read between two turns.
        if broker.run_turn():
            self.flush_soon()
        if broker.dirty or broker.interceptor is not None:  # an interceptor may set a deadline without a response
            self.flush()

    def _start_job(self, job: Job) -> None:
        JOBS.start(job, partial(self.loop.call_soon_threadsafe, self._finish_job, job))

    def _finish_job(self, job: Job) -> None:
        job.done()
        self.flush_soon()

    # ------------------------------------------------------------ timers

    def _wake_at(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = min(max(deadline_ms - self.broker.clock.now_ms(), 0) / 1000, LONGEST_TIMER_S)
        self._timer_ms = deadline_ms
        self._timer = self.loop.call_at(self.loop.time() + delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        try:
            self.broker.tick()
            self.flush()
        except Exception:
            logger.exception("timed work failed; the next try is in %g s", RETRY_S)
            self._timer_ms = self.broker.clock.now_ms() + int(RETRY_S * 1000)
            self._timer = self.loop.call_later(RETRY_S, self._wake)

    def _repeat(self, call: Callable[[], None], pause_s: float) -> None:
        self._periodic[call] = self.loop.call_later(pause_s, call)

    def _sweep_idle(self) -> None:
        now_s = self.broker.now_s()
        self.log.report(now_s)
        self.broker.security.failures.report()
        idle_s = self.broker.config.connections_max_idle_ms / 1000
        if idle_s < 0:
            idle_s = math.inf
        for connection, peer in list(self._peers.items()):
            if now_s - connection.active_at_s >= idle_s:
                peer.disconnect(f"idle for {idle_s:g} s (connections.max.idle.ms)", logging.INFO)
        pause_s = min(max(idle_s / 4, SHORTEST_SWEEP_S), LONGEST_SWEEP_S)
        self._repeat(self._sweep_idle, pause_s)

    def _reload_failed(self) -> None:
        try:
            self.broker.reload_failed()
            self.flush()
        except Exception:
            logger.exception("loading log partitions again failed")
        self._repeat(self._reload_failed, RELOAD_S)

    def _flush_store(self) -> None:
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
        self._repeat(self._flush_store, pause_s)

    def _compact(self) -> None:
        pause_s = min(self.broker.config.log_cleaner_backoff_ms / 1000, LONGEST_TIMER_S)
        try:
            if self.broker.compact_some():
                pause_s = COMPACTION_PAUSE_S
        except Exception:
            # Opening the log partition finishes a replacement of segments.
            logger.exception("compacting the log failed; the next try is in %g s", pause_s)
        self._repeat(self._compact, pause_s)


def _new_peer(security: Security, listener: str) -> Callable[[Server, str], Peer]:
    tls = security.tls.get(listener)
    if tls is None:
        return Peer
    return partial(TlsPeer, context=tls.context, new_principal=tls.new_principal)
