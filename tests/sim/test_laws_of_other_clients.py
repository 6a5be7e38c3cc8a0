"""Laws of transactions, administrators and expiry: a world with a planted bug breaks one, and names it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from groupcoord import Config, ErrorCode
from groupcoord.core.administration import Administration
from groupcoord.core.log.records import NO_PRODUCER_ID, CommitRecords, CommittedTopic, TransactionMarker
from groupcoord.core.messages import DeletedGroup, DeleteGroupsResponse, ListedGroup
from groupcoord.core.offsets import commits
from groupcoord.core.offsets.cache import OffsetCache
from groupcoord.core.offsets.commits import draft_commit
from groupcoord.sim import (
    AdminAction,
    Administrator,
    ClusterOptions,
    Fault,
    SimpleConsumer,
    TransactionalProducer,
    run_seed,
)
from groupcoord.sim.actors.observations import Transactions

from .worlds import small_world

PRODUCER = TransactionalProducer(start_ms=30_000, end_ms=90_000, producer_id=7, group="billing")


def administrator(action: AdminAction, at_ms: int = 30_000) -> Administrator:
    return Administrator(start_ms=at_ms, end_ms=at_ms, group="billing", action=action)


LOOKS = [administrator(AdminAction.LOOK, at_ms) for at_ms in range(31_000, 90_000, 4_000)]


def breaks(law: str, *faults: Fault, **changes: Any) -> None:
    """Expect that some seed of a world with these faults breaks a law."""
    runs = [run_seed(seed, small_world(*faults, **changes)) for seed in range(5)]
    failures = [run.failure for run in runs if run.failure is not None]
    assert failures
    assert all(re.search(law, failure) for failure in failures), failures


def test_offsets_of_an_open_transaction_that_everybody_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes transactional commits for plain ones is caught by the first reader."""
    apply = OffsetCache.apply

    def hasty(self: OffsetCache, commit: CommitRecords, log_offset: int) -> None:
        plain = [CommittedTopic(kind._replace(producer_id=NO_PRODUCER_ID), columns) for kind, columns in commit.topics]
        apply(self, CommitRecords(plain), log_offset)

    monkeypatch.setattr(OffsetCache, "apply", hasty)

    breaks("is answered as|is visible", PRODUCER, *LOOKS)


def test_offsets_of_an_aborted_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes every marker for a commit is caught by the first reader."""
    apply = OffsetCache.apply_marker

    def generous(self: OffsetCache, marker: TransactionMarker) -> None:
        apply(self, TransactionMarker(marker.producer_id, marker.producer_epoch, True, marker.coordinator_epoch))

    monkeypatch.setattr(OffsetCache, "apply_marker", generous)

    breaks("is answered as", PRODUCER, *LOOKS)


def test_an_open_transaction_that_nobody_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of stable offsets must fail while a transaction is open."""
    monkeypatch.setattr(OffsetCache, "is_unstable", lambda *_: False)

    breaks("is answered as", PRODUCER, *LOOKS)


def test_a_producer_that_goes_on_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction coordinator that lets zombies through is caught."""
    monkeypatch.setattr(Transactions, "verify", lambda self, request: ErrorCode.NONE)

    breaks("after the marker|is over, and yet", PRODUCER)


def test_a_transactional_commit_that_is_not_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that does not wait for the log is caught."""
    write = commits.Commits._write

    def impatient(self: commits.Commits, group_id: str, token: Any, topics: Any, response: Any, now_ms: int) -> None:
        if topics and topics[0].kind.producer_id != NO_PRODUCER_ID:
            self._effects.reply(token, response)
        else:
            write(self, group_id, token, topics, response, now_ms)

    monkeypatch.setattr(commits.Commits, "_write", impatient)

    breaks("is acknowledged, but not in the log", PRODUCER)


def test_offsets_that_expire_while_they_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that looks at no subscription is caught."""
    monkeypatch.setattr(Administration, "_is_due", lambda *_: True)
    cluster = ClusterOptions(config=Config(offsets_topic_num_partitions=2, offsets_retention_check_interval_ms=20_000))

    breaks("a topic that members use", cluster=cluster)


def test_a_group_that_is_listed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list with doubles is caught."""
    listed = Administration.list_groups
    monkeypatch.setattr(Administration, "list_groups", lambda *arguments: listed(*arguments) * 2)

    breaks("listed twice", LOOKS[0])


def test_a_group_that_nobody_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list with a group that the log does not have is caught."""
    ghost = ListedGroup("ghost", "consumer", "Stable", "classic")
    monkeypatch.setattr(Administration, "list_groups", lambda *_: [ghost])
    one_log_partition = ClusterOptions(config=Config(offsets_topic_num_partitions=1))

    breaks("the log knows nothing", LOOKS[0], cluster=one_log_partition)


def test_a_group_that_is_not_really_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that is acknowledged without a write breaks a law."""

    def lazy(self: Administration, group_ids: list[str], token: Any, *rest: Any) -> None:
        results = tuple(DeletedGroup(group_id, ErrorCode.NONE) for group_id in group_ids)
        self._context.effects.reply(token, DeleteGroupsResponse(results))

    monkeypatch.setattr(Administration, "delete_groups", lazy)

    breaks(
        "reported as deleted",
        Administrator(start_ms=30_000, end_ms=30_000, group="billing", action=AdminAction.DELETE_GROUP),
    )


def test_metadata_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes any metadata is caught."""

    def lenient(group_id: str, topics: Any, metadata_limit: int, *rest: Any, **more: Any) -> Any:
        return draft_commit(group_id, topics, 10**6, *rest, **more)

    monkeypatch.setattr(commits, "draft_commit", lenient)

    breaks("metadata of more than", SimpleConsumer(start_ms=10_000, end_ms=110_000, group="tool"))
