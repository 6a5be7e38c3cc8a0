"""A broker with several listeners on a clock turned by hand, and clients that log in with real bytes."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.security.security import Security
from groupcoord.core.router.authorization import Authorize, Operation, Resource
from groupcoord.errors import ErrorCode
from groupcoord.wire.registry import APIS
from tests.broker.driving import drain, feed
from tests.wire.kio_client import read_response, request_frame

NOW_MS = 1_790_000_000_000
"""Some day in 2026: the tokens of the conversations are good until 2100."""

UNTIL_2100_MS = 4_102_444_800_000 - NOW_MS
KEYS = {api.name: api.key for api in APIS.values()}
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"}
SUPER_USERS = ("User:ANONYMOUS", "User:admin")

PROPERTIES: dict[str, str | int | float] = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0,REAUTH://127.0.0.1:0",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,REAUTH:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.reauth.connections.max.reauth.ms": 1000,
}

Values = dict[str, Any]


def super_users_only(principal: Any, operation: Operation, resource: Resource) -> bool:
    """Decide as Kafka's authorizer does where there are no ACLs."""
    return principal in SUPER_USERS


class LoginWorld:
    """Broker, and connections to its listeners. Args: properties: settings in addition to :data:`PROPERTIES`.
    directory: the folder of credentials. passwords: passwords by user, from the start. authorize: the authorizer; None:
    ACLs, if there are any.
    """

    def __init__(
        self,
        properties: dict[str, str | int | float] | None = None,
        directory: Path | None = None,
        passwords: dict[str, str] | None = None,
        authorize: Authorize | None = super_users_only,
    ) -> None:
        self.clock = ManualClock(NOW_MS)
        users = PASSWORDS if passwords is None else passwords
        self.security = Security(self.clock, directory, PROPERTIES | (properties or {}), users)
        self.broker = make_broker(
            config=Config(offsets_topic_num_partitions=1),
            clock=self.clock,
            log_store=MemoryLogStore(),
            authorize=authorize,
            security=self.security,
        )

    def connect(self, listener: str = "SASL", host: str = "/127.0.0.1") -> LoginClient:
        return LoginClient(self, self.broker.connect(host, listener))

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.broker.tick()

    def add_scram_user(
        self, name: str, password: str, salt: bytes = b"a-fixed-salt-of-mine", iterations: int = 4096
    ) -> None:
        """Create credentials of both mechanisms, as an administrator does."""
        for mechanism, hash_name in ((1, "sha256"), (2, "sha512")):
            salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
            upsertion = {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": salt}
            body = {"deletions": (), "upsertions": (upsertion | {"salted_password": salted},)}
            answer = self.connect("PLAINTEXT").ask("AlterUserScramCredentials", 0, body)
            assert answer["results"][0]["error_code"] == "NONE"


class LoginClient:
    """One connection."""

    def __init__(self, world: LoginWorld, connection: Connection) -> None:
        self._world = world
        self.connection = connection

    @property
    def is_closed(self) -> bool:
        """Return whether the server has closed the connection."""
        return self.connection.closing is not None

    def send(self, api: str, version: int, body: Values) -> None:
        self.send_frame(request_frame(KEYS[api], version, body))

    def send_frame(self, frame: bytes) -> None:
        """Send bytes, with their length before them."""
        feed(self.connection, struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes | None:
        """Return what has come, without its length; None if that is nothing."""
        output = drain(self.connection)
        if not output:
            return None
        assert len(output) == 4 + struct.unpack_from(">i", output)[0]
        return output[4:]

    def receive(self, api: str, version: int) -> Values | None:
        """Return the answer that has come to a request, with the names of errors; None if there is none."""
        frame = self.receive_frame()
        if frame is None:
            return None
        return named(read_response(KEYS[api], version, struct.pack(">i", len(frame)) + frame))

    def ask(self, api: str, version: int, body: Values) -> Values:
        """Send a request, and return the answer, which must come at once."""
        self.send(api, version, body)
        answer = self.receive(api, version)
        assert answer is not None
        return answer

    def shake_hands(self, mechanism: str) -> Values:
        """Choose a mechanism."""
        return self.ask("SaslHandshake", 1, {"mechanism": mechanism})

    def show(self, token: bytes) -> Values:
        """Send a token, and return the answer, for which it may have to wait."""
        self.send("SaslAuthenticate", 2, {"auth_bytes": token})
        answer = self.receive("SaslAuthenticate", 2)
        if answer is None:
            self._world.pass_time(100)
            answer = self.receive("SaslAuthenticate", 2)
        assert answer is not None
        return answer

    def log_in_plain(self, user: str, password: str) -> Values:
        self.shake_hands("PLAIN")
        return self.show(f"\0{user}\0{password}".encode())


def named(value: Any) -> Any:
    """Return an answer with error codes by name, without throttle times, bytes in hex."""
    if isinstance(value, dict):
        return {
            key: ErrorCode(inner).name if key == "error_code" else named(inner)
            for key, inner in value.items()
            if key != "throttle_time"
        }
    if isinstance(value, list):
        return [named(inner) for inner in value]
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def from_json(value: Any) -> Any:
    """Return the body of a request as kio wants it: bytes, and tuples for lists."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"]) if set(value) == {"hex"} else {k: from_json(v) for k, v in value.items()}
    return tuple(map(from_json, value)) if isinstance(value, list) else value


def conversations(name: str) -> list[Values]:
    found: list[Values] = json.loads((Path(__file__).parent / name).read_text("utf-8"))
    return found
