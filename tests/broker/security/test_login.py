"""Log-in beyond the recorded conversations: accepted and refused clients, their cost for others, and log lines."""

from __future__ import annotations

import base64
import errno
import logging
import stat
from pathlib import Path

import jwt
import pytest
from scramp import ScramClient

from groupcoord import ManualClock
from groupcoord.broker.security.sasl import ADDRESSES_MAX, read_users
from groupcoord.broker.security.scram import CredentialFileError, Nobody, ScramCredential
from groupcoord.broker.security.security import Security, is_security_key
from groupcoord.errors import ConfigError
from tests.broker.security.world import NOW_MS, LoginClient, LoginWorld
from tests.tables import as_one_test

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
INVALID = "Authentication failed: Invalid username or password"


def scram_answers(client: LoginClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> list[str]:
    """Return the errors of both steps of a log-in; the second is not taken when the first fails."""
    scram = ScramClient([mechanism], user, password)
    client.shake_hands(mechanism)
    first = client.show(scram.get_client_first().encode())
    if first["error_code"] != "NONE":
        return [first["error_code"]]
    scram.set_server_first(bytes.fromhex(first["auth_bytes"]["hex"]).decode())
    return [first["error_code"], client.show(scram.get_client_final().encode())["error_code"]]


def bearer(**claims: object) -> bytes:
    """Return the message with an unsecured token."""
    return f"n,,\x01auth=Bearer {jwt.encode(claims, '', 'none')}\x01\x01".encode()


def test_an_unknown_user_fails_like_a_wrong_password() -> None:
    """With every mechanism, neither messages nor timing reveal whether a user exists."""
    world = LoginWorld()
    world.add_scram_user("carol", "carol-secret")

    assert scram_answers(world.connect(), "carol", "carol-secret") == ["NONE", "NONE"]
    assert scram_answers(world.connect(), "carol", "no") == ["NONE", "SASL_AUTHENTICATION_FAILED"]
    assert scram_answers(world.connect(), "nobody", "no") == ["NONE", "SASL_AUTHENTICATION_FAILED"]
    refusals = [world.connect().log_in_plain(user, "no") for user in ("alice", "nobody")]
    assert refusals[0] == refusals[1]
    assert refusals[0]["error_message"] == INVALID


def shown_to(world: LoginWorld, user: str) -> tuple[bytes, int]:
    client = world.connect()
    client.shake_hands("SCRAM-SHA-256")
    answer = client.show(f"n,,n={user},r=abcdef".encode())
    _, salt, iterations = bytes.fromhex(answer["auth_bytes"]["hex"]).decode().split(",")
    return base64.b64decode(salt[2:]), int(iterations[2:])


def test_an_unknown_user_has_one_salt(tmp_path: Path) -> None:
    """Repeated attempts get the same salt, also after a restart, as for existing users."""
    world = LoginWorld(directory=tmp_path)
    world.add_scram_user("carol", "carol-secret")
    names = ("carol", "alice", "nobody")
    before = [shown_to(world, name) for name in names]

    assert [shown_to(world, name) for name in names] == before
    assert [shown_to(LoginWorld(directory=tmp_path), name) for name in names] == before
    assert len(set(before)) == len({shown_to(LoginWorld(), "nobody"), *before}) - 1 == 3


def test_an_unknown_user_looks_like_those_that_there_are() -> None:
    """Its salt and iterations are those of a user that can log in. One Java salt in 2,000 has less than 24 digits."""
    world = LoginWorld(passwords={})
    world.add_scram_user("short", "secret", b"short", 5000)
    for number, salt in enumerate((b"a binary salt, 64 bytes".ljust(64, b"\0"), b"1hz3nspj7d2r6amlfmbi4ad7yj")):
        world.add_scram_user(f"user-{number}", "secret", salt, 4096 << number)
    unknown = [shown_to(world, f"nobody-{number}") for number in range(64)]

    kinds = {(len(salt) == 64, iterations) for salt, iterations in (shown_to(world, "short"), *unknown)}
    assert kinds == {(True, 4096), (False, 8192)}
    java_salts = [salt for salt, iterations in unknown if iterations == 8192]
    assert all(
        20 <= len(salt) <= 26 and set(salt) <= set(b"0123456789abcdefghijklmnopqrstuvwxyz") for salt in java_salts
    )
    assert len({salt for salt, _ in unknown}) == len(unknown)


def test_shapes_are_as_frequent_as_among_users_and_stay() -> None:
    """Of 2,000 unknown names a quarter looks like a quarter of the users; a new kind of user changes no other name."""
    key = b"k" * 32
    usual, rare, new = (ScramCredential(b"s" * 32, key, key, iterations) for iterations in (4096, 8192, 16384))
    nobody = Nobody(b"a secret")
    names = [f"name-{number}" for number in range(2_000)]

    def looks() -> list[int]:
        return [nobody.credential("SCRAM-SHA-256", name).iterations for name in names]

    nobody.resemble("SCRAM-SHA-256", [usual] * 3 + [rare])
    before = looks()
    assert 450 < before.count(8192) < 550
    nobody.resemble("SCRAM-SHA-256", [usual] * 3 + [rare, new])
    moved = [pair for pair in zip(before, looks(), strict=True) if pair[0] != pair[1]]
    assert {after for _, after in moved} == {16384}
    assert 350 < len(moved) < 450


def test_credentials_are_kept(tmp_path: Path) -> None:
    """A broker that is started on the same directory knows the credentials that were made, and no password."""
    LoginWorld(directory=tmp_path, passwords={}).add_scram_user("carol", "carol-secret")
    again = LoginWorld(directory=tmp_path, passwords={})

    assert scram_answers(again.connect(), "carol", "carol-secret") == ["NONE", "NONE"]
    assert "carol-secret" not in (tmp_path / "scram-credentials.json").read_text()


def test_nobody_else_may_read_credentials(tmp_path: Path) -> None:
    """The file is readable by its owner only: new, rewritten, after an interrupted write, or with a mode that was
    widened.
    """
    path, left = tmp_path / "scram-credentials.json", tmp_path / "scram-credentials.json.tmp"

    def mode() -> int:
        return stat.S_IMODE(path.stat().st_mode)

    left.touch(0o666)
    world = LoginWorld(directory=tmp_path)
    modes = []
    for name in ("carol", "dan"):
        world.add_scram_user(name, "secret")
        modes.append(mode())
    path.chmod(0o644)
    LoginWorld(directory=tmp_path)

    assert [*modes, mode()] == [0o600] * 3


def test_credentials_that_others_may_read_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the mode can't be changed the server starts, and logs it."""
    LoginWorld(directory=tmp_path).add_scram_user("carol", "carol-secret")
    (tmp_path / "scram-credentials.json").chmod(0o644)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with caplog.at_level(logging.WARNING, "groupcoord.host"):
        again = LoginWorld(directory=tmp_path)
    assert "others may read it: Operation not permitted" in caplog.text
    assert scram_answers(again.connect(), "carol", "carol-secret") == ["NONE", "NONE"]


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version": 1, "credentials": [{"user": "a"}]}'])
def test_a_broken_file_of_credentials_is_refused(tmp_path: Path, content: str) -> None:
    """The server doesn't start, and names the file."""
    (tmp_path / "scram-credentials.json").write_text(content)

    with pytest.raises(CredentialFileError, match=r"scram-credentials\.json"):
        LoginWorld(directory=tmp_path)


def test_credentials_that_can_not_be_written_do_not_change(tmp_path: Path) -> None:
    """The request fails, and the old credentials stay valid."""
    world = LoginWorld(directory=tmp_path / "gone")
    upsertion = {"name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"s" * 12, "salted_password": b"p"}
    answer = world.connect("PLAINTEXT").ask(
        "AlterUserScramCredentials", 0, {"deletions": (), "upsertions": (upsertion,)}
    )

    assert answer["results"][0]["error_code"] == "UNKNOWN_SERVER_ERROR"
    assert world.security.credentials.find("SCRAM-SHA-256", "carol") is None


def test_a_short_salt_can_be_kept_but_not_used() -> None:
    """As in Kafka such credentials are stored, and no log-in with them succeeds."""
    world = LoginWorld()
    world.add_scram_user("carol", "carol-secret", b"short")

    assert scram_answers(world.connect(), "carol", "carol-secret")[-1] == "SASL_AUTHENTICATION_FAILED"


def test_a_token_ends_the_session() -> None:
    """When the token has expired, the next request ends the connection; re-authentications before that prevent it."""
    world = LoginWorld()
    client = world.connect()
    client.shake_hands("OAUTHBEARER")
    now_s = NOW_MS // 1000
    # An extension (KIP-342) may have any value.
    token = bearer(sub="dan", exp=now_s + 60).replace(b"\x01auth", b"\x01traceId=a=b=\x01auth")
    answer = client.show(token)
    assert (answer["error_code"], answer["session_lifetime"]) == ("NONE", 60_000)
    for end_s, lifetime_ms in ((120, 61_000), (180, 62_000)):
        world.pass_time(59_000)
        client.shake_hands("OAUTHBEARER")
        assert client.show(bearer(sub="dan", exp=now_s + end_s))["session_lifetime"] == lifetime_ms
    world.pass_time(62_000)
    client.ask("Heartbeat", 4, HEARTBEAT)
    world.pass_time(1)
    client.send("Heartbeat", 4, HEARTBEAT)

    assert client.is_closed


def test_nothing_long_is_taken_before_the_log_in() -> None:
    """A request larger than ``sasl.server.max.receive.size`` closes the connection; after the log-in it is read."""
    world = LoginWorld({"sasl.server.max.receive.size": 100})
    late, early = world.connect(), world.connect()
    late.log_in_plain("admin", "admin-secret")
    group_ids = ["g" * 50] * 10
    for client in (late, early):
        client.send("DescribeGroups", 5, {"groups": group_ids, "include_authorized_operations": False})

    assert early.is_closed
    assert "is larger than sasl.server.max.receive.size (100) before its log-in" in (early.connection.closing or "")
    answer = late.receive("DescribeGroups", 5)
    assert answer is not None
    assert len(answer["groups"]) == 10


def test_a_long_token_is_read_at_once() -> None:
    """One that any other request would be read in portions for is refused like a short one."""
    assert LoginWorld().connect().log_in_plain("alice", "x" * 20_000)["error_message"] == INVALID


def test_a_refused_client_does_not_keep_others_waiting() -> None:
    """While one waits for its refusal, others are answered; what it sends meanwhile is dropped."""
    world = LoginWorld()
    refused, other = world.connect(), world.connect("PLAINTEXT")
    refused.shake_hands("PLAIN")
    refused.send("SaslAuthenticate", 2, {"auth_bytes": b"\0alice\0no"})
    refused.send("SaslAuthenticate", 2, {"auth_bytes": b"\0alice\0alice-secret"})
    assert other.ask("Heartbeat", 4, HEARTBEAT)["error_code"] == "UNKNOWN_MEMBER_ID"
    assert refused.receive("SaslAuthenticate", 2) is None
    world.pass_time(100)
    answer = refused.receive("SaslAuthenticate", 2)

    assert answer is not None
    assert answer["error_code"] == "SASL_AUTHENTICATION_FAILED"
    assert refused.is_closed
    assert refused.receive_frame() is None


def test_a_client_that_leaves_before_its_refusal_is_forgotten() -> None:
    """Its refusal falls due, and nothing happens."""
    world = LoginWorld()
    client = world.connect()
    client.shake_hands("PLAIN")
    client.send("SaslAuthenticate", 2, {"auth_bytes": b"\0alice\0no"})
    client.connection.close()
    world.pass_time(100)

    assert client.receive_frame() is None
    assert world.security.refusals.next_deadline_ms() is None


def test_the_log_says_who_failed_and_from_where(caplog: pytest.LogCaptureFixture) -> None:
    """A few lines for each address, with the user's name and no password; then how many were left out."""
    world = LoginWorld()
    with caplog.at_level(logging.WARNING, "groupcoord.host"):
        for host in ("/10.0.0.1", "/10.0.0.2"):
            for _ in range(20):
                client = world.connect(host=host)
                client.log_in_plain("alice", "a-wrong-secret")
        world.security.failures.report(ends=True)
    lines = [record.getMessage() for record in caplog.records]

    for host in ("/10.0.0.1", "/10.0.0.2"):
        line = f"log-in from {host} failed: PLAIN as 'alice': {INVALID}"
        assert lines.count(line) == 5
        assert sum(f"{host}: the last of 15 lines left out" in other for other in lines) == 1
    assert "a-wrong-secret" not in "".join(lines)


def test_the_log_counts_many_addresses_together(caplog: pytest.LogCaptureFixture) -> None:
    """A bounded number of addresses have lines of their own; all others share one."""
    world = LoginWorld()
    with caplog.at_level(logging.WARNING, "groupcoord.host"):
        for number in range(ADDRESSES_MAX + 20):
            world.security.failures.warn(f"/10.0.{number // 256}.{number % 256}", "PLAIN", "alice", "no")

    assert len(caplog.records) == ADDRESSES_MAX + 5


def test_clients_are_told_the_listener_they_came_by() -> None:
    """Metadata, FindCoordinator and DescribeCluster name the address of the client's own listener."""
    world = LoginWorld()
    for number, listener in enumerate(world.security.listeners, 1):
        world.security.advertise(listener.name, world.broker.node._replace(host=listener.name.lower(), port=number))
    for number, name in enumerate(("PLAINTEXT", "SASL"), 1):
        client = world.connect(name)
        if name == "SASL":
            client.log_in_plain("admin", "admin-secret")
        metadata = client.ask("Metadata", 1, {"topics": ()})
        few = client.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ("g",)})
        many = client.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": tuple(map(str, range(20)))})
        cluster = client.ask("DescribeCluster", 0, {"include_cluster_authorized_operations": False})
        told = [*metadata["brokers"], *few["coordinators"], *many["coordinators"], *cluster["brokers"]]

        assert {(node["host"], node["port"]) for node in told} == {(name.lower(), number)}


def test_users_are_read_from_a_file(tmp_path: Path) -> None:
    """A name, a colon and a password on each line; a password may have colons."""
    path = tmp_path / "users"
    path.write_text("# who may\nalice:secret\n\nbob:a:b\n")

    assert read_users(str(path)) == {"alice": "secret", "bob": "a:b"}


@pytest.mark.parametrize("content", ["alice", "alice:", ":secret", "alice:x\nalice:y", b"\xff:x"])
def test_a_wrong_file_of_users_is_refused(tmp_path: Path, content: str | bytes) -> None:
    """The error names the file and the line, and nothing that stands there."""
    path = tmp_path / "users"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=r"sasl\.users\.file") as caught:
        read_users(str(path))

    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_users(str(tmp_path / "none"))


@as_one_test
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"listeners": "SASL_PLAINTEXT://:0"}, "needs one in 'advertised.listeners'"),
        ({"listeners": "SASL_PLAINTEXT://localhost:0"}, "needs mechanisms to log in by"),
        ({"listeners": "INTERNAL://localhost:0"}, "no protocol is known for INTERNAL"),
        ({"listeners": "PLAINTEXT://a:0,PLAINTEXT://b:0"}, "names PLAINTEXT twice"),
        ({"listeners": "localhost:9092"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:65536"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:0", "advertised.listeners": "OTHER://a:1"}, "OTHER is not among 'listeners'"),
        ({"listener.security.protocol.map": "INTERNAL:TLS"}, "is not NAME:PROTOCOL"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "must be a list of some of PLAIN"),
        ({"sasl.user.file": "x"}, "did you mean 'sasl.users.file'"),
        ({"listener.name.x.sasl.user.file": "x"}, "did you mean 'sasl.users.file'"),
        ({"sasl.server.max.receive.size": "0"}, "must be at least 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    properties: dict[str, str | int | float], message: str
) -> None:
    """The server does not start, and the error names the contradiction."""
    assert all(map(is_security_key, properties))
    with pytest.raises(ConfigError) as caught:
        Security(ManualClock(), properties=properties)

    assert message in str(caught.value)
