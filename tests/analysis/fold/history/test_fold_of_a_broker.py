"""The fold finds in a real broker's log what its clients did, without Spark: groups, members, rebalances and causes."""

from __future__ import annotations

import json
import lzma
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from groupcoord.analysis.fold.history.causes import (
    CONVERSION,
    EXPIRY_OR_LEAVE,
    JOIN,
    LEAVE,
    METADATA_CHANGE,
    SESSION_EXPIRY,
    STATIC_REPLACE,
    UNKNOWN,
)
from groupcoord.analysis.fold.history.group_fold import FoldOptions, GroupFold
from groupcoord.analysis.fold.history.ownership import BALANCE, OWNER_GONE, SWAP
from groupcoord.analysis.fold.history.rows import (
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
    Row,
)
from groupcoord.records.typed import parse_record

BROKER_GROUPS = Path(__file__).with_name("broker_groups.json.xz")
CLOSE_MS = 15_000
"""A session's 12 s and what the clients took."""


@pytest.fixture(scope="module")
def broker() -> dict[str, Any]:
    """Records of an Apache Kafka 4.4.0 broker, and what its clients saw."""
    found: dict[str, Any] = json.loads(lzma.decompress(BROKER_GROUPS.read_bytes()))
    return found


@pytest.fixture(scope="module")
def histories(broker: dict[str, Any]) -> dict[str, list[tuple[str, Row]]]:
    """The rows of each group."""
    folds: dict[str, GroupFold] = {}
    rows: dict[str, list[tuple[str, Row]]] = {}
    for partition, log_offset, timestamp_ms, *rest in broker["records"]:
        if len(rest) == 3:
            group_id, topic, topic_partition = rest
            fold = fold_of(folds, broker, group_id, partition)
            fold.committed(log_offset, timestamp_ms, topic, topic_partition)
            continue
        key, value = (None if text is None else b64decode(text) for text in rest)
        assert key is not None
        record = parse_record(key, value)
        assert record is not None
        fold = fold_of(folds, broker, record.group_id, partition)
        fold.apply(log_offset, timestamp_ms, record)
        rows.setdefault(record.group_id, []).extend(fold.take_rows())
    for group_id, fold in folds.items():
        fold.finish()
        rows.setdefault(group_id, []).extend(fold.take_rows())
    return rows


def fold_of(folds: dict[str, GroupFold], broker: dict[str, Any], group_id: str, partition: int) -> GroupFold:
    """Return the fold of a group, which knows the names of topics."""
    if group_id not in folds:
        options = FoldOptions(complete_from=broker["complete_from"].get(str(partition), 0))
        folds[group_id] = GroupFold(group_id, partition, options)
        for topic_id, topic in broker["topic_ids"].items():
            folds[group_id].name_topic(topic_id, topic)
    return folds[group_id]


def of_kind(rows: list[tuple[str, Row]], kind: str) -> list[Row]:
    return [row for found, row in rows if found == kind]


def test_groups_are_those_of_the_broker(broker: dict[str, Any], histories: dict[str, list[tuple[str, Row]]]) -> None:
    """Type, state, protocol type, epoch and number of members of every group, and no other group."""
    found = {}
    for group_id, rows in histories.items():
        for row in of_kind(rows, GROUP):
            epoch = row["generation_or_epoch"] if row["type"] != "Classic" else None
            found[group_id] = [row["type"], row["state"], row["protocol_type"], epoch, row["member_count"]]
    assert found == broker["groups"]


def test_members_have_what_the_broker_said(broker: dict[str, Any], histories: dict[str, list[tuple[str, Row]]]) -> None:
    """The last members of each group own the partitions that its description listed."""
    found: dict[str, dict[str, list[str]]] = {}
    for group_id in broker["owned"]:
        rows = of_kind(histories[group_id], MEMBER)
        newest = max(row["log_offset"] for row in rows)
        found[group_id] = {
            row["member_id"]: sorted(f"{a['topic']}:{p}" for a in row["assignment"] for p in a["partitions"])
            for row in rows
            if row["log_offset"] == newest
        }

    assert found == broker["owned"]


def test_generations_are_those_of_the_log(histories: dict[str, list[tuple[str, Row]]]) -> None:
    rows = of_kind(histories["static-mixed"], GENERATION)
    assert [(row["generation"], row["member_count"]) for row in rows] == [(0, 0), (1, 2), (2, 3), (2, 3), (2, 3)]
    assert [row["protocol"] for row in rows] == [None, *["range"] * 4]


def verdicts(broker: dict[str, Any], histories: dict[str, list[tuple[str, Row]]]) -> Counter[str]:
    """Return how many of the clients' acts are rebalances with the right cause, unknown, wrong or missing."""
    counted: Counter[str] = Counter()
    for event in broker["events"]:
        group_id, member, what = event["group"], event.get("member", ""), event["what"]
        ids = set(broker["member_ids"].get(group_id, {}).get(member, ()))
        at_ms = round(event["t"] * 1000)
        rows = [row for row in of_kind(histories[group_id], REBALANCE) if concerns(row, what, member, ids, at_ms)]
        right = {
            "start": {JOIN, STATIC_REPLACE},
            "leave": {LEAVE, EXPIRY_OR_LEAVE},
            "kill -9": {EXPIRY_OR_LEAVE},
            "subscribe": {METADATA_CHANGE},
        }[what] | ({STATIC_REPLACE, SESSION_EXPIRY} if event.get("instance") or member.startswith("s") else set())
        if not rows:
            counted["missing"] += 1
        elif any(right & set(row["causes"]) for row in rows):
            counted["right"] += 1
        elif any(row["cause"] == UNKNOWN for row in rows):
            counted["unknown"] += 1
        else:
            counted["wrong"] += 1
    return counted


def concerns(row: Row, what: str, member: str, ids: set[str], at_ms: int) -> bool:
    """Return whether a rebalance may be that of an event, by its members or its time."""
    shown_ms = row["ended_ms"] or row["started_ms"]
    if what == "subscribe":
        return abs(shown_ms - at_ms) < CLOSE_MS and not row["joined"] + row["left"]
    side = "joined" if what == "start" else "left"
    # Clients that were deleted with their group are known by their name alone.
    return bool(ids & set(row[side])) if ids else member in row[f"{side}_clients"]


def test_what_clients_did_is_found_with_its_cause(
    broker: dict[str, Any], histories: dict[str, list[tuple[str, Row]]]
) -> None:
    """Every start, leave, kill and new subscription is a rebalance with the right cause; none has a wrong one.

    One was no rebalance: a static member was killed less than its session before the log ends.
    """
    assert verdicts(broker, histories) == {"right": len(broker["events"]) - 1, "missing": 1}


def test_a_killed_client_is_never_said_to_have_left(
    broker: dict[str, Any], histories: dict[str, list[tuple[str, Row]]]
) -> None:
    """A killed client may have expired; other evidence does not make that a leave."""
    for event in broker["events"]:
        if event["what"] == "kill -9":
            ids = set(broker["member_ids"][event["group"]][event["member"]])
            rows = [row for row in of_kind(histories[event["group"]], REBALANCE) if ids & set(row["left"])]
            assert not [row for row in rows if LEAVE in row["causes"]]


def test_every_rebalance_has_a_cause(histories: dict[str, list[tuple[str, Row]]]) -> None:
    rows = [row for found in histories.values() for row in of_kind(found, REBALANCE)]

    assert len(rows) == 91
    assert Counter(row["cause"] for row in rows) == {
        "join": 48,
        "leave": 29,
        "expiry or leave": 4,
        "session expiry": 2,
        "metadata change": 3,
        "static replace": 3,
        "leader rejoin": 2,
    }
    assert all(row["evidence"] and row["confidence"] > 0 for row in rows)


def test_a_group_keeps_its_history_over_a_change_of_type(histories: dict[str, list[tuple[str, Row]]]) -> None:
    """An upgrade to KIP-848 and the downgrade are part of the rebalances that they come with."""
    rows = of_kind(histories["upgrade-848"], REBALANCE)

    assert [(row["from_generation"], row["to_generation"], row["type"], row["cause"]) for row in rows] == [
        (0, 1, "Classic", JOIN),
        (1, 2, "Classic", JOIN),
        (2, 3, "Consumer", JOIN),
        (3, 4, "Consumer", LEAVE),
        (4, 5, "Consumer", LEAVE),
        (5, 6, "Consumer", JOIN),
        (6, 7, "Classic", LEAVE),
        (7, 8, "Classic", LEAVE),
    ]
    assert [len(row["joined"]) for row in rows] == [1, 1, 1, 0, 0, 1, 0, 0]
    assert [len(row["left"]) for row in rows] == [0, 0, 0, 1, 1, 0, 1, 1]
    assert [row["conversion"] for row in rows] == [None, None, "upgrade", None, None, None, "downgrade", None]


CONSUMER_GROUPS = ("churn-848-java-rdk", "static-848", "upgrade-848")
SESSION_MS = 12_000


def test_members_of_consumer_groups_began_and_ended_as_their_clients_say(
    histories: dict[str, list[tuple[str, Row]]],
) -> None:
    """Clients that left, were killed, returned, continued in a classic group, or ran until the end."""
    ends = {
        group_id: {row["client_id"]: row["end"] for row in of_kind(histories[group_id], MEMBERSHIP)}
        for group_id in CONSUMER_GROUPS
    }

    assert ends == {
        "churn-848-java-rdk": {"m1": None, "m2": EXPIRY_OR_LEAVE, "m3": LEAVE, "m4": None},
        "static-848": {"s0": STATIC_REPLACE, "s1": SESSION_EXPIRY, "s0-again": SESSION_EXPIRY},
        "upgrade-848": {"m1": LEAVE, "m2": LEAVE, "m3": LEAVE, "m4": CONVERSION},
    }
    away = [row for row in of_kind(histories["static-848"], MEMBERSHIP) if row["end"] == SESSION_EXPIRY]
    # The session is counted from the last heartbeat before the member left for a while.
    assert all(SESSION_MS - 1_000 < row["ended_ms"] - row["away_ms"] <= SESSION_MS for row in away)


def test_epochs_of_members_are_those_that_clients_printed(
    broker: dict[str, Any], histories: dict[str, list[tuple[str, Row]]]
) -> None:
    for group_id in CONSUMER_GROUPS:
        for row in of_kind(histories[group_id], MEMBERSHIP):
            assert row["first_epoch"] <= row["last_epoch"]
    churn = {row["client_id"]: row for row in of_kind(histories["churn-848-java-rdk"], MEMBERSHIP)}
    # From the broker's own account of the clients that lived until the end.
    assert [churn[name]["last_epoch"] for name in ("m1", "m4")] == [broker["groups"]["churn-848-java-rdk"][3]] * 2


def test_a_uniform_assignor_moves_what_it_must(histories: dict[str, list[tuple[str, Row]]]) -> None:
    """No swaps; members revoked within their poll, and until then the partitions had no other owner."""
    moves = [row for group_id in CONSUMER_GROUPS for row in of_kind(histories[group_id], MOVE)]
    took_ms = [row["took_ms"] for group_id in CONSUMER_GROUPS for row in of_kind(histories[group_id], REVOCATION)]
    reasons = Counter(row["reason"] for row in moves)
    assert (reasons[SWAP], reasons[BALANCE] > 0, reasons[OWNER_GONE] > 0) == (0, True, True)
    assert 0 < max(took_ms) < 1_000
    assert all(row["unowned_ms"] >= 0 for row in moves if row["unowned_ms"] is not None)
