"""Leader epochs of a log are kept, described and truncated as in Kafka, also in a directory of a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.storage.log.index import LeaderEpochs
from groupcoord.storage.log.settings import DEFAULT_SETTINGS, TopicLogSettings
from groupcoord.testing.server import ServerThread
from tests.tables import as_one_test
from tests.topic_logs.batches import NOW_MS, TOPIC as TOPIC_OF_DISK, produced
from tests.topic_logs.disk import Disk
from tests.topic_logs.led_in_turn import COMMITTED, GROUP, TOPIC, epoch_answers, metadata, value, write_directory

CHECKPOINT = "leader-epoch-checkpoint"


@contextmanager
def serving(directory: Path) -> Iterator[tuple[ServerThread, Client]]:
    with (
        ServerThread(data_dir=directory, settings={"offsets.topic.num.partitions": 1}) as server,
        closing(Client(SocketServer("127.0.0.1", server.port), "test")) as client,
    ):
        yield server, client


# ---------------------------------------------------------------- beside a real broker


def test_a_broker_s_epochs_are_told_as_it_told_them(tmp_path: Path) -> None:
    """Metadata, OffsetForLeaderEpoch, ListOffsets and Fetch give the broker's own responses for its directory."""
    theirs = write_directory(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob(f"{TOPIC}-*/{CHECKPOINT}")}

    with serving(tmp_path) as (_, client):
        ours = epoch_answers(client)

    assert {asked: (answer, ours[asked]) for asked, answer in theirs.items() if ours[asked] != answer} == {}
    assert len(theirs) > 600
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("0\n3\n0 0\n")], ids=["gone", "cut"])
def test_epochs_are_made_anew_from_the_batches(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    """Without a valid checkpoint, the epochs with records are rebuilt from the batches, and written again."""
    write_directory(tmp_path)
    for index, text in enumerate(("0\n3\n0 0\n2 5\n6 10\n", "0\n2\n2 7\n6 10\n")):
        path = tmp_path / f"{TOPIC}-{index}" / CHECKPOINT
        assert path.read_text() == text
        damage(path)

    with serving(tmp_path) as (_, client):
        told = metadata(client)["topics"][0]["partitions"]
        assert {partition["partition_index"]: partition["leader_epoch"] for partition in told} == {0: 6, 1: 6, 2: 6}
    assert (tmp_path / f"{TOPIC}-0" / CHECKPOINT).read_text() == "0\n3\n0 0\n2 5\n6 10\n"
    assert (tmp_path / f"{TOPIC}-1" / CHECKPOINT).read_text() == "0\n2\n2 7\n6 10\n"


EXPECTED = [value(3, number) for number in range(3)]
"""What a group of the broker has yet to read: it committed an offset of epoch 2, and the log is at epoch 6."""


def test_librdkafka_reads_on_from_a_broker_s_offset(tmp_path: Path) -> None:
    """A group that committed on the broker, with an epoch, continues behind that offset here."""
    kafka = pytest.importorskip("confluent_kafka")
    write_directory(tmp_path)
    with serving(tmp_path) as (server, _):
        settings = {"bootstrap.servers": server.bootstrap, "group.id": GROUP, "auto.offset.reset": "error"}
        consumer = kafka.Consumer(settings)
        consumer.assign([kafka.TopicPartition(TOPIC, 0)])
        messages = consumer.consume(len(EXPECTED), 20)
        consumer.close()
    assert [(message.value(), message.offset()) for message in messages] == [
        (text, COMMITTED + 1 + number) for number, text in enumerate(EXPECTED)
    ]
    assert {message.leader_epoch() for message in messages} == {6}


# ---------------------------------------------------------------- of several nodes, then of one


def test_one_node_goes_on_where_several_were(tmp_path: Path) -> None:
    """A group that committed under the third leader of several nodes reads on from the one node that is left."""
    kafka = pytest.importorskip("confluent_kafka")

    def read(bootstrap: str, count: int) -> list[tuple[bytes, int]]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = kafka.Consumer(settings)
        consumer.subscribe(["orders"])
        messages = consumer.consume(count, 20)
        consumer.commit(asynchronous=False)
        consumer.close()
        return [(message.value(), message.leader_epoch()) for message in messages]

    with ServerThread(topics={"orders": 1}, nodes=2, data_dir=tmp_path) as server:
        for node, text in ((1, "a"), (2, "b"), (1, "c")):
            if server.leader("orders") != node:
                server.move_leader("orders", to=node)
            server.produce("orders", [text])
        assert read(server.bootstrap, 3) == [(b"a", 0), (b"b", 1), (b"c", 2)]
        server.move_leader("orders", to=2)
        assert (tmp_path / "orders-0" / CHECKPOINT).read_text() == "0\n4\n0 0\n1 1\n2 2\n3 3\n"
    with ServerThread(data_dir=tmp_path) as alone:
        alone.produce("orders", ["d"])
        assert read(alone.bootstrap, 1) == [(b"d", 3)]


# ---------------------------------------------------------------- the list


def test_an_epoch_without_records_gives_way() -> None:
    """A new epoch replaces one in which nothing was written."""
    epochs = LeaderEpochs()
    epochs.begin(1, 0)
    epochs.begin(2, 4)
    epochs.begin(5, 4)
    assert epochs.entries == ((1, 0), (5, 4))
    ends = {-2: (-2, 0), -1: None, 0: (0, 0), 1: (1, 4), 3: (1, 4), 5: (5, 9), 6: None}
    assert {epoch: epochs.end_of(epoch, 9) for epoch in ends} == ends
    assert [epochs.at(offset) for offset in (0, 3, 4, 8)] == [1, 1, 5, 5]


@as_one_test
@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (0, 20, ((1, 2), (3, 5), (4, 9))),
        (2, 20, ((1, 2), (3, 5), (4, 9))),
        (3, 20, ((1, 3), (3, 5), (4, 9))),
        (5, 20, ((3, 5), (4, 9))),
        (9, 9, ((4, 9),)),
        (15, 20, ((4, 15),)),
        (0, 7, ((1, 2), (3, 5), (4, 7))),
    ],
)
def test_the_list_is_trimmed(start: int, end: int, left: tuple[tuple[int, int], ...]) -> None:
    """Epochs before the start go but for the one that holds it, and the latest stays, wherever the log ends."""
    epochs = LeaderEpochs([(1, 2), (3, 5), (4, 9)])
    assert epochs.trim(start, end) == (left != ((1, 2), (3, 5), (4, 9)))
    assert epochs.entries == left


def test_a_log_on_disk_keeps_its_epochs(tmp_path: Path) -> None:
    """Begun, truncated, closed or killed: the checkpoint agrees with the log, and an epoch never decreases."""
    disk = Disk(tmp_path)
    checkpoint = disk.folder() / CHECKPOINT
    for epoch in (0, 3, 4):
        disk.log().begin_epoch(epoch)
        disk.log().append(produced(b"a", b"b"), DEFAULT_SETTINGS, NOW_MS)
    disk.log().begin_epoch(7)
    assert checkpoint.read_text() == "0\n4\n0 0\n3 2\n4 4\n7 6\n"

    disk.kill()
    assert disk.log().epochs.entries == ((0, 0), (3, 2), (4, 4), (7, 6))
    disk.log().delete_before(3)
    disk.restart()
    assert disk.log().leader_epoch == 7
    assert disk.log().epochs.entries == ((3, 3), (4, 4), (7, 6))
    assert disk.log().end_of_epoch(3) == (3, 4)


def test_epochs_of_many_segments_without_the_checkpoint(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for epoch in (0, 3, 4):
        disk.log().begin_epoch(epoch)
        for _ in range(2):
            disk.log().append(produced(b"a" * 60), TopicLogSettings(segment_bytes=150), NOW_MS)
    assert len(list(disk.folder().glob("*.log"))) == 6
    (disk.folder() / CHECKPOINT).unlink()
    disk.kill()
    assert disk.log().epochs.entries == ((0, 0), (3, 2), (4, 4))


def test_an_epoch_that_could_not_be_noted_is_noted_later(tmp_path: Path) -> None:
    """If the checkpoint can't be written the next batch retries; after a power failure it is
    rebuilt from the batches.
    """
    disk = Disk(tmp_path)
    disk.log().append(produced(b"a"), DEFAULT_SETTINGS, NOW_MS)
    checkpoint = disk.folder() / CHECKPOINT
    old = checkpoint.read_text()
    checkpoint.unlink()
    checkpoint.mkdir()
    disk.log().begin_epoch(2)
    checkpoint.rmdir()
    disk.log().append(produced(b"b"), DEFAULT_SETTINGS, NOW_MS)
    assert checkpoint.read_text() == "0\n2\n0 0\n2 1\n"

    checkpoint.write_text(old)
    disk.kill()
    assert disk.log().epochs.entries == ((0, 0), (2, 1))
    assert checkpoint.read_text() == "0\n2\n0 0\n2 1\n"


def test_a_log_opened_again_goes_on_with_the_epoch_that_was_told(tmp_path: Path) -> None:
    """A log that fails is opened again with its epoch even if the checkpoint is gone and no batch names it."""
    disk = Disk(tmp_path)
    disk.log().append(produced(b"a"), DEFAULT_SETTINGS, NOW_MS)
    disk.log().begin_epoch(2)
    segment = disk.folder() / "00000000000000000000.log"
    data = segment.read_bytes()
    segment.unlink()
    disk.log().check()
    segment.write_bytes(data)
    (disk.folder() / CHECKPOINT).unlink()
    assert disk.log().leader_epoch == 2
    assert disk.logs.leader_epoch(TOPIC_OF_DISK, 0) == 2
