"""A real broker, asked over every kind of listener, gives what lies on its disk; also if it is killed meanwhile.

``KAFKA_SERVE`` is a program that starts one in the foreground: ``PROGRAM PORT DIR --set KEY=VALUE…``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from groupcoord.columns.chunks import RowSettings
from groupcoord.columns.files import cut, find_segments
from groupcoord.columns.reading import rows_of_files
from groupcoord.core.records import OFFSETS_TOPIC
from groupcoord.live import fetching
from groupcoord.live.connection import connection
from groupcoord.live.offset_ranges import topic_ends
from groupcoord.live.rows import rows_of_offsets
from groupcoord.live.settings import ClusterAddress

from .logging_in import PLAIN, SCRAM, address_with
from .test_reading import Rows, without_place

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("KAFKA_SERVE" not in os.environ, reason="KAFKA_SERVE names no program that starts a broker"),
]
START_TIMEOUT_S = 90.0
GROUPS, ROUNDS = 6, 400


def pem(folder: Path, authority: trustme.CA, name: str) -> Path:
    """Write a certificate with its key, in the form that Java reads, too."""
    issued = authority.issue_cert(name)
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(key.private_bytes(*form) + b"".join(one.bytes() for one in issued.cert_chain_pems))
    return path


class RealBroker:
    """A broker with four listeners, which is started again on what it has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = trustme.CA()
        self.authority = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.authority))
        self.server_certificate = pem(folder, authority, "127.0.0.1")
        self.client_certificate = pem(folder, authority, "ann.example.org")
        with closing(socket.socket()) as found:
            found.bind(("127.0.0.1", 0))
            self._port = min(found.getsockname()[1], 65_000)
        self._process: subprocess.Popen[bytes] | None = None

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """Return the address of a listener."""
        return f"127.0.0.1:{self._ports()[listener]}"

    def _ports(self) -> dict[str, int]:
        names = ("PLAINTEXT", "CONTROLLER", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
        return {name: self._port + number for number, name in enumerate(names)}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        where = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports().items())
        settings = {
            "listeners": where,
            "advertised.listeners": ",".join(one for one in where.split(",") if "CONTROLLER" not in one),
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in self._ports()
            ),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.server_certificate,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "listener.name.ssl.ssl.client.auth": "required",
            "offsets.topic.num.partitions": 3,
            "offsets.topic.segment.bytes": 1_048_576,
            "log.cleaner.backoff.ms": 500,
            "log.cleaner.min.cleanable.ratio": 0.1,
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = f'{PLAIN} required user_alice="alice-secret";'
            settings[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM} required;"
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [os.environ["KAFKA_SERVE"], str(self._port), str(self.folder / "broker"), *words]
        with open(self.folder / "broker.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                AdminClient({"bootstrap.servers": self.bootstrap()}).list_topics(timeout=2)
            except KafkaException:
                assert self._process.poll() is None, (self.folder / "broker.log").read_text()[-2_000:]
                assert time.monotonic() < deadline_s
            else:
                return

    def kill(self) -> None:
        """Kill it at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def fill(self) -> None:
        """Let groups commit, in transactions too, until compaction has something to do."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap()})
        admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(30)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        user = UserScramCredentialUpsertion("alice", credential, b"alice-secret")
        admin.alter_user_scram_credentials([user])["alice"].result(30)
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap(), "enable.auto.commit": False}
        groups = [Consumer({**settings, "group.id": f"group-{number}"}) for number in range(GROUPS)]
        for consumer in groups:
            consumer.committed([TopicPartition("orders", 0)], timeout=30)
        for number in range(ROUNDS):
            for consumer in groups:
                consumer.commit(offsets=[TopicPartition("orders", p, number) for p in range(4)], asynchronous=False)
        member = Consumer({**settings, "group.id": "member"})
        member.subscribe(["orders"])
        while not member.assignment():
            member.poll(0.1)
        producer = Producer({"bootstrap.servers": self.bootstrap(), "transactional.id": "t"})
        producer.init_transactions(30)
        for number in range(4):
            producer.begin_transaction()
            offsets = [TopicPartition("orders", 0, number)]
            producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
        for consumer in (*groups, member):
            consumer.close()

    def rows_on_disk(self) -> Rows:
        """Return the rows of its files."""
        (files,) = find_segments([self.folder / "broker" / "data"])
        rows = (rows_of_files(files.file_system, ranges, RowSettings()) for ranges in cut(files.segments))
        return [row for found in rows for batch in found for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """The broker, with something in it."""
    broker = RealBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    try:
        broker.fill()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(broker.folder, ignore_errors=True)


def rows_over(address: ClusterAddress) -> Rows:
    """Return the rows that the cluster gives."""
    with connection(address) as (cluster, patience):
        ranges = topic_ends(cluster, patience, OFFSETS_TOPIC).whole()
        found = (rows for one in ranges for rows in rows_of_offsets(cluster, one, patience, RowSettings()))
        return [row for rows in found for row in rows.to_pylist()]


def in_order(rows: Rows) -> Rows:
    """Return records and markers in the order of their places in the log."""
    return sorted(without_place(rows), key=lambda row: (row["log_partition"], row["log_offset"]))


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("PLAINTEXT", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SSL", ""),
        ("SASL_SSL", "SCRAM-SHA-256"),
    ],
)
def test_a_broker_gives_what_lies_on_its_disk(
    broker: RealBroker, tmp_path: Path, listener: str, mechanism: str
) -> None:
    """Every record and marker, over every kind of listener."""
    properties = {"security.protocol": listener}
    if mechanism:
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = f'{module} required username="alice" password="alice-secret";'
    if listener.endswith("SSL"):
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(broker.authority)}
    if listener == "SSL":
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(broker.client_certificate)}
    rows = rows_over(address_with(tmp_path, broker.bootstrap(listener), properties))

    assert in_order(rows) == in_order(broker.rows_on_disk())
    assert {row["control_type"] for row in rows if row["kind"] == "control"} == {0, 1}


def test_a_broker_that_is_killed_is_read_on_when_it_is_back(
    broker: RealBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed amid a read and started again: every record, once."""
    monkeypatch.setattr(fetching, "FETCH_BYTES", 20_000)
    expected = in_order(broker.rows_on_disk())
    found: Rows = []
    with connection(ClusterAddress(broker.bootstrap())) as (cluster, patience):
        killer = None
        for one in topic_ends(cluster, patience, OFFSETS_TOPIC).whole():
            for rows in rows_of_offsets(cluster, one, patience, RowSettings()):
                found += rows.to_pylist()
                if killer is None:
                    broker.kill()
                    killer = threading.Thread(target=broker.start)
                    killer.start()
    assert killer is not None
    killer.join()

    assert in_order(found) == expected
