"""``groupcoord analyze --engine local``: the tables and the page of logs without Spark, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from groupcoord import SystemClock
from groupcoord.analysis.decode.parquet import ResultDirectory
from groupcoord.analysis.errors import RunFailedError
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.pipeline import sources
from groupcoord.analysis.pipeline.batch import Pipeline
from groupcoord.analysis.pipeline.following import LocalFollowing
from groupcoord.analysis.pipeline.local_engine import LocalEngine
from groupcoord.analysis.pipeline.sources import ClusterSource, LogSource
from groupcoord.analysis.report.data.model import ANOMALIES_OF_GROUP_MAX, SEVERITIES, ShareGroupRow
from groupcoord.analysis.rules.groups import FieldTexts, group_answers
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES
from groupcoord.cli import analyze as command
from groupcoord.cli.interrupts import USAGE_ERROR
from groupcoord.clock import ManualClock
from groupcoord.core.log.records import (
    SHARE_STATE_TOPIC,
    NamedTopicPartitions,
    OffsetCommitRecord,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    TopicPartitions,
)
from groupcoord.core.share_state.records import SharePartitionKey, ShareSnapshot, ShareUpdate, StateBatch
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record
from groupcoord.records.share_state import encode_share_state
from groupcoord.testing import ProducerRecord, ServerThread

from ...command import Run, analyze
from ...live.recorded import TOPIC, recorded_server
from ..fold.history.consumer_story import CREW, crew, write_story
from ..report.thirty_groups import FLAPPING, SILENT, STORM, STUCK, UNEVEN, write_log
from .written import columns_of, read_table, table_names, written_columns

LOST_BYTES = 7
SPARK_OPTIONS = {"--master": ("local",), "--memory": ("1g",), "--conf": ("a=b",)}


class Analyzed(NamedTuple):
    """A run that went well."""

    folder: Path
    run: Run
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def analyzed(broker_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    """A run over the log of a broker, with a torn tail."""
    folder = tmp_path_factory.mktemp("analyzed") / "results [1]"
    torn = tmp_path_factory.mktemp("torn") / "__consumer_offsets-5" / f"{0:020d}.log"
    torn.parent.mkdir()
    torn.write_bytes(bytes(LOST_BYTES))
    ends = folder.parent / "ends.csv"
    ends.write_text("topic,topic_partition,end_offset\nt-6,0,1000\n", "utf-8")
    words = (broker_log, torn, "--out", folder, "--engine", "local", "--verify", "--end-offsets", ends)
    done = analyze(*words)
    return Analyzed(folder, done, json.loads((folder / "summary.json").read_text("utf-8")))


def test_every_table_is_there(analyzed: Analyzed) -> None:
    """Each has the rows that the summary counts and the declared columns; large tables are divided by log partition."""
    assert (
        table_names(analyzed.folder)
        == set(TABLES) - {END_OFFSETS_TABLE, "share_partitions"}
        == set(analyzed.summary["tables"])
    )
    for name in table_names(analyzed.folder):
        table = read_table(analyzed.folder, name)
        assert table.num_rows == analyzed.summary["tables"][name], name
        assert columns_of(table) == written_columns(name), name
    assert {path.name for path in (analyzed.folder / "tables" / "commits").iterdir()} == {
        f"log_partition={number}" for number in (1, 2, 3, 4, 6, 7)
    }


def test_offsets_are_those_of_the_broker(analyzed: Analyzed, broker_truth: dict[str, Any]) -> None:
    """Every group has exactly the offsets that the broker listed; open transactions are those that it knew."""
    found: dict[str, dict[str, list[Any]]] = {group_id: {} for group_id in broker_truth["offsets"]}
    for row in read_table(analyzed.folder, "current_offsets").to_pylist():
        value = [row["committed_offset"], row["leader_epoch"], row["metadata"]]
        found[row["group_id"]][f"{row['topic']}:{row['topic_partition']}"] = value
    pending: dict[str, dict[str, int]] = {}
    for row in read_table(analyzed.folder, "commits").to_pylist():
        if row["transaction"] == "open":
            place = f"{row['topic']}:{row['topic_partition']}"
            pending.setdefault(row["group_id"], {})[place] = row["committed_offset"]

    assert found == broker_truth["offsets"]
    assert pending == broker_truth["pending_transaction_offsets"]


def test_coordinators_agree_and_what_is_lost_is_told(analyzed: Analyzed) -> None:
    """Coordinators that load the log agree with the tables; torn bytes are counted and reported."""
    assert (analyzed.run.status, analyzed.run.error) == (0, "")
    assert analyzed.summary["verification"]["difference_count"] == 0
    assert analyzed.summary["verification"]["groups"] == analyzed.summary["overview"]["groups"] > 0
    assert analyzed.summary["overview"]["corrupt_bytes"] == LOST_BYTES
    assert "1 byte ranges could not be read" in analyzed.run.output
    assert "verified: the responses of coordinators that loaded the log equal the tables" in analyzed.run.output


def test_lag_has_the_number_of_members(analyzed: Analyzed) -> None:
    members = {row["group_id"]: row["member_count"] for row in read_table(analyzed.folder, "groups").to_pylist()}
    lag = read_table(analyzed.folder, "lag").to_pylist()
    assert len(lag) > 1
    assert all(row["members"] == members[row["group_id"]] is not None for row in lag)


def test_figures_agree_with_each_other(analyzed: Analyzed) -> None:
    """Rebalances by cause, over time, by group and on top are the same ones; so are anomalies and members."""
    summary = analyzed.summary
    total = summary["overview"]["rebalances"]

    assert total == summary["tables"]["rebalances"] == sum(row["rebalances"] for row in summary["causes"]) > 0
    assert total == sum(row["rebalances"] for row in summary["groups"])
    assert sum(sum(counts) for counts in summary["rebalances"]["series"].values()) <= total
    assert summary["overview"]["anomalies"] == sum(row["count"] for row in summary["anomaly_counts"])
    assert sum(summary["churn"]["series"]["joined"]) == sum(row["joined"] for row in summary["groups"])
    ranks = [(SEVERITIES.index(row["standing"]["severity"]), row["trouble"]) for row in summary["groups"]]
    assert ranks == sorted(ranks, reverse=True)
    assert sum(summary["severities"].values()) == len(summary["groups"]) >= summary["overview"]["groups"]


def test_stories_hold_what_happened(analyzed: Analyzed) -> None:
    """Each of the most troubled groups has all its rebalances, its commits over time, and causes that add up."""
    for story in analyzed.summary["troubled"]:
        row = story["row"]
        assert len(story["rebalances"]) == row["rebalances"] == sum(story["causes"].values())
        assert len(story["anomalies"]) == min(row["anomalies"], ANOMALIES_OF_GROUP_MAX)
        commits = story["commits"]
        assert (sum(commits["series"]["commits"]) if commits else 0) == row["commits"]


def test_excluded_groups_are_in_no_table(broker_log: Path, broker_truth: dict[str, Any], tmp_path: Path) -> None:
    """Groups whose whole name matches have no rows; other groups are unchanged, and the page has the pattern."""
    excluded = {name for name in broker_truth["offsets"] if name.startswith("short-")} | {"simple-consumer"}
    words = ("--exclude-group", "short-.*", "--exclude-group", "simple-consumer", "--exclude-group", "hort")
    analyze(broker_log, "--out", tmp_path / "all", "--engine", "local")
    done = analyze(broker_log, "--out", tmp_path / "some", "--engine", "local", "--verify", *words)

    assert (done.status, done.error) == (0, "")
    for name in table_names(tmp_path / "all") - {"records", "corrupt", "read_counts", "partition_load"}:
        whole, left = (read_table(tmp_path / out, name).to_pylist() for out in ("all", "some"))
        assert sorted(map(repr, left)) == sorted(repr(row) for row in whole if row["group_id"] not in excluded), name
    records = read_table(tmp_path / "some", "records").to_pylist()
    assert not excluded & {row["group_id"] for row in records}
    assert {row["kind"] for row in records} == {"record", "control", "read"}
    page = (tmp_path / "some" / "report.html").read_text("utf-8")
    assert (
        "Groups whose names match <code>short-.*</code>, <code>simple-consumer</code>, <code>hort</code> are excluded."
        in page
    )


@pytest.mark.parametrize("more", [(), ("--follow",), ("--poll",)], ids=["once", "follow", "poll"])
def test_an_expression_that_is_none(broker_log: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    where = ("--bootstrap-server", "localhost:1") if "--poll" in more else (broker_log,)
    done = analyze(*where, "--out", tmp_path / "out", "--exclude-group", "a(", *more)
    assert done.status == USAGE_ERROR
    assert "a( is not a regular expression: missing ), unterminated subpattern" in done.error


def test_the_page_says_what_the_terminal_does(analyzed: Analyzed) -> None:
    page, overview = (analyzed.folder / "report.html").read_text("utf-8"), analyzed.summary["overview"]
    assert f"<b>{overview['rebalances']:,}</b><span>rebalances</span>" in page
    assert f"{overview['groups']:,} groups, {overview['rebalances']:,} rebalances" in analyzed.run.output
    assert f"report: {analyzed.folder}/report.html" in analyzed.run.output
    assert {row["topic"] for row in analyzed.summary["lag"]} == {"t-6"}


def test_differences_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a table differs from coordinators, the run reports that and exits with status 1."""
    log = write_story(tmp_path / "log", crew)
    monkeypatch.setattr("groupcoord.analysis.pipeline.local_engine.group_answers", _forge)
    told = analyze(log, "--out", tmp_path / "out", "--engine", "local", "--verify")
    assert told.status == 1
    assert "verified: 1 differences" in told.output
    assert f"group {CREW}: state is Stable for the coordinator, Empty in the table" in told.output


def _forge(found: Any) -> FieldTexts:
    """Make a table differ from the history."""
    (group,) = found["group"]
    return group_answers(found | {"group": [group | {"state": "Empty"}]})


WITHOUT_SPARK = """
import sys
from importlib.abc import MetaPathFinder

class NoSpark(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"{name} is not there", name=name)

import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else found(name, package)
sys.meta_path.insert(0, NoSpark())
from groupcoord.cli import main
main(sys.argv[1:])
"""


def without_spark(*words: str | Path) -> Run:
    """Run ``groupcoord analyze`` where neither pyspark nor pandas is installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "analyze", *map(str, words)], capture_output=True, text=True, timeout=120
    )
    return Run(done.returncode, done.stdout, done.stderr)


def test_where_pyspark_is_missing_this_process_does_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the logs; what only Spark does is refused with the package that is missing."""
    log = write_story(tmp_path / "log", crew)
    monkeypatch.setattr(command, "local_bytes_max", lambda cores: 0)
    done = without_spark(log, "--out", tmp_path / "out", "--verify")
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    refused = analyze(log, "--out", tmp_path / "other", "--master", "local")

    assert done.status == 0, done.error
    assert done.error == ""
    assert (tmp_path / "out" / "report.html").exists()
    assert (refused.status, refused.error) == (
        USAGE_ERROR,
        "groupcoord analyze: --master needs Spark, and pyspark is not installed; "
        "try: pip install 'groupcoord[serve,spark]'\n",
    )


def test_what_only_spark_understands_is_refused(broker_log: Path, tmp_path: Path) -> None:
    for option, values in SPARK_OPTIONS.items():
        refused = analyze(broker_log, "--out", tmp_path / "out", "--engine", "local", option, *values)
        assert (refused.status, refused.error) == (
            USAGE_ERROR,
            f"groupcoord analyze: --engine local does not support {option}\n",
        )
    refused = analyze("--bootstrap-server", "127.0.0.1:1", "--poll", "--engine", "spark", "--out", tmp_path / "out")
    assert refused.error == "groupcoord analyze: --poll does not support --engine spark\n"
    assert not (tmp_path / "out").exists()


def test_bad_input_is_one_line(broker_log: Path, tmp_path: Path) -> None:
    """Paths, directories and ends that can't be used fail with either engine, before anything is written."""
    ends, empty = tmp_path / "ends.csv", tmp_path / "empty"
    ends.write_text("topic,topic_partition,end_offset\nt-6,0,many\n", "utf-8")
    (empty / "__consumer_offsets-0").mkdir(parents=True)
    (empty / "__consumer_offsets-0" / f"{0:020d}.log").touch()
    new = tmp_path / "new"
    cases: list[tuple[list[str | Path], str]] = [
        ([tmp_path / "nowhere", "--out", new], "there is no such file or directory"),
        ([broker_log, "--out", tmp_path], "is not empty"),
        ([broker_log, "--out", new, "--partition", "5"], "there are no such log partitions"),
        ([broker_log, "--out", new, "--end-offsets", tmp_path / "none.csv"], "no such file"),
        ([broker_log, "--out", new, "--end-offsets", ends], "ends.csv: "),
        ([empty, "--out", new], "files are empty"),
        ([empty.parent, "--out", new], "no segment files"),
        ([broker_log, "--out", ends], "is a file"),
        ([broker_log, "--out", ends / "below"], "file"),
        ([broker_log, "--out", "nonsense://a"], "nonsense"),
    ]
    both = [([*words, "--engine", engine], told) for words, told in cases for engine in ("local", "spark")]
    for words, told in [*both, ([broker_log, "--out", new, "--engine", "spark", "--conf", "nothing"], "KEY=VALUE")]:
        refused = analyze(*words)
        assert refused.status == USAGE_ERROR, words
        assert refused.error.startswith("groupcoord analyze: "), refused.error
        assert told in refused.error, refused.error
        assert refused.error.count("\n") == 1
    assert not new.exists()


def test_a_full_disk_is_one_line(broker_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported as a failure, not as a wrong command."""

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    analysis = Pipeline(LocalEngine(), [broker_log], tmp_path / "out", partitions=[6])
    monkeypatch.setattr(ResultDirectory, "replace_text", no_room)
    with pytest.raises(RunFailedError, match="No space left on device"):
        analysis.run()


def test_lag_goes_by_the_next_record(tmp_path: Path) -> None:
    """If the topics are readable, lag in time is the age of the next record; the page has statuses."""
    written_ms = SystemClock().now_ms() - 60_000
    with recorded_server(tmp_path / "cluster") as server:
        server.create_topics({"t-6": 1})
        server.produce("t-6", [ProducerRecord(b"late", timestamp_ms=written_ms + number) for number in range(50)])
        words = ("--bootstrap-server", server.bootstrap, "--topic", TOPIC, "--partition", "6", "--lag-from-records")
        done = analyze(*words, "--out", tmp_path / "out", "--engine", "local")
    lag = [row for row in read_table(tmp_path / "out", "lag").to_pylist() if row["lag"]]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))

    assert done.status == 0, done.error
    assert read_table(tmp_path / "out", "commits").num_rows > 0
    assert read_table(tmp_path / "out", END_OFFSETS_TABLE).num_rows > 0
    assert {row["group_id"] for row in lag} == {"small-48", "transactional-member"}
    assert {row["lag_ms_method"] for row in lag} == {"record"}
    assert all(row["lag_ms"] == row["at_ms"] - (written_ms + row["committed_offset"]) for row in lag)
    counts = {count["status"]: count["partitions"] for count in summary["statuses"]}
    assert sum(counts.values()) - counts["UNKNOWN"] == len(lag)


def test_who_has_stopped_goes_by_when_the_log_was_read(tmp_path: Path) -> None:
    """Not by the later time of the end offsets: a group that committed each second has not stopped then."""
    last_ms = 1_700_000_000_000
    with ServerThread(topics={"orders": 1, "offsets": 1}) as server:
        server.produce("orders", [b"order"] * 30, partition=0)
        for number in range(3):
            commit = OffsetCommitRecord(
                "billing", "orders", 0, 10 + number, commit_timestamp_ms=last_ms - 1_000 * (2 - number)
            )
            key, value = encode_record(commit)
            server.produce("offsets", [ProducerRecord(value=value, key=key, partition=0)])
        source = ClusterSource(ClusterAddress(server.bootstrap), "offsets", False)
        for read_ms in (last_ms + 1_000, last_ms + 3_000):
            Pipeline(LocalEngine(), source, tmp_path / str(read_ms), clock=ManualClock(read_ms)).run()
    statuses = [read_table(path, "lag")["status"].to_pylist() for path in sorted(tmp_path.iterdir())]

    assert statuses == [["OK"], ["STOP"]]


def test_a_topic_that_is_not_about_groups(tmp_path: Path) -> None:
    """Without any record about groups, one line reports that with exit status 2; a few other records are no error."""
    commit = encode_record(OffsetCommitRecord("billing", "orders", 0, 10))
    with ServerThread(topics={"orders": 1}) as server:
        words = ("--bootstrap-server", server.bootstrap, "--topic", "orders", "--engine", "local")
        server.produce("orders", ["coffee", ProducerRecord(b"tea", key=b"\x00\x01tea")])
        wrong = analyze(*words, "--out", tmp_path / "wrong")
        server.produce("orders", [ProducerRecord(value=commit[1], key=commit[0])])
        right = analyze(*words, "--out", tmp_path / "right")

    assert (wrong.status, wrong.output) == (USAGE_ERROR, "")
    assert wrong.error == (
        f"groupcoord analyze: kafka://{server.bootstrap}/orders: none of its 2 records is about groups; "
        "is it a log of __consumer_offsets?\n"
    )
    assert (right.status, right.error) == (0, "")


def test_small_logs_need_no_spark(broker_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the size that the help names this process does the work, above it Spark, as with an option of Spark's."""
    source = partial(LogSource, [str(broker_log)])
    monkeypatch.setattr(command, "find_spec", lambda name: name)
    small = command._takes_spark(command.Engine.AUTO, source, [])
    told = command._takes_spark(command.Engine.AUTO, source, ["--memory"])
    of_two, of_four, of_eight = map(command.local_bytes_max, (2, 4, 8))
    monkeypatch.setattr(command, "local_bytes_max", lambda cores: 1_000)
    said = f"any size on two cores, up to {of_four / 2**30:.1f} GiB on four, {of_eight / 2**30:.1f} GiB on eight"

    assert (small, told, command._takes_spark(command.Engine.AUTO, source, [])) == (False, True, True)
    assert of_two == inf
    assert said in str(command.EngineOption.__metadata__[0].help)


def test_results_have_a_place_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``--out`` a temporary folder is made and named; of a run that comes to nothing, none is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = analyze(write_story(tmp_path / "log", crew), "--engine", "local")
    (made,) = tmp_path.glob("groupcoord-*")
    refused = analyze(tmp_path / "nowhere", "--engine", "local")

    assert (done.status, done.error) == (0, f"the results go to {made}\n")
    assert f"report: {made}/report.html" in done.output
    assert refused.status == USAGE_ERROR
    assert list(tmp_path.glob("groupcoord-*")) == [made]


@pytest.mark.ci
def test_the_page_begins_with_the_groups_that_misbehave(tmp_path: Path) -> None:
    """Of thirty groups those that were made to misbehave come first, and each has its own word."""
    data, ends = write_log(tmp_path)
    report = Pipeline(LocalEngine(), [data], tmp_path / "out", end_offsets=str(ends)).run()
    worst = {row.group_id: row.standing.word for row in report.groups if not row.standing.is_fine}

    assert next(iter(worst)) == STUCK
    assert worst == {
        STUCK: "STOP",
        SILENT: "never committed",
        FLAPPING: "flapping member",
        UNEVEN: "uneven shares",
        STORM: "commit storm",
    }
    assert [story.row.group_id for story in report.troubled] == list(worst)


def test_share_partitions_have_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If their log is in the data directory or cluster; otherwise there is none. A run that follows both logs has read
    all new records.
    """
    topic_id = UUID(int=7)
    key = SharePartitionKey("workers", topic_id, 3)
    states = [ShareSnapshot(key, 0, 1, 2, 0, 10, 11, -1, ()), ShareUpdate(key, 0, 2, 0, -1, (StateBatch(0, 4, 0, 3),))]
    of_states = [encode_share_state(record) for record in states]
    of_group = [
        encode_record(record)
        for record in (
            ShareGroupMemberMetadataRecord("workers", "m", None, "c", "/h", ("jobs",)),
            ShareGroupMetadataRecord("workers", 1),
            ShareGroupStatePartitionMetadataRecord("workers", (), (NamedTopicPartitions(topic_id, "jobs", (3,)),)),
            ShareGroupCurrentMemberAssignmentRecord("workers", "m", 1, 0, 0, (TopicPartitions(topic_id, (3,)),)),
        )
    ]
    for topic, records in (("__consumer_offsets-0", of_group), (f"{SHARE_STATE_TOPIC}-4", of_states)):
        segment = tmp_path / "log" / topic / f"{0:020d}.log"
        segment.parent.mkdir(parents=True)
        segment.write_bytes(encode_batch(0, [(*record, 1_000) for record in records]))
    Pipeline(LocalEngine(), [tmp_path / "log"], tmp_path / "files").run()
    rounds = iter([False, True])

    def is_stopped(wait_s: float) -> bool:
        later = encode_share_state(ShareUpdate(key, 0, 2, 5, -1, (StateBatch(5, 5, 0, 2),)))
        for folder, record, offset in ((SHARE_STATE_TOPIC + "-4", later, 2), ("__consumer_offsets-0", of_group[1], 4)):
            with open(tmp_path / "log" / folder / f"{0:020d}.log", "ab") as file:
                file.write(encode_batch(offset, [(*record, 2_000)]))
        return next(rounds)

    followed = LocalFollowing([tmp_path / "log"], tmp_path / "followed", clock=ManualClock(0)).run(
        is_stopped, lambda progress: None
    )
    monkeypatch.setattr(sources, "SHARE_STATE_TOPIC", "states")  # nobody may write to Kafka's own topics
    with ServerThread(topics={"offsets": 1, "states": 1}) as server:
        for topic, records in (("offsets", of_group), ("states", of_states)):
            server.produce(topic, [ProducerRecord(value=value, key=key) for key, value in records])
        source = ClusterSource(ClusterAddress(server.bootstrap), "offsets")
        Pipeline(LocalEngine(), source, tmp_path / "cluster").run()
    names = ("group_id", "topic", "topic_partition", "start_offset", "released", "redeliveries", "log_partition")

    for out, partition in (("files", 4), ("cluster", 0)):
        (row,) = read_table(tmp_path / out, "share_partitions").to_pylist()
        (member,) = read_table(tmp_path / out, "members").to_pylist()
        assert [row[name] for name in names] == ["workers", "jobs", 3, 0, 5, 10, partition]
        assert [(one["topic"], one["partitions"]) for one in member["assignment"]] == [("jobs", [3])]
    (row,) = read_table(tmp_path / "followed", "share_partitions").to_pylist()
    assert [row[name] for name in names] == ["workers", "jobs", 3, 5, 1, 11, 4]
    assert followed is not None
    assert followed.share_groups == (ShareGroupRow("workers", "jobs", 1, 1, 2, 11, 0, 2_000),)
    assert "Deliveries to share groups" in (tmp_path / "followed" / "report.html").read_text("utf-8")
