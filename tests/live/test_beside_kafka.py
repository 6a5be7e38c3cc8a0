"""A real broker, read over every kind of listener, gives the contents of its disk; also when killed or throttling."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.errors import TransientClusterError
from groupcoord.analysis.live import offsets as live_offsets
from groupcoord.analysis.live.cluster import KafkaCluster, connection
from groupcoord.analysis.live.offsets import next_record_ms, offsets_retention_minutes, topic_ends
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.pipeline.sources import rows_of_offsets
from groupcoord.client import Request
from groupcoord.core.consumer_protocol import TopicPartition as PartitionOfTopic
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.errors import ErrorCode
from tests.ports import free_port

from .logging_in import PLAIN, SCRAM, address_with
from .real_kafka import KafkaProcess, commit_offsets, needs_kafka
from .test_reading import Rows, without_place

pytestmark = needs_kafka

GROUPS, ROUNDS = [f"group-{number}" for number in range(6)], 400
LISTENERS = ("PLAINTEXT", "CONTROLLER", "SASL_PLAINTEXT", "SSL", "SASL_SSL")


def pem(folder: Path, authority: trustme.CA, name: str) -> Path:
    """Write a certificate with its key, in the form that Java reads, too."""
    issued = authority.issue_cert(name)
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(key.private_bytes(*form) + b"".join(one.bytes() for one in issued.cert_chain_pems))
    return path


class RealBroker(KafkaProcess):
    """A broker with four listeners."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.authority = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.authority))
        self.client_certificate = pem(folder, authority, "ann.example.org")
        first = free_port(len(LISTENERS))
        self._ports = {name: first + number for number, name in enumerate(LISTENERS)}
        where = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        settings: dict[str, object] = {
            "listeners": where,
            "advertised.listeners": ",".join(one for one in where.split(",") if "CONTROLLER" not in one),
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in LISTENERS
            ),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem(folder, authority, "127.0.0.1"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "listener.name.ssl.ssl.client.auth": "required",
            "offsets.topic.num.partitions": 3,
            "offsets.topic.segment.bytes": 1_048_576,
            "log.cleaner.backoff.ms": 500,
            "log.cleaner.min.cleanable.ratio": 0.1,
            "quota.window.num": 2,
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = f'{PLAIN} required user_alice="alice-secret";'
            settings[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM} required;"
        super().__init__(folder / "broker", first, settings)

    def address_of(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def fill(self) -> None:
        """Commit in groups, also in transactions, until compaction has work."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(30)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        user = UserScramCredentialUpsertion("alice", credential, b"alice-secret")
        admin.alter_user_scram_credentials([user])["alice"].result(30)
        commit_offsets(self.bootstrap, "orders", GROUPS, ROUNDS)
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "enable.auto.commit": False}
        member = Consumer({**settings, "group.id": "member"})
        member.subscribe(["orders"])
        while not member.assignment():
            member.poll(0.1)
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        for number in range(4):
            producer.begin_transaction()
            offsets = [TopicPartition("orders", 0, number)]
            producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
        member.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """The broker, with something in it."""
    folder = tmp_path_factory.mktemp("kafka")
    broker = RealBroker(folder)
    try:
        broker.start()
        broker.fill()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def rows_over(address: ClusterAddress) -> Rows:
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
    rows = rows_over(address_with(tmp_path, broker.address_of(listener), properties))

    assert in_order(rows) == in_order(broker.rows_on_disk())
    assert {row["control_type"] for row in rows if row["kind"] == "control"} == {0, 1}


def test_a_broker_that_is_killed_is_read_on_when_it_is_back(
    broker: RealBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed amid a read and started again: every record, once."""
    monkeypatch.setattr(live_offsets, "FETCH_BYTES", 20_000)
    expected = in_order(broker.rows_on_disk())
    found: Rows = []
    with connection(ClusterAddress(broker.bootstrap)) as (cluster, patience):
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


def ask(cluster: KafkaCluster, api_key: int, versions: tuple[int, int], body: dict[str, Any]) -> Any:
    """Return the answer to a request that the pipeline never sends."""
    return cluster._ask_any(Request(api_key, versions, lambda version: body)).values


def limit(cluster: KafkaCluster, bytes_per_s: float | None) -> None:
    """Set the fetch quota of clients named groupcoord; None: unlimited."""
    op = {"key": "consumer_byte_rate", "value": bytes_per_s or 0.0, "remove": bytes_per_s is None}
    entry = {"entity": [{"entity_type": "client-id", "entity_name": "groupcoord"}], "ops": [op]}
    (told,) = ask(cluster, 49, (0, 1), {"entries": [entry], "validate_only": False})["entries"]
    assert told["error_code"] == ErrorCode.NONE, told["error_message"]


def test_a_quota_slows_down_and_leaves_nothing_out(broker: RealBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Throttled again and again: every record, once."""
    waits: list[float] = []
    sleep = time.sleep

    def wait(duration_s: float) -> None:
        waits.append(duration_s)
        sleep(duration_s)

    monkeypatch.setattr("groupcoord.analysis.live.cluster.time.sleep", wait)
    monkeypatch.setattr(live_offsets, "FETCH_BYTES", 50_000)
    expected = in_order(broker.rows_on_disk())
    with connection(ClusterAddress(broker.bootstrap)) as (cluster, _):
        assert isinstance(cluster, KafkaCluster)
        limit(cluster, 80_000)
        try:
            found = in_order(rows_over(ClusterAddress(broker.bootstrap)))
        finally:
            limit(cluster, None)

    assert found == expected
    assert len([duration_s for duration_s in waits if duration_s > 0]) > 2


def test_a_quota_that_lets_nothing_through_is_said(broker: RealBroker, tmp_path: Path) -> None:
    """After the timeout an error names the topic and the cause."""
    path = tmp_path / "client.properties"
    path.write_text("default.api.timeout.ms=3000\nrequest.timeout.ms=1000\n")
    with connection(ClusterAddress(broker.bootstrap)) as (cluster, _):
        assert isinstance(cluster, KafkaCluster)
        limit(cluster, 1)
        try:
            with pytest.raises(TransientClusterError, match=r"__consumer_offsets-\d: throttled by the broker"):
                rows_over(ClusterAddress(broker.bootstrap, str(path)))
        finally:
            limit(cluster, None)


def test_a_partition_has_one_end_a_request(broker: RealBroker) -> None:
    """Kafka refuses two lookups of a partition in one request: three take three requests to each broker."""
    both = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": stamp} for stamp in (-1, -2)]
    topics = [{"name": "orders", "partitions": both}]
    body = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 1_000}
    with connection(ClusterAddress(broker.bootstrap)) as (cluster, _):
        assert isinstance(cluster, KafkaCluster)
        answers = [ask(cluster, 2, (version, version), body)["topics"] for version in (2, 10)]

    for (topic,) in answers:
        assert {one["error_code"] for one in topic["partitions"]} == {ErrorCode.INVALID_REQUEST}


def test_a_broker_tells_how_old_the_next_record_is(broker: RealBroker) -> None:
    """By the record itself, also behind a marker; and the retention of unused offsets."""
    now_ms = int(time.time() * 1_000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "times", "linger.ms": 100})
    producer.init_transactions(30)
    for first_ms in (now_ms - 60_000, now_ms - 30_000):
        producer.begin_transaction()
        for number in range(3):
            producer.produce("orders", b"x", partition=3, timestamp=first_ms + 1_000 * number)
        producer.commit_transaction(30)
    with connection(ClusterAddress(broker.bootstrap)) as (cluster, patience):
        where = PartitionOfTopic("orders", 3)
        found = [next_record_ms(cluster, patience, where, offset, 8) for offset in (0, 2, 3, 4, 7)]
        kept_minutes = offsets_retention_minutes(cluster, patience)

    before = [None if at_ms is None else now_ms - at_ms for at_ms in found]
    assert before == [60_000, 58_000, 30_000, 30_000, None]
    assert kept_minutes == 10_080
