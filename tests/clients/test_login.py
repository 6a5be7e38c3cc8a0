"""Log-in of client libraries by every mechanism that they have, and their errors when refused."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from groupcoord.testing import ServerThread
from tests.clients.beside import PROGRAMS, franz
from tests.storage.real_broker import HAS_KAFKA, LIBS

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CERTIFICATE = "certificate"
"""No mechanism of SASL: a client shows a certificate, whose file stands in the place of a password."""

USERS = {"alice": "alice-secret"}
TOPIC = "orders"
DEADLINE_S = 30.0
TOKEN_S = 3_600
WRONG = "wrong"
REFUSED_AFTER_MS = 200

pytestmark = pytest.mark.usefixtures("client_libraries")


def bearer_token(user: str) -> str:
    """Return an unsecured token; for the user ``nobody`` an expired one."""
    expires_at_s = int(time.time()) + TOKEN_S if user != "nobody" else 1
    return jwt.encode({"sub": user, "exp": expires_at_s}, "", "none")


def protocol(mechanism: str, authority: str) -> str:
    """Return what is spoken with a server: TLS where its certificate's authority is known."""
    if mechanism == CERTIFICATE:
        return "SSL"
    return "SASL_SSL" if authority else "SASL_PLAINTEXT"


def topics_of_confluent(bootstrap: str, mechanism: str, user: str, password: str, authority: str = "") -> set[str]:
    """Return the topics that librdkafka sees."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[Any] = []
    login: dict[str, Any] = {"sasl.username": user, "sasl.password": password}
    if mechanism == "OAUTHBEARER":
        login = {"oauth_cb": lambda _: (bearer_token(user), time.time() + TOKEN_S)}
    elif mechanism == CERTIFICATE:
        login = {"ssl.certificate.location": password, "ssl.key.location": password} if password else {}
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "security.protocol": protocol(mechanism, authority)}
    if mechanism != CERTIFICATE:
        config["sasl.mechanism"] = mechanism
    if authority:
        config["ssl.ca.location"] = authority
    client = AdminClient(config | login | {"error_cb": errors.append}, logger=_Silent())
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        try:
            return set(client.list_topics(timeout=0.2).topics)
        except KafkaException:
            client.poll(0)
            if any(error.name() == "_AUTHENTICATION" or "certificate required" in error.str() for error in errors):
                raise PermissionError(str(errors)) from None
    raise TimeoutError(str(errors[-3:]))


class _Silent:
    """A logger for librdkafka, which otherwise writes to stderr."""

    def log(self, *arguments: object) -> None:
        """Ignore a line."""


def topics_of_kafka_python(bootstrap: str, mechanism: str, user: str, password: str, authority: str = "") -> set[str]:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaTimeoutError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return bearer_token(user)

    try:
        client = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            security_protocol=protocol(mechanism, authority),
            sasl_mechanism=mechanism if mechanism != CERTIFICATE else None,
            sasl_plain_username=user,
            sasl_plain_password=password,
            sasl_oauth_token_provider=Provider() if mechanism == "OAUTHBEARER" else None,
            ssl_cafile=authority or None,
            ssl_certfile=password if mechanism == CERTIFICATE and password else None,
            bootstrap_timeout_ms=REFUSED_AFTER_MS if password in (WRONG, "") else DEADLINE_S * 1_000,
        )
    except KafkaTimeoutError as error:
        raise PermissionError(str(error)) from None
    try:
        return set(client.list_topics())
    finally:
        client.close()


def topics_of_aiokafka(bootstrap: str, mechanism: str, user: str, password: str, authority: str = "") -> set[str]:
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return bearer_token(user)

    context = ssl.create_default_context(cafile=authority) if authority else None
    if context is not None and mechanism == CERTIFICATE and password:
        context.load_cert_chain(password)

    async def ask() -> set[str]:
        client = AIOKafkaAdminClient(
            bootstrap_servers=bootstrap,
            security_protocol=protocol(mechanism, authority),
            sasl_mechanism=mechanism if mechanism != CERTIFICATE else "PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=password,
            sasl_oauth_token_provider=Provider() if mechanism == "OAUTHBEARER" else None,
            ssl_context=context,
        )
        try:
            await client.start()
            return set(await client.list_topics())
        except (AuthenticationFailedError, KafkaConnectionError) as error:
            raise PermissionError(str(error)) from None
        finally:
            await client.close()

    return asyncio.run(ask())


LIBRARIES: dict[str, Callable[..., set[str]]] = {
    "librdkafka": topics_of_confluent,
    "kafka-python": topics_of_kafka_python,
    "aiokafka": topics_of_aiokafka,
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the server's certificate, a client's, and that of their authority."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    client = authority.issue_cert("ann@example.org", common_name="ann")
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # Java reads no other
    (folder / "client.pem").write_bytes(text + b"".join(blob.bytes() for blob in client.cert_chain_pems))
    return folder


@pytest.fixture(scope="module")
def server(certificates: Path) -> Iterator[ServerThread]:
    """A server that asks for a log-in."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates / "server.pem"),
        "ssl.truststore.location": str(certificates / "authority.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": 0,
    }
    with ServerThread(topics={TOPIC: 1}, settings=settings, users=USERS) as server:
        yield server


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_log_in(server: ServerThread, library: str, mechanism: str) -> None:
    """With the right password or a good token a client sees the topics."""
    assert TOPIC in LIBRARIES[library](server.bootstrap, mechanism, "alice", "alice-secret")


@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_log_in_over_tls(server: ServerThread, certificates: Path, library: str) -> None:
    """A client that trusts the server's authority logs in there, too."""
    bootstrap, authority = server.bootstrap_of("SASL_SSL"), str(certificates / "authority.pem")

    assert TOPIC in LIBRARIES[library](bootstrap, "SCRAM-SHA-256", "alice", "alice-secret", authority)


@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_show_certificates(server: ServerThread, certificates: Path, library: str) -> None:
    """Where a certificate is required, a client with one sees the topics, and others are refused."""
    bootstrap, authority = server.bootstrap_of("SSL"), str(certificates / "authority.pem")

    assert TOPIC in LIBRARIES[library](bootstrap, CERTIFICATE, "", str(certificates / "client.pem"), authority)
    with pytest.raises(PermissionError):
        LIBRARIES[library](bootstrap, CERTIFICATE, "", "", authority)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_are_refused(server: ServerThread, library: str, mechanism: str) -> None:
    """With a wrong password or an expired token a client knows that it isn't let in."""
    user = "nobody" if mechanism == "OAUTHBEARER" else "alice"
    with pytest.raises(PermissionError):
        LIBRARIES[library](server.bootstrap, mechanism, user, WRONG)


JAVA_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


def topics_of_java(bootstrap: str, mechanism: str, user: str, password: str, authority: str = "") -> str:
    """Return the topics that Kafka's own client lists."""
    settings = {"bootstrap.servers": bootstrap, "security.protocol": protocol(mechanism, authority)}
    if mechanism == CERTIFICATE:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": password} if password else {}
    else:
        login = f'username="{user}" password="{password}"'
        if mechanism == "OAUTHBEARER":
            login = f'unsecuredLoginStringClaim_sub="{user}"'
        module = f"org.apache.kafka.common.security.{JAVA_MODULES[mechanism]}"
        settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {login};"}
    if authority:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    options = ["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{LIBS}/*"]
    words = [f"{key}={value}" for key, value in settings.items()]
    command = ["java", *options, str(PROGRAMS / "JavaLogin.java"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


def topics_of_franz(bootstrap: str, mechanism: str, user: str, password: str, authority: str = "") -> list[str]:
    secret = bearer_token(user) if mechanism == "OAUTHBEARER" else password
    command = [franz("./login") or "", bootstrap, mechanism, user, secret, *([authority] if authority else [])]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_KAFKA, reason="there is no java, or there are no jars of Kafka 4")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in(server: ServerThread, certificates: Path, mechanism: str) -> None:
    """Kafka's own client, without TLS and with it; it knows when its password is wrong."""
    authority = str(certificates / "authority.pem")
    plaintext, tls = server.bootstrap, server.bootstrap_of("SASL_SSL")

    assert topics_of_java(plaintext, mechanism, "alice", "alice-secret") == TOPIC
    assert topics_of_java(tls, mechanism, "alice", "alice-secret", authority) == TOPIC
    if mechanism != "OAUTHBEARER":
        assert topics_of_java(plaintext, mechanism, "alice", WRONG) == "refused"


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_franz_go_logs_in(server: ServerThread, certificates: Path, mechanism: str) -> None:
    """franz-go, without TLS and with it; it knows when its password is wrong."""
    if franz("./login") is None:
        pytest.skip("there is no Go, or its packages can't be had")
    authority = str(certificates / "authority.pem")
    plaintext, tls = server.bootstrap, server.bootstrap_of("SASL_SSL")

    assert TOPIC in topics_of_franz(plaintext, mechanism, "alice", "alice-secret")
    assert TOPIC in topics_of_franz(tls, mechanism, "alice", "alice-secret", authority)
    if mechanism != "OAUTHBEARER":
        assert topics_of_franz(plaintext, mechanism, "alice", WRONG) == ["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("told", [topics_of_java, topics_of_franz], ids=["java", "franz-go"])
def test_others_show_certificates(
    server: ServerThread, certificates: Path, told: Callable[..., Collection[str]]
) -> None:
    """Kafka's own client and franz-go with a certificate and without one, where one is required."""
    if told is topics_of_java and not HAS_KAFKA:
        pytest.skip("there is no java, or there are no jars of Kafka 4")
    if told is topics_of_franz and franz("./login") is None:
        pytest.skip("there is no Go, or its packages can't be had")
    bootstrap, authority = server.bootstrap_of("SSL"), str(certificates / "authority.pem")

    assert TOPIC in told(bootstrap, CERTIFICATE, "", str(certificates / "client.pem"), authority)
    assert "refused" in told(bootstrap, CERTIFICATE, "", "", authority)
