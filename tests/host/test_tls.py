"""Listeners with TLS: handshakes that succeed, fail and never end; certificates become principals."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from groupcoord import Config, ConfigError, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.security.security import Security
from groupcoord.core.messages import Node
from groupcoord.host import server as server_module
from groupcoord.host.server import Server
from groupcoord.records.batches import encode_batch, iter_batches
from tests.host.serving import in_a_loop
from tests.wire.kio_client import read_response, request_frame

HOST = "127.0.0.1"
TIMEOUT_S = 30.0


class Certificates:
    """An authority, a server's certificate and a client's."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        server = self.authority.issue_cert(HOST)
        self.client = self.authority.issue_cert("ann@example.org", common_name="ann", organization_name="Example, Org")
        self.server_path, self.authority_path = folder / "server.pem", folder / "authority.pem"
        self.server_text = server.private_key_and_cert_chain_pem.bytes().decode()
        self.server_path.write_text(self.server_text)
        self.authority.cert_pem.write_to_path(str(self.authority_path))

    def properties(self, **more: str) -> dict[str, str | int | float]:
        """Return the settings of a listener with TLS, and others with underscores for dots."""
        return {
            "listeners": f"SSL://{HOST}:0,PLAINTEXT://{HOST}:0",
            "ssl.keystore.location": str(self.server_path),
            "ssl.truststore.location": str(self.authority_path),
        } | {key.replace("_", "."): value for key, value in more.items()}

    def client_context(self, *, has_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if has_certificate:
            self.client.configure_cert(context)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that last for all tests."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def running(properties: dict[str, str | int | float], **config: int) -> AsyncIterator[Server]:
    clock = ManualClock(1_000)
    broker = make_broker(
        config=Config(offsets_topic_num_partitions=1, **config),
        clock=clock,
        log_store=MemoryLogStore(),
        node=Node(1, HOST, 0),
        security=Security(clock, properties=properties),
    )
    async with Server(broker) as server, asyncio.timeout(TIMEOUT_S):
        yield server


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> bytes:
    """Send a request, and return the answer with its size before it."""
    writer.write(struct.pack(">i", len(frame)) + frame)
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])


async def connected(server: Server, listener: str, context: ssl.SSLContext | None) -> tuple[list[object], bytes]:
    """Connect and ask which APIs there are; return the principals that the server sees meanwhile, and the answer."""
    reader, writer = await asyncio.open_connection(HOST, server.ports[listener], ssl=context)
    try:
        answer = await ask(reader, writer, request_frame(18, 0, {}))
        principals: list[object] = [connection.principal for connection in server._peers]
        return principals, answer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def ask_for_versions(server: Server, listener: str, context: ssl.SSLContext | None) -> int:
    """Send ApiVersions over TLS; return the number of APIs."""
    _, answer = await connected(server, listener, context)
    return len(read_response(18, 0, answer)["api_keys"])


@in_a_loop
async def test_requests_are_answered_over_tls(certificates: Certificates) -> None:
    """One listener with TLS and one without serve at once; a client without a certificate is anonymous."""
    async with running(certificates.properties()) as server:
        context = certificates.client_context()
        assert await ask_for_versions(server, "SSL", context) == await ask_for_versions(server, "PLAINTEXT", None)
        principals, answer = await connected(server, "SSL", context)
        assert principals == ["User:ANONYMOUS"]
        assert len(answer) - 4 > 100  # without its size


@in_a_loop
async def test_large_records(certificates: Certificates) -> None:
    """Batches of many records of TLS are appended, and read back as they were, however they are cut."""
    async with running(certificates.properties()) as server:
        with server.broker.topics.edit() as edit:
            edit.create("written", 1)
        batch = encode_batch(0, [(None, bytes(1_024), 1_000)] * 100, leader_epoch=-1, base_sequence=-1)
        written = {"index": 0, "records": batch}
        produce = {"acks": 1, "timeout": 0, "topic_data": [{"name": "written", "partition_data": [written]}]}
        frame = request_frame(0, 7, {"transactional_id": None, **produce})
        data = struct.pack(">i", len(frame)) + frame
        reader, writer = await asyncio.open_connection(HOST, server.ports["SSL"], ssl=certificates.client_context())
        for cut in (len(data), 3, 20_000):
            writer.write(data[:cut])
            await writer.drain()
            writer.write(data[cut:])
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = read_response(0, 7, struct.pack(">i", size) + await reader.readexactly(size))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        fetch = {"partition": 0, "fetch_offset": 100, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        asked = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "replica_id": -1, "isolation_level": 0}
        frame = request_frame(1, 4, {**asked, "topics": [{"topic": "written", "partitions": [fetch]}]})
        fetched = read_response(1, 4, await ask(reader, writer, frame))["responses"][0]["partitions"][0]["records"]
        assert [found.base_offset for found in iter_batches(fetched)] == [100, 200]
        assert fetched[61 : len(batch)] == batch[61:]
        writer.close()


@in_a_loop
async def test_a_certificate_is_a_principal(certificates: Certificates) -> None:
    """Its name as Java writes it, or what a rule makes of it."""
    seen = []
    mutual = certificates.properties(ssl_client_auth="required")
    for properties in (mutual, mutual | {"ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U,DEFAULT"}):
        async with running(properties) as server:
            seen += (await connected(server, "SSL", certificates.client_context(has_certificate=True)))[0]

    assert str(seen[0]).startswith("User:CN=ann,")
    assert "O=Example\\, Org" in str(seen[0])
    assert seen[1] == "User:ANN"


@in_a_loop
async def test_who_must_have_a_certificate_and_has_none_is_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is closed with a log line; where a certificate is only requested, the client is anonymous."""

    with caplog.at_level(logging.WARNING, "groupcoord.host"):
        async with running(certificates.properties(ssl_client_auth="required")) as server:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await ask_for_versions(server, "SSL", certificates.client_context())
    assert "the TLS handshake failed: PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.text
    async with running(certificates.properties(ssl_client_auth="requested")) as server:
        principals, _ = await connected(server, "SSL", certificates.client_context())
        assert principals == ["User:ANONYMOUS"]


@in_a_loop
async def test_plaintext_on_a_tls_listener_is_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that speaks no TLS has its connection closed, and others are served."""

    with caplog.at_level(logging.WARNING, "groupcoord.host"):
        async with running(certificates.properties()) as server:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await ask_for_versions(server, "SSL", None)
            assert await ask_for_versions(server, "SSL", certificates.client_context())
    assert "the TLS handshake failed" in caplog.text


@in_a_loop
async def test_whom_no_rule_is_for_is_not_let_in(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka the connection is closed: a name without a rule does not become ANONYMOUS, which
    may be a super user.
    """
    rules = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=nobody$/x/"}
    with caplog.at_level(logging.WARNING, "groupcoord.host"):
        async with running(certificates.properties() | rules) as server:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await ask_for_versions(server, "SSL", certificates.client_context(has_certificate=True))
    assert "no rule of ssl.principal.mapping.rules matches the name 'CN=ann," in caplog.text


@in_a_loop
async def test_a_handshake_that_never_ends(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts for ``max.connections``, delays no other connection, and times out."""
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with running(certificates.properties(), max_connections=2) as server:
        with socket.create_connection((HOST, server.ports["SSL"])) as silent:
            silent.sendall(b"\x16\x03\x01")
            assert await ask_for_versions(server, "PLAINTEXT", None)
            while server.connection_count:  # it is let go by itself
                await asyncio.sleep(0.005)
        held = [socket.create_connection((HOST, server.ports["SSL"])) for _ in range(2)]
        while server.connection_count < 2:
            await asyncio.sleep(0.001)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await ask_for_versions(server, "PLAINTEXT", None)
        for sock in held:
            sock.close()


@in_a_loop
async def test_certificates_may_stand_in_the_settings(certificates: Certificates) -> None:
    """``ssl.keystore.key`` and its kin have PEM as text."""
    chain = certificates.server_text[certificates.server_text.index("-----BEGIN CERTIFICATE") :]
    key = certificates.server_text.removesuffix(chain)
    properties = certificates.properties(ssl_keystore_certificate_chain=chain, ssl_keystore_key=key)
    properties["ssl.truststore.certificates"] = certificates.authority_path.read_text()
    for name in ("ssl.keystore.location", "ssl.truststore.location"):
        del properties[name]
    async with running(properties) as server:
        assert await ask_for_versions(server, "SSL", certificates.client_context())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ssl.keystore.location": ""}, "needs a certificate and its key"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "No such file"),
        ({"ssl.keystore.type": "JKS"}, "must be one of PEM"),
        ({"ssl.truststore.location": "/nowhere.pem"}, "No such file"),
        ({"ssl.client.auth": "perhaps"}, "must be one of none, requested, required"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "is no rule"),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "missing )"),
    ],
)
def test_wrong_settings_are_refused(
    certificates: Certificates, changed: dict[str, str | int | float], message: str
) -> None:
    """The server does not start, and names the wrong settings."""
    with pytest.raises(ConfigError) as caught:
        Security(ManualClock(), properties=certificates.properties() | changed)

    assert message in str(caught.value)
