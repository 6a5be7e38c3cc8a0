"""``groupcoord dump`` of a cluster that runs prints what it prints of the files that the cluster serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from groupcoord.testing import ServerThread
from groupcoord.testing.faults import Call

from ..command import dump
from ..live.recorded import TOPIC, recorded_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerThread]:
    with recorded_server(folder) as server:
        yield server


@pytest.mark.parametrize("words", [("--partition", "3"), ("--history",), ("--type", "control", "--format", "table")])
def test_a_cluster_is_dumped_as_its_files_are(folder: Path, server: ServerThread, words: tuple[str, ...]) -> None:
    """Byte by byte: records, histories of groups, and transaction markers, which consumers never see."""
    of_cluster = dump("--bootstrap-server", server.bootstrap, "--topic", TOPIC, *words)
    of_files = dump(folder, *words)

    assert (of_cluster.status, of_cluster.error) == (0, "")
    assert of_cluster.output == of_files.output != ""


def test_what_can_not_be_dumped_is_refused(server: ServerThread, tmp_path: Path) -> None:
    """Paths and a cluster at once, a file of settings that isn't there, a topic without records."""
    for words, message in (
        ((tmp_path, "--bootstrap-server", server.bootstrap), "give either paths or a cluster"),
        (("--command-config", tmp_path / "none"), "No such file or directory"),
        (("--bootstrap-server", server.bootstrap), "topic __consumer_offsets of the cluster holds no records"),
        (("--bootstrap-server", server.bootstrap, "--topic", TOPIC, "--partition", "9"), "has no partition 9"),
    ):
        refused = dump(*words)
        assert refused.status == 2
        assert message in refused.error


def test_what_is_lost_on_the_way_is_told(server: ServerThread) -> None:
    """A cluster that stops answering ends with exit status 1, and the error names the partition."""

    def is_late(call: Call) -> bool:
        return bool(call.request.max_bytes > 1)  # unlike the first look, whether the topic may be read at all

    with server.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=None, where=is_late):
        done = dump("--bootstrap-server", server.bootstrap, "--topic", TOPIC, "--partition", "3")

    assert done.status == 1
    assert done.error == "groupcoord dump: recorded-3: topic recorded: this user lacks the permission READ\n"
