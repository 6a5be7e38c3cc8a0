"""Log-in and TLS under attack: tokens and frames that are garbage at every step, handshakes broken off or made up.

Each conversation follows from its number and the seed. Whatever is sent, what is whole is answered or the connection is
closed; nobody gets in by PLAIN without the password; and who knows it still logs in, with TLS and without.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jwt
import trustme
from scramp import ScramClient

from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import Target

HOST = "127.0.0.1"
USER, PASSWORD = "alice", "alice-secret"
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STRANGE_NAMES = ("", "GSSAPI", "plain", "PLAIN\0", "S" * 3_000, "SCRAM-SHA-1", "\ud7ff€")
SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS, HEARTBEAT, PRODUCE = 17, 36, 18, 12, 0
FLEXIBLE_FROM = {SASL_HANDSHAKE: 99, SASL_AUTHENTICATE: 2, API_VERSIONS: 3, HEARTBEAT: 4, PRODUCE: 9}
ANSWER_TIMEOUT_S = 20.0
QUIET_S = 0.005
HEALTHY_EVERY = 100
LINGER = struct.pack("ii", 1, 0)


class LoginFaultError(AssertionError):
    """A server did what it must not do."""


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Return a request with its size before it."""
    data = struct.pack(">hhih", api_key, version, 7, -1)
    data += b"\0" if version >= FLEXIBLE_FROM[api_key] else b""
    return struct.pack(">i", len(data) + len(body)) + data + body


def handshake(mechanism: str, version: int = 1) -> bytes:
    """Return a SaslHandshake."""
    name = mechanism.encode()
    return frame(SASL_HANDSHAKE, version, struct.pack(">h", len(name)) + name)


def authenticate(token: bytes, version: int) -> bytes:
    """Return a SaslAuthenticate."""
    if version < FLEXIBLE_FROM[SASL_AUTHENTICATE]:
        return frame(SASL_AUTHENTICATE, version, struct.pack(">i", len(token)) + token)
    length, value = b"", len(token) + 1
    while value > 0x7F:
        length, value = length + bytes((value & 0x7F | 0x80,)), value >> 7
    return frame(SASL_AUTHENTICATE, version, length + bytes((value,)) + token + b"\0")


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return bytes that are like others, or not at all."""
    kind = chance.randrange(7)
    place = chance.randrange(len(data) + 1)
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 3, 40, 4_000)))
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data[:place] + chance.randbytes(chance.randrange(1, 20)) + data[place:]
    if kind == 3:
        return data + data * chance.choice((1, 200))
    if kind == 4:
        return data.replace(chance.choice((b",", b"=", b"\0", b"\x01", b"n", b"r", b".")), b"", 1)
    if kind == 5:
        return data[:place] + chance.choice((b"\xff\xfe", b"\0\0", b",,,", b"=" * 50, "€".encode())) + data[place + 1 :]
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def is_whole(data: bytes) -> bool:
    """Tell whether bytes end with a whole request, or have a size that none has: then the server must react."""
    position = 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if size < 0 or size > 524_288:
            return True
        position += 4 + size
    return position == len(data) and position > 0


def read_frame(sock: socket.socket) -> bytes | None:
    """Return an answer; None if the server has closed the connection.

    Raises:
        LoginFaultError: there is none in time.
    """
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        try:
            part = sock.recv(65_536)
        except TimeoutError:
            raise LoginFaultError("neither an answer nor the end of the connection") from None
        except OSError:  # reset, or TLS that ends without a word
            return None
        if not part:
            return None
        data += part
    return data[4:]


def token_of(answer: bytes, version: int) -> bytes:
    """Return what an answer without an error holds for the mechanism."""
    if version < FLEXIBLE_FROM[SASL_AUTHENTICATE]:
        length = int.from_bytes(answer[8:12], "big")  # no message
        return answer[12 : 12 + length]
    length, place = answer[8] & 0x7F, 9  # a message's length of none, then that of the token
    if answer[8] & 0x80:
        length, place = length | answer[9] << 7, 10
    return answer[place : place + length - 1]


def steps_of(mechanism: str) -> Iterator[bytes]:
    """Yield what a client shows that knows the password; takes what the server answers."""
    if mechanism == "PLAIN":
        yield b"\0" + USER.encode() + b"\0" + PASSWORD.encode()
    elif mechanism == "OAUTHBEARER":
        claims = {"sub": USER, "exp": int(time.time()) + 3_600}
        yield f"n,,\x01auth=Bearer {jwt.encode(claims, '', 'none')}\x01\x01".encode()
    else:
        client = ScramClient([mechanism], USER, PASSWORD)
        answer = yield client.get_client_first().encode()
        assert answer is not None
        client.set_server_first(answer.decode())
        yield client.get_client_final().encode()


def log_in(sock: socket.socket, mechanism: str, spoil: int, chance: random.Random) -> bool:
    """Log in, with the step of this number spoilt; return whether the server took it to the end."""
    sock.sendall(handshake(mechanism))
    if read_frame(sock) is None:
        return False
    version = chance.randrange(3)
    steps = steps_of(mechanism)
    token, number = next(steps), 0
    while True:
        shown = mutated(token, chance) if number == spoil else token
        sock.sendall(authenticate(shown, version))
        answer = read_frame(sock)
        start = 5 if answer is not None and version >= FLEXIBLE_FROM[SASL_AUTHENTICATE] else 4
        if answer is None or answer[start : start + 2] != b"\0\0":
            return False
        if mechanism == "PLAIN" and shown.split(b"\0")[1:] != token.split(b"\0")[1:]:
            raise LoginFaultError(f"let in by {shown!r}")
        if number == spoil:
            return True
        try:
            token = steps.send(token_of(answer, version))  # type: ignore[attr-defined]
        except StopIteration:
            return True
        number += 1


class Logins:
    """Conversations with a server that has all listeners.

    Args:
        target: the server.
        authority: whose certificate it has.
    """

    def __init__(self, target: Target, authority: trustme.CA) -> None:
        self._target = target
        self._context = ssl.create_default_context()
        authority.configure_trust(self._context)

    def connect(self, listener: str) -> socket.socket:
        """Return a connection, without TLS."""
        sock = socket.create_connection((HOST, self._target.ports[listener]), ANSWER_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def secured(self, sock: socket.socket) -> ssl.SSLSocket:
        """Return a connection with TLS."""
        return self._context.wrap_socket(sock, server_hostname=HOST)

    def hello(self) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO, bytes]:
        """Return a handshake that has begun: its ends, and the first message of it."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        handshaking = self._context.wrap_bio(incoming, outgoing, server_hostname=HOST)
        with contextlib.suppress(ssl.SSLWantReadError):
            handshaking.do_handshake()
        return handshaking, incoming, outgoing, outgoing.read()

    # ------------------------------------------------------------ attacks

    def spoilt_token(self, chance: random.Random) -> str:
        """Log in with garbage at one of the steps."""
        mechanism, listener = chance.choice(MECHANISMS), chance.choice(("SASL_PLAINTEXT", "SASL_SSL"))
        with self.connect(listener) as plain, self._maybe_secured(plain, listener) as sock:
            log_in(sock, mechanism, chance.randrange(2), chance)
        return f"{mechanism} tokens"

    @contextlib.contextmanager
    def _maybe_secured(self, sock: socket.socket, listener: str) -> Iterator[socket.socket]:
        if not listener.endswith("SSL"):
            yield sock
            return
        secured = self.secured(sock)
        with secured:
            yield secured

    def spoilt_frames(self, chance: random.Random) -> str:
        """Send requests in any order, some of them mutated, before a log-in."""
        listener = chance.choice(("SASL_PLAINTEXT", "SASL_SSL"))
        requests = [
            chance.choice(
                (
                    handshake(chance.choice((*MECHANISMS, *STRANGE_NAMES)), chance.randrange(2)),
                    authenticate(chance.randbytes(chance.randrange(60)), chance.randrange(3)),
                    frame(API_VERSIONS, chance.randrange(4), b"\2a\2b\0"),
                    frame(HEARTBEAT, 3, b"\0\1g\0\0\0\1\0\1m\xff\xff"),
                    frame(PRODUCE, 3, b"\xff\xff\0\1\0\0\0\1\0\0\0\0"),
                )
            )
            for _ in range(chance.randrange(1, 5))
        ]
        data = b"".join(mutated(request, chance) if chance.random() < 0.4 else request for request in requests)
        with self.connect(listener) as plain, self._maybe_secured(plain, listener) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(data)
            if is_whole(data):
                read_frame(sock)
            elif chance.random() < 0.5:
                self._reset(plain)
        return "frames before a log-in"

    def broken_handshake(self, chance: random.Random) -> str:
        """Break a handshake off, at any byte of its first or second message; or fill it with noise."""
        listener = chance.choice(("SASL_SSL", "SSL"))
        handshaking, incoming, outgoing, first = self.hello()
        with self.connect(listener) as sock:
            kind = chance.choice(("cut", "noise", "second", "plain", "slow"))
            if kind == "cut":
                sock.sendall(first[: chance.randrange(len(first))])
            elif kind == "slow":
                for place in range(chance.randrange(1, 30)):
                    sock.sendall(first[place : place + 1])
            elif kind == "plain":
                sock.sendall(chance.choice((handshake("PLAIN"), b"GET / HTTP/1.1\r\n\r\n", chance.randbytes(500))))
            elif kind == "noise":
                sock.sendall(mutated(first, chance))
            else:
                sock.sendall(first)
                incoming.write(sock.recv(65_536))
                with contextlib.suppress(ssl.SSLError):
                    handshaking.do_handshake()
                with contextlib.suppress(OSError):
                    sock.sendall(mutated(outgoing.read(), chance))
            sock.settimeout(QUIET_S)
            with contextlib.suppress(OSError):
                sock.recv(65_536)
            if chance.random() < 0.3:
                self._reset(sock)
        return "TLS handshakes"

    def broken_stream(self, chance: random.Random) -> str:
        """Finish a handshake, then send records that are none, or leave without a word."""
        with self.connect("SASL_SSL") as plain:
            secured = self.secured(plain)
            secured.sendall(handshake("PLAIN")[: chance.randrange(20)])
            raw = socket.socket(fileno=secured.detach())
            with raw:
                if chance.random() < 0.7:
                    raw.sendall(chance.randbytes(chance.randrange(1, 3_000)))
                else:
                    self._reset(raw)
        return "TLS streams"

    def _reset(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)

    def healthy(self, chance: random.Random) -> None:
        """Log in as somebody who knows the password.

        Raises:
            LoginFaultError: that is refused.
        """
        for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
            for mechanism in MECHANISMS:
                with self.connect(listener) as plain, self._maybe_secured(plain, listener) as sock:
                    if not log_in(sock, mechanism, -1, chance):
                        raise LoginFaultError(f"{USER} is refused at {listener} by {mechanism}")


def attack_logins(siege: Siege, count: int, seed: int, only: int | None = None) -> Result:
    """Hold conversations of all kinds, one after the other.

    Args:
        siege: how.
        count: how many.
        seed: decides what is sent.
        only: the one of this number alone.
    """
    replay = f"python -m tests.attack logins --count {count} --seed {seed}"
    result = Result("logins", "SASL and TLS", replay)
    with tempfile.TemporaryDirectory(prefix="groupcoord-logins-") as name:
        folder, authority = Path(name), trustme.CA()
        (folder / "users").write_text(f"{USER}:{PASSWORD}\n")
        (folder / "server.pem").write_bytes(authority.issue_cert(HOST).private_key_and_cert_chain_pem.bytes())
        settings: dict[str, str | int] = {
            "listeners": ",".join(f"{listener}://{HOST}:0" for listener in LISTENERS),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.users.file": str(folder / "users"),
            "ssl.keystore.location": str(folder / "server.pem"),
            "connection.failed.authentication.delay.ms": 1,
        }

        def attack(target: Target, result: Result) -> None:
            logins = Logins(target, authority)
            for number in range(count) if only is None else [only]:
                _converse(logins, number, seed, result)
            logins.healthy(random.Random(seed))

        return dataclasses.replace(siege, settings={**siege.settings, **settings}).run(result, attack)


def _converse(logins: Logins, number: int, seed: int, result: Result) -> None:
    chance = random.Random(seed << 32 | number)
    kinds: list[Callable[[random.Random], str]] = [
        *(logins.spoilt_token, logins.spoilt_token, logins.spoilt_frames),
        *(logins.broken_handshake, logins.broken_handshake, logins.broken_stream),
    ]
    try:
        result.count(chance.choice(kinds)(chance))
        if number % HEALTHY_EVERY == 0:
            logins.healthy(chance)
            result.count("log-ins that must succeed", 2 * len(MECHANISMS))
    except (LoginFaultError, OSError) as error:
        result.fault(f"conversation {number}: {error!r}; {result.replay} --only {number}")
