"""A slot log in NATS JetStream: how it is reached, connections that are lost, leaders that die, and what isn't safe."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from groupcoord.cluster.nats import NatsAddress, NatsSlotLog, unsafe_servers, unsafe_streams
from groupcoord.cluster.shared_log import agree_on_partition_count, copy_log
from groupcoord.cluster.slot_log import Kind, Message, Slot, SlotLogError, join
from tests.tables import as_one_test

from .black_hole import BlackHole
from .engines import break_connections
from .nats_identities import Identity, signed_user
from .nats_servers import NatsServers

HOSTS = ("nats://a:4222", "nats://b:1", "nats://c:4222")


@contextmanager
def servers(count: int = 1, **options: Any) -> Iterator[NatsServers]:
    """Return new servers."""
    found = NatsServers(count, **options).start_all()
    try:
        yield found
    finally:
        found.close()


# ---------------------------------------------------------------- URLs


@as_one_test
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nats://a,b:1,c", NatsAddress(HOSTS)),
        ("nats://u:p%40ss@a,b:1,c?replicas=1", NatsAddress(HOSTS, "u", "p@ss", 1)),
        (
            "nats://a?monitor=http://a:8222/,http://b:8222",
            NatsAddress(HOSTS[:1], monitors=("http://a:8222", "http://b:8222")),
        ),
        (
            "tls://a?sslrootcert=r&sslcert=c&sslkey=k",
            NatsAddress(("tls://a:4222",), files={"sslrootcert": "r", "sslcert": "c", "sslkey": "k"}, is_tls=True),
        ),
        ("nats://a?credentials=x.creds&nkey=y", NatsAddress(HOSTS[:1], files={"credentials": "x.creds", "nkey": "y"})),
    ],
)
def test_what_a_url_says(url: str, address: NatsAddress) -> None:
    """Servers with their ports, who logs in, and settings."""
    assert NatsAddress.parsed(url) == address


@as_one_test
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://a", "named as nats://"),
        ("nats://", "named as nats://"),
        ("nats://a,,b", "named as nats://"),
        ("nats://a/b", "named as nats://"),
        ("nats://a?replicas=2", "replicas=2 must be"),
        ("nats://a?user=x", "user is no setting"),
    ],
)
def test_what_is_no_url(url: str, reason: str) -> None:
    """The error names the problem."""
    with pytest.raises(ValueError, match=reason):
        NatsAddress.parsed(url)


@as_one_test
@pytest.mark.parametrize("name", ["", "a.b", "a-b", "a b", "*"])
def test_what_is_no_name(name: str) -> None:
    """Names become parts of subjects."""
    with pytest.raises(ValueError, match="is no name of a stream"):
        NatsSlotLog("nats://a", name=name)


# ---------------------------------------------------------------- what is not safe


@as_one_test
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ["whether sync_interval is always can't be seen: name"]),
        ({"http://a": {"sync_always": True}}, []),
        (
            {"http://a": {"sync_interval": 1}, "http://b": None},
            ["sync_interval is not always at http://a", "http://b does not answer"],
        ),
    ],
)
def test_which_servers_are_not_safe(settings: dict[str, Any], said: list[str]) -> None:
    """Those that fsync later, and those with unknown settings."""
    found = list(unsafe_servers(settings))
    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found, strict=True))


@as_one_test
@pytest.mark.parametrize(
    ("changes", "replicas", "said"),
    [
        ({}, 3, []),
        ({"num_replicas": 1}, 1, ["replicas is 1: what a server of NATS has acknowledged is nowhere else"]),
        ({"num_replicas": 1}, 3, ["stream x-0 and 1 more has 1 replicas, not 3"]),
        ({"storage": "memory"}, 3, ["stream x-0 is not in files: a restart of its servers empties it"]),
        ({"max_age": 1}, 3, ["stream x-0 has a limit: what is beyond that is thrown away"]),
    ],
)
def test_which_streams_are_not_safe(changes: dict[str, Any], replicas: int, said: list[str]) -> None:
    """Those with changed settings; the stream of heartbeats may be volatile."""
    slots = {"name": "x-0", "num_replicas": 3, "storage": "file", "max_age": 0, "max_msgs": -1, **changes}
    beats = {**slots, "name": "x-beats", "storage": "memory", "max_age": 1}
    assert list(unsafe_streams([slots, beats], replicas)) == said


@pytest.mark.ci
def test_settings_that_are_not_safe_are_told(nats: NatsServers, caplog: pytest.LogCaptureFixture) -> None:
    """The tests' server writes to the disk every two minutes: who opens a log there is warned, once for each thing.

    A second connection to it can leave that to the first.
    """

    async def act() -> None:
        second = NatsSlotLog(nats.url, name="unsafe")
        second.warns = False
        async with NatsSlotLog(nats.url, name="unsafe"), second:
            pass

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())
    assert caplog.messages == [
        "replicas is 1: what a server of NATS has acknowledged is nowhere else",
        f"sync_interval is not always at {nats.monitors[0]}: a power failure may take back what was acknowledged",
    ]


@pytest.mark.ci
def test_servers_that_are_safe_are_found_so(caplog: pytest.LogCaptureFixture) -> None:
    """With ``sync_interval: always`` there is no warning."""

    async def act(url: str) -> None:
        async with NatsSlotLog(url):
            pass

    with servers(syncs=True) as found, caplog.at_level(logging.WARNING):
        asyncio.run(act(found.url))
    assert [message for message in caplog.messages if "sync" in message] == []


# ---------------------------------------------------------------- servers that are not there, or not as they should be


@pytest.mark.ci
def test_a_server_that_is_not_there_is_an_error() -> None:
    """The error has its address."""

    async def act() -> None:
        with pytest.raises(SlotLogError, match=r"127\.0\.0\.1:1: ConnectionRefusedError"):
            await NatsSlotLog("nats://127.0.0.1:1").open()

    asyncio.run(act())


@pytest.mark.ci
@pytest.mark.parametrize(
    ("options", "settings", "reason"),
    [
        ("max_payload: 1MB", {}, "max_payload of nats-server is 1048576 bytes: set max_payload: 2MB"),
        ("", {"replicas": "3"}, "replicas > 1 not supported in non-clustered mode"),
        ("authorization { user: u, password: p }", {}, "uthoriz"),
    ],
)
def test_a_server_that_is_of_no_use_is_an_error(options: str, settings: dict[str, str], reason: str) -> None:
    """The error has the remedy."""

    async def act(url: str) -> None:
        with pytest.raises(SlotLogError, match=reason):
            await NatsSlotLog(url).open()

    with servers(options=options) as found:
        asyncio.run(act(found.url_by(found.ports, **settings)))


@pytest.mark.ci
def test_who_logs_in_over_tls_is_let_in(tmp_path: Path) -> None:
    """With the server's certificate, user and password; a server with an unsigned certificate is refused."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    file = tmp_path / "server.pem"
    options = f"tls {{ cert_file: {file}, key_file: {file} }}\nauthorization {{ user: u, password: 'p@' }}"

    async def act(url: str) -> None:
        url = url.replace("nats://", "tls://u:p%40@")
        async with NatsSlotLog(f"{url}&sslrootcert={tmp_path / 'ca.pem'}") as slot_log:
            assert await slot_log.put(0, 0, b"x") is None
        with pytest.raises(SlotLogError, match="CERTIFICATE_VERIFY_FAILED"):
            await NatsSlotLog(url).open()
        with pytest.raises(SlotLogError, match="files for TLS"):
            await NatsSlotLog(f"{url}&sslrootcert={tmp_path / 'nothing'}").open()

    assert ssl.HAS_TLSv1_3
    with servers(options=options) as found:
        asyncio.run(act(found.url))


@pytest.mark.ci
def test_who_has_a_key_is_let_in(tmp_path: Path) -> None:
    """A user known by a key logs in with its seed file, and with no other one."""
    known, stranger = Identity(), Identity()
    for name, who in (("known", known), ("stranger", stranger)):
        (tmp_path / name).write_text(who.seed)
    with servers(options=f"authorization {{ users: [{{ nkey: {known.name} }}] }}") as found:
        _check_who_is_let_in(found, nkey=str(tmp_path / "known"))
        _check_who_is_refused(found, nkey=str(tmp_path / "stranger"))
        _check_who_is_refused(found)


@pytest.mark.ci
def test_who_has_credentials_is_let_in(tmp_path: Path) -> None:
    """A user of an account logs in with its credentials file, and not with another operator's."""
    options, credentials = signed_user()
    (tmp_path / "known.creds").write_text(credentials)
    (tmp_path / "stranger.creds").write_text(signed_user()[1])
    with servers(options=options) as found:
        _check_who_is_let_in(found, credentials=str(tmp_path / "known.creds"))
        _check_who_is_refused(found, credentials=str(tmp_path / "stranger.creds"))


def _check_who_is_let_in(found: NatsServers, **login: str) -> None:
    async def write() -> list[Slot]:
        async with NatsSlotLog(found.url_by(found.ports, **login)) as log:
            assert await log.put(0, 0, b"x") is None
            return await log.read(0, 0)

    assert [slot.payload for slot in asyncio.run(write())] == [b"x"]


def _check_who_is_refused(found: NatsServers, **login: str) -> None:
    async def enter() -> None:
        async with NatsSlotLog(found.url_by(found.ports, **login)):
            pass

    with pytest.raises(SlotLogError, match=r"(?i)authorization violation"):
        asyncio.run(enter())


@pytest.mark.ci
def test_permissions_that_are_documented_suffice(tmp_path: Path) -> None:
    """Those of a node, and those of a copier of its log, which can write nothing."""
    node = '"$JS.API.>", "groups.*", "groups-beats.*"'
    reader = '"$JS.API.STREAM.INFO.*", "$JS.API.DIRECT.GET.*"'
    users = ", ".join(
        f'{{ user: {name}, password: p, permissions: {{ publish: [{may}], subscribe: ["_INBOX.>"] }} }}'
        for name, may in (("node", node), ("reader", reader))
    )

    async def act(url: str) -> None:
        async with NatsSlotLog(url.replace("nats://", "nats://node:p@"), name="groups") as slot_log:
            await agree_on_partition_count(slot_log, 1)
            assert await slot_log.put(0, 0, Message(Kind.BATCHES, bytes(16), 0, join([b"batch"])).encoded()) is None
            await slot_log.purge(0, 0)
            assert [beat.node_id for beat in await slot_log.beat("a", b"")] == ["a"]
        reader = NatsSlotLog(url.replace("nats://", "nats://reader:p@"), name="groups")
        assert await copy_log(reader, tmp_path) == len(b"batch")
        with pytest.raises(SlotLogError, match="permissions violation"):
            await reader.put(0, 1, b"x")
        await reader.close()

    with servers(options=f"authorization {{ users: [ {users} ] }}") as found:
        asyncio.run(act(found.url))


# ---------------------------------------------------------------- what is lost


@pytest.mark.ci
def test_a_connection_that_is_lost_is_opened_again(nats: NatsServers) -> None:
    """Calls in flight have an unknown outcome, which the next call finds out."""

    async def act() -> None:
        async with NatsSlotLog(nats.url, name="lost") as one:
            assert await one.put(0, 0, b"first") is None
            putting = asyncio.create_task(one.put(0, 1, b"second"))
            await asyncio.sleep(0)
            await break_connections(one, one)
            with pytest.raises(SlotLogError, match="is lost"):
                await putting
            assert await one.put(0, 1, b"second") in (None, 1)
            assert await one.read(0, 1) == [Slot(1, b"second")]

    asyncio.run(act())


@pytest.mark.ci
def test_a_server_that_is_cut_off_is_left(three_nats: NatsServers) -> None:
    """Beats go by another one, within two seconds after nothing gets through to the first."""

    async def act() -> None:
        async with AsyncExitStack() as stack:
            holes = [await stack.enter_async_context(BlackHole(port)) for port in three_nats.ports]
            url = three_nats.url_by([hole.port for hole in holes])
            slot_log = await stack.enter_async_context(NatsSlotLog(url, name="cut"))
            await slot_log.beat("a", b"first")
            client = await slot_log._connections.client()
            assert client.connected_url is not None
            (hole,) = [hole for hole in holes if hole.port == client.connected_url.port]
            hole.swallows = True
            began_s = time.monotonic()
            with pytest.raises(SlotLogError, match="is lost"):
                await slot_log.beat("a", b"second")
            assert [beat.content for beat in await slot_log.beat("a", b"third")] == [b"third"]
            assert time.monotonic() - began_s < 2
            hole.swallows = False

    asyncio.run(act())


@pytest.mark.ci
def test_a_beat_that_is_late_ends_no_connection_by_which_others_write(nats: NatsServers) -> None:
    """Else a server that is busy with many puts would lose all of them with the first beat that waits behind them."""

    async def act() -> None:
        async with NatsSlotLog(nats.url, name="busy") as slot_log:
            client = await slot_log._connections.client()
            for slot in range(1_000):
                beating = asyncio.create_task(slot_log.beat("a", b"x" * 1_000_000))
                await asyncio.sleep(0)
                assert await slot_log.put(0, slot, b"x") is None
                is_late = not beating.done()
                beating.cancel()
                await asyncio.wait((beating,))
                if is_late:
                    break
            assert is_late
            assert await slot_log._connections.client() is client

    asyncio.run(act())


@pytest.mark.ci
@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP])
def test_a_leader_that_dies_loses_nothing(what: signal.Signals) -> None:
    """An unanswered put is repeated, and present once, as is all that was acknowledged before it."""

    async def act(found: NatsServers) -> None:
        async with NatsSlotLog(found.url, name="leaders") as slot_log:
            for slot in range(50):
                assert await slot_log.put(0, slot, b"%d" % slot) is None
            leader = found.leader_of("leaders-0")
            assert leader is not None
            found.send(leader, what)
            began_s = time.monotonic()
            for slot in range(50, 60):
                while True:
                    try:
                        last = await slot_log.put(0, slot, b"%d" % slot)
                    except SlotLogError:
                        assert time.monotonic() < began_s + 60
                        await asyncio.sleep(0.1)
                        continue
                    assert last in (None, slot)  # an earlier copy was written
                    break
            slots: list[Slot] = []
            while len(slots) < 60:
                assert time.monotonic() < began_s + 90
                with suppress(SlotLogError):  # the others may still send it to the one that is gone
                    slots += await slot_log.read(0, len(slots))
            assert slots == [Slot(slot, b"%d" % slot) for slot in range(60)]
            assert found.leader_of("leaders-0") != leader

    with servers(3) as found:
        asyncio.run(act(found))
