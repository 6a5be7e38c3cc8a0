"""The table of records from a cluster that runs: the same as from the files that it serves, at once and as it grows."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)
from pyspark.sql.datasource import InputPartition

import groupcoord.spark as pipeline
from groupcoord.analysis.errors import LogCutError
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.cli.interrupts import USAGE_ERROR
from groupcoord.clock import SystemClock
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.records.codec import encode_record
from groupcoord.spark.reading import cluster_options
from groupcoord.spark.sources import ClusterOptions, RecordStreamReader
from groupcoord.spark.tables import complete_from
from groupcoord.testing import ProducerRecord, ServerThread

from ..command import analyze
from ..live.recorded import TOPIC, recorded_server
from ..live.test_log_in import PLAIN, log_in
from .programs import Process
from .test_streaming import batch_tables, rows

SECRET = "do-not-tell"
SECRET_LINE = f"ssl.key.password={SECRET}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """A server of which a topic holds the recorded log."""
    with recorded_server(tmp_path_factory.mktemp("cluster")) as server:
        yield server


@pytest.fixture(scope="module")
def live_records(spark: SparkSession, server: ServerThread) -> DataFrame:
    """The table of records out of the server, read once."""
    return pipeline.read_cluster(spark, server.bootstrap, topic=TOPIC, split_bytes=65_536).cache()


def without_place(records: DataFrame) -> list[str]:
    """Return records and markers, but for where they were read."""
    return rows(records.where("kind in ('record', 'control')").drop("file", "position"))


def test_a_cluster_gives_what_its_disk_has(broker_records: DataFrame, live_records: DataFrame) -> None:
    """Every record and marker, as many bytes and batches, and the same is known of what compaction has removed."""
    accounts = [
        records.where("kind = 'read'").groupBy("log_partition").agg(F.sum("size_bytes"), F.sum("batch_count"))
        for records in (broker_records, live_records)
    ]

    assert without_place(live_records) == without_place(broker_records)
    assert rows(accounts[0].where("`sum(size_bytes)` > 0")) == rows(accounts[1])
    assert rows(complete_from(live_records)) == rows(complete_from(broker_records))


@pytest.mark.slow
def test_every_table_is_the_same(broker_records: DataFrame, live_records: DataFrame) -> None:
    """Nothing that is made of the records depends on where they came from."""
    of_files = batch_tables(broker_records)
    for name, table in batch_tables(live_records).items():
        assert rows(table) == rows(of_files[name]), name


def test_a_stream_goes_on_where_it_ended(server: ServerThread) -> None:
    """Its offsets are bounded, cover everything once, and are those of one topic that never gets shorter."""
    options = {"bootstrap.servers": server.bootstrap, "topic": TOPIC, "max_offsets": "10000", "partitions": "3,4"}
    reader = RecordStreamReader(ClusterOptions(options))
    offset, seen = reader.initialOffset(), []
    while (after := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        seen += [one for task in reader.partitions(offset, after) for one in _ranges(task)]
        offset = after
    of_three = [(start, end) for partition, start, end in seen if partition == 3]

    assert offset == reader.reportLatestOffset() == json.loads(json.dumps(offset))
    assert of_three == [(0, 10_000), (10_000, 20_000), (20_000, 30_000), (30_000, 36_179)]
    assert reader.partitions(offset, offset) == []
    with pytest.raises(LogCutError, match="recorded-3 ends at offset 36179, and was read up to 40000: it was cut"):
        reader.latestOffset({**offset, "offsets": {"3": 40_000}})
    with pytest.raises(LogCutError, match="topic recorded was deleted and created again"):
        reader.latestOffset({**offset, "topic_id": "another"})


def _ranges(task: InputPartition) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for one in task.value.ranges]


def test_lag_goes_by_the_next_record(spark: SparkSession) -> None:
    """One lookup of end offsets gives lag in time if the topics are readable."""
    now_ms = SystemClock().now_ms()
    with ServerThread(topics={"orders": 2}) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for second in range(5):
            producer.produce("orders", b"order", partition=0, timestamp=now_ms - 60_000 + 1_000 * second)
        producer.flush()
        made = [("billing", "orders", partition, 3, 7) for partition in range(2)]
        columns = "group_id string, topic string, topic_partition int, committed_offset long, commit_timestamp_ms long"
        offsets = spark.createDataFrame(made, columns)
        ends = pipeline.read_end_offsets(spark, ["orders"], server.bootstrap).cache()
        times = pipeline.read_record_times(spark, offsets, ends, server.bootstrap)
        behind, at_end = sorted(pipeline.lag(offsets, ends, record_times=times).collect())

    assert (behind.lag, behind.lag_ms_method) == (2, "record")
    assert behind.lag_ms == behind.at_ms - (now_ms - 57_000)
    assert (at_end.lag, at_end.lag_ms) == (0, 0)


def test_options_are_those_of_sparks_own_connector(spark: SparkSession) -> None:
    """``kafka.`` settings are taken, unknown ones too; without topics the ends are those of all topics."""
    with ServerThread(topics={"orders": 2, "payments": 1}) as server:
        options = {"kafka.bootstrap.servers": server.bootstrap, "kafka.request.timeout.ms": "9000", "kafka.acks": "1"}
        by_format = spark.read.format("groupcoord-end-offsets").options(**options).load().collect()
        by_name = pipeline.read_end_offsets(spark, None, server.bootstrap).collect()
        cluster = ClusterOptions({"Kafka.Bootstrap.Servers": server.bootstrap, "kafka.request.timeout.ms": "9000"})

    places = {(row.topic, row.topic_partition) for row in by_format}
    assert places == {(row.topic, row.topic_partition) for row in by_name}
    assert places >= {("orders", 0), ("orders", 1), ("payments", 0)}
    assert cluster.source.address.settings().request_timeout_ms == 9_000
    assert cluster.source.address.bootstrap_servers == server.bootstrap


def test_plans_and_tasks_have_no_secret(spark: SparkSession, server: ServerThread, tmp_path: Path) -> None:
    """They name the file of properties, which each worker reads, and hold nothing of what is in it."""
    config = tmp_path / "client.properties"
    config.write_text(f"{SECRET_LINE}\n")
    records = pipeline.read_cluster(spark, server.bootstrap, command_config=config, topic=TOPIC)
    offsets = pipeline.current_offsets(records)
    ends = pipeline.read_end_offsets(spark, ["orders"], server.bootstrap, command_config=config)
    times = pipeline.read_record_times(spark, offsets, ends, server.bootstrap, command_config=config)
    plans = "".join(table._jdf.queryExecution().toString() for table in (records, ends, times))
    options = cluster_options(ClusterAddress(server.bootstrap, str(config)), TOPIC)
    tasks = pickle.dumps(ClusterOptions(options).tasks())

    assert str(config).encode() in tasks
    assert SECRET.encode() not in tasks
    assert SECRET not in plans


@pytest.mark.slow
def test_nothing_that_a_run_leaves_has_a_secret(tmp_path: Path) -> None:
    """Neither event logs nor tables and page, nor what it prints, with Spark's plans, has the password."""
    out, events, config = (tmp_path / name for name in ("out", "events", "client.properties"))
    events.mkdir()
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
    with ServerThread(topics={"orders": 1, "offsets": 1}, settings=settings, users={"alice": SECRET}) as guarded:
        config.write_text("\n".join(f"{name}={value}" for name, value in log_in(PLAIN, "PLAIN", SECRET).items()))
        guarded.produce("orders", [b"order"] * 30, partition=0)
        key, value = encode_record(OffsetCommitRecord("billing", "orders", 0, 5, commit_timestamp_ms=1_700_000_000_000))
        guarded.produce("offsets", [ProducerRecord(value=value, key=key, partition=0)])
        words = ("--bootstrap-server", guarded.bootstrap, "--command-config", str(config), "--topic", "offsets")
        spark = ("--master", "local[2]", "--memory", "512m")
        logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
        logged |= {"spark.eventLog.compress": "false", "spark.log.level": "INFO"}
        confs = [word for name, value in logged.items() for word in ("--conf", f"{name}={value}")]
        command = "import sys; from groupcoord.cli import main; main(sys.argv[1:])"
        run = Process(*(command, "analyze", *words, *spark, *confs, "--out", str(out), "--lag-from-records"))
        assert not run.wait(), run.said[-20:]
    left = [path for folder in (out, events) for path in folder.rglob("*") if path.is_file()]

    assert [path for path in left if events in path.parents and b"MapInArrow" in path.read_bytes()]
    assert not [path for path in left if SECRET.encode() in path.read_bytes()]
    assert SECRET not in "".join(run.said)


def test_what_can_not_be_read_is_refused(spark: SparkSession, server: ServerThread) -> None:
    """Missing or empty topics, unknown options, and secrets, which plans would show."""
    with pytest.raises(pipeline.InputError, match="no topic nowhere"):
        pipeline.read_cluster(spark, server.bootstrap, topic="nowhere")
    with pytest.raises(pipeline.InputError, match="topic __consumer_offsets of the cluster holds no records"):
        pipeline.read_cluster(spark, server.bootstrap)
    with pytest.raises(pipeline.InputError, match="unknown option group"):
        ClusterOptions({"group": "g"})
    with pytest.raises(pipeline.InputError, match=r"option kafka\.sasl\.jaas\.config would be seen in plans"):
        ClusterOptions({"kafka.sasl.jaas.config": "secret"})
    with pytest.raises(pipeline.InputError, match=r"option sasl\.password would be seen in plans"):
        ClusterOptions({"sasl.password": "secret"})


def test_the_command_takes_files_or_a_cluster(tmp_path: Path, server: ServerThread) -> None:
    """Not both, not neither; a cluster that shows no records is refused before Spark starts, and --poll is named."""
    out = tmp_path / "out"
    for words in ((), (tmp_path, "--bootstrap-server", server.bootstrap)):
        refused = analyze(*words, "--out", out)
        assert (refused.status, refused.error) == (
            USAGE_ERROR,
            "groupcoord analyze: give either paths or a cluster, by --bootstrap-server or --command-config\n",
        )
    refused = analyze("--bootstrap-server", server.bootstrap, "--out", out)
    assert refused.status == USAGE_ERROR
    assert refused.error == (
        "groupcoord analyze: topic __consumer_offsets of the cluster holds no records; --poll requests groups instead\n"
    )
    assert not out.exists()
