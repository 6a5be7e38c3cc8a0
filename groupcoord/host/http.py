"""HTTP server of the metrics and of the control port: WSGI in threads, with a bounded number of connections."""

from __future__ import annotations

import logging
import socket
import sys
import time
from contextlib import suppress
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.host.process import ACCEPT_PAUSE_S, is_reserved

logger = logging.getLogger("groupcoord.host")

READ_TIMEOUT_S = 10.0
STOP_CHECK_S = 0.05
CONNECTIONS_MAX = 16


class RequestHandler(WSGIRequestHandler):
    """Handler of a connection and its request, which is not logged."""

    timeout = READ_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        pass


class HttpServer(ThreadingMixIn, WSGIServer):
    """HTTP server in threads, open within a ``with`` block.

    Args:
        host, port: the address.
        purpose: the purpose of the server in log messages.
        application: answers requests, each in its own thread.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, purpose: str, application: WSGIApplication) -> None:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, address = found[0]
        self._purpose = purpose
        self._connections: dict[socket.socket, None] = {}
        self._log = RateLimitedLogger(logger)
        super().__init__((str(address[0]), int(address[1])), RequestHandler)
        self.set_app(application)

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(STOP_CHECK_S,), name="groupcoord-http", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._cut_off(list(self._connections))
        self._log.report(time.monotonic(), ends=True)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            self._warn("a connection could not be accepted", "no connection for %s: %s", error)
            # Descriptors have run out, and the socket stays readable.
            time.sleep(ACCEPT_PAUSE_S)
            raise

    def verify_request(self, request: Any, client_address: object) -> bool:
        # The log needs these descriptors.
        if is_reserved(request.fileno()):
            self._warn("too many open files", "refused a connection for %s: %s", "too many open files (ulimit -n)")
            return False
        # A new client is more likely to ask something than the oldest one.
        oldest = list(self._connections)[: 1 - CONNECTIONS_MAX]
        if oldest:
            self._cut_off(oldest)
            self._warn("too many connections", "closed the oldest connection for %s: %s", "another came")
        self._connections[request] = None
        return True

    def shutdown_request(self, request: Any) -> None:
        self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        self._warn("not understood", "a request for %s was not understood: %s", sys.exception())

    def _cut_off(self, connections: list[socket.socket]) -> None:
        for sock in connections:
            self._connections.pop(sock, None)
            # Not closed here: its thread reads from it.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _warn(self, kind: str, message: str, reason: object) -> None:
        self._log.warning(kind, time.monotonic(), message, self._purpose, reason)
