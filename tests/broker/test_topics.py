"""The registry of topics: Kafka's rules for names and counts, and the file it is kept in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from groupcoord.broker.topics.registry import TopicError, TopicFileError, TopicRegistry, check_topic_name
from groupcoord.errors import ErrorCode
from tests.tables import as_one_test


def create(registry: TopicRegistry, name: str, partition_count: int = 1) -> None:
    with registry.edit() as edit:
        edit.create(name, partition_count)


@as_one_test
@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "with space", "ü", "a/b", "a\n", "٣"])
def test_illegal_names(name: str) -> None:
    """Every other name is INVALID_TOPIC_EXCEPTION."""
    with pytest.raises(TopicError) as caught:
        check_topic_name(name)
    assert caught.value.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "Topic name is invalid" in str(caught.value)


def test_collisions_inside_one_edit_pass() -> None:
    """Kafka looks for collisions among the topics there were before the request, not within it."""
    registry = TopicRegistry()
    with registry.edit() as edit:
        edit.create("v.x", 1)
        edit.create("v_x", 1)
    assert len(registry) == 2


def test_an_edit_that_raises_changes_nothing(tmp_path: Path) -> None:
    registry = TopicRegistry(tmp_path)
    create(registry, "kept")

    def fail() -> None:
        with registry.edit() as edit:
            edit.create("lost", 1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [topic.name for topic in registry] == ["kept"]
    assert [topic.name for topic in TopicRegistry(tmp_path)] == ["kept"]


def test_changes_of_an_unknown_topic_are_refused() -> None:
    with TopicRegistry().edit() as edit:
        changes = (lambda: edit.extend("t", 2), lambda: edit.reassign("t", {}), lambda: edit.configure("t", {}))
        for change in (*changes, lambda: edit.delete("t")):
            with pytest.raises(TopicError) as caught:
                change()
            assert caught.value.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_survive_a_restart(tmp_path: Path) -> None:
    """Names, ids, counts and the cluster's id are read back as they were."""
    registry = TopicRegistry(tmp_path)
    create(registry, "one", 1)
    create(registry, "two", 2)
    again = TopicRegistry(tmp_path)
    assert list(again) == list(registry)
    assert again.cluster_id == registry.cluster_id
    assert len(again.cluster_id) == 22


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file can't be replaced, the topics in memory stay equal to the file."""
    registry = TopicRegistry(tmp_path)
    create(registry, "kept")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        create(registry, "lost")
    assert sorted(tmp_path.iterdir()) == before
    assert [topic.name for topic in registry] == ["kept"]


def test_ensure(tmp_path: Path) -> None:
    """A topic of the start-up list is created, unchanged or extended, but never made smaller."""
    registry = TopicRegistry(tmp_path)
    registry.ensure("t", 2)
    registry.ensure("t", 2)
    registry.ensure("t", 4)
    assert registry.partition_count("t") == 4
    with pytest.raises(TopicError, match="would not be an increase"):
        registry.ensure("t", 3)


CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
ID = "00000000-0000-0000-0000-000000000007"


@as_one_test
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold"),
        ('{"version": 2}', "version 2"),
        ('{"version": 1}', "does not hold"),
        (json.dumps({"version": 1, "cluster_id": "x", "topics": {}}), "does not hold"),
        (json.dumps({"version": 1, "cluster_id": CLUSTER, "topics": []}), "does not hold"),
        (json.dumps({"version": 1, "cluster_id": CLUSTER, "topics": {"t": {"id": ID}}}), "does not hold"),
        (json.dumps({"version": 1, "cluster_id": CLUSTER, "topics": {"t": {"id": ID, "partitions": 0}}}), "0 part"),
        (json.dumps({"version": 1, "cluster_id": CLUSTER, "topics": {"t": {"id": "7", "partitions": 1}}}), "hold"),
        (json.dumps({"version": 1, "cluster_id": CLUSTER, "topics": {"": {"id": ID, "partitions": 1}}}), "invalid"),
        (
            json.dumps({"version": 1, "cluster_id": CLUSTER, "topics": {n: {"id": ID, "partitions": 1} for n in "ab"}}),
            "same id",
        ),
    ],
)
def test_a_corrupt_file_is_a_clear_error(tmp_path: Path, content: str, complaint: str) -> None:
    """The message names the file and what is wrong with it."""
    path = tmp_path / "topics.json"
    path.write_text(content)
    with pytest.raises(TopicFileError, match=complaint) as caught:
        TopicRegistry(tmp_path)
    assert str(path) in str(caught.value)
