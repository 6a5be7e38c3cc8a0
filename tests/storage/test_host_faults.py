"""Host with a full or failing disk: clients retry, and the log partition returns."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

from groupcoord import Config, ErrorCode, ManualClock
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.coordinator import LoadError
from groupcoord.core.router.partition_table import PartitionStatus
from groupcoord.messages import (
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TopicToCommit,
)
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.client import Client, commit_errors, fetched_offsets, offset_commit, offset_fetch
from tests.crash.processes import Launcher

NOT_COORDINATOR = 16
CONFIG = Config(offsets_topic_num_partitions=1)


def test_a_full_disk_under_a_running_server(tmp_path: Path) -> None:
    """Commits that don't fit fail with NOT_COORDINATOR and a log line; with free space the same server continues."""
    launcher = Launcher(tmp_path)
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--topic", "orders:1"]
    running = launcher.start([*arguments, "--set", "offsets.topic.num.partitions=1"])
    try:
        port = running.wait_for_port()
        with Client(port) as client:
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))
            stored, refused = -1, 0
            for offset in range(200):
                (error,) = commit_errors(client.ask(offset_commit("g", "orders", {0: offset})))
                if error:
                    assert error == NOT_COORDINATOR
                    refused += 1
                else:
                    assert not refused
                    stored = offset
            assert stored > 10
            assert refused > 10
            assert fetched_offsets(client.ask(offset_fetch("g"))) == {("orders", 0): stored}
            path = tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log"
            running.wait_for_log(f"ERROR groupcoord.host: the log can't be written: {path}: ")
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert commit_errors(client.ask(offset_commit("g", "orders", {0: 777}))) == [0]
            running.wait_for_log(f"the log can be written again (appends refused in the meantime: {refused})")
        running.kill()
        running = launcher.start(arguments)
        with Client(running.wait_for_port()) as client:
            assert fetched_offsets(client.ask(offset_fetch("g"))) == {("orders", 0): 777}
    finally:
        running.kill()
        launcher.close()


def test_a_log_deleted_under_a_running_server(tmp_path: Path) -> None:
    """Soon nothing is acknowledged, and no group seems to have no offsets; the log line names the file."""
    launcher = Launcher(tmp_path)
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--topic", "orders:1"]
    running = launcher.start([*arguments, "--set", "offsets.topic.num.partitions=1"])
    try:
        with Client(running.wait_for_port()) as client:
            assert commit_errors(client.ask(offset_commit("g", "orders", {0: 1}))) == [0]
            shutil.rmtree(tmp_path / "data")
            running.wait_for_log("log partition 0 can't be loaded, its groups are not served: ")
            running.wait_for_log("00000000000000000000.log is missing; put it back")
            assert commit_errors(client.ask(offset_commit("g", "orders", {0: 2}))) == [NOT_COORDINATOR]
            answer = client.ask(offset_fetch("g"))
            assert (answer["topics"], answer["error_code"]) == ((), NOT_COORDINATOR)
    finally:
        running.kill()
        launcher.close()


def commit(broker: Broker, offset: int) -> ErrorCode:
    topics = (TopicToCommit("orders", (OffsetToCommit(0, offset),)),)
    response = broker.coordinator.call(OffsetCommit("g", topics))
    assert isinstance(response, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def fetch(broker: Broker) -> int | ErrorCode:
    response = broker.coordinator.call(OffsetFetch((GroupToFetch("g"),)))
    assert isinstance(response, OffsetFetchResponse)
    (group,) = response.groups
    return group.error_code or group.topics[0].partitions[0].committed_offset


def fail(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def open_broker(directory: Path, clock: ManualClock, flush_interval_messages: int = 100) -> Broker:
    store = SegmentLogStore(directory, flush_interval_messages=flush_interval_messages)
    broker = make_broker(config=CONFIG, clock=clock, log_store=store)
    with broker.topics.edit() as edit:
        edit.create("orders", 1)
    return broker


@pytest.mark.parametrize("fault", ["ftruncate", "fsync"])
def test_an_unknown_outcome_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """After a write of unknown outcome, the partition fails with NOT_COORDINATOR until the host has loaded it."""
    broker = open_broker(tmp_path, ManualClock(1_000), flush_interval_messages=1 if fault == "fsync" else 100)
    assert commit(broker, 1) is ErrorCode.NONE
    write = os.write
    monkeypatch.setattr(os, fault, fail)
    if fault == "ftruncate":
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:-9]))
    assert commit(broker, 2) is ErrorCode.NOT_COORDINATOR
    assert broker.coordinator.status(0) is PartitionStatus.FAILED
    assert fetch(broker) is ErrorCode.NOT_COORDINATOR
    assert commit(broker, 3) is ErrorCode.NOT_COORDINATOR
    monkeypatch.undo()

    broker.reload_failed()
    assert fetch(broker) == (2 if fault == "fsync" else 1)
    assert commit(broker, 4) is ErrorCode.NONE
    assert fetch(broker) == 4
    broker.coordinator.check()
    broker.close()


def test_a_log_that_comes_back_is_served_again(tmp_path: Path) -> None:
    """A lost log takes its groups out of service; put back whole, they go on where they were."""
    clock = ManualClock(1_000)
    broker = open_broker(tmp_path, clock)
    assert commit(broker, 1) is ErrorCode.NONE
    folder, elsewhere = tmp_path / "__consumer_offsets-0", tmp_path / "elsewhere"
    folder.rename(elsewhere)
    for _ in range(3):
        clock.advance(60_000)
        broker.reload_failed()
        assert fetch(broker) is ErrorCode.NOT_COORDINATOR
        assert commit(broker, 2) is ErrorCode.NOT_COORDINATOR
    elsewhere.rename(folder)
    clock.advance(60_000)
    broker.reload_failed()
    assert fetch(broker) == 1
    assert commit(broker, 2) is ErrorCode.NONE
    broker.coordinator.check()
    broker.close()


def test_a_disk_that_can_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the log can't be read the partition stays NOT_COORDINATOR; the host tries again and again."""
    clock = ManualClock(1_000)
    broker = open_broker(tmp_path, clock)
    assert commit(broker, 1) is ErrorCode.NONE
    broker.coordinator.unload(0)
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(LoadError):
        broker.coordinator.load(0, 5)
    for _ in range(3):
        clock.advance(60_000)
        broker.reload_failed()
        assert fetch(broker) is ErrorCode.NOT_COORDINATOR
    monkeypatch.undo()
    clock.advance(60_000)
    broker.reload_failed()
    assert fetch(broker) == 1
    broker.close()
