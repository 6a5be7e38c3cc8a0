"""Reading transcripts: errors name the file and the step."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from groupcoord.conformance import TranscriptError, load_transcripts, parse_transcript
from groupcoord.conformance.transcript import (
    ACL_SETTINGS,
    AclEntry,
    Close,
    Quiet,
    Receive,
    Restart,
    Send,
    SetAcls,
    Sleep,
)
from tests.tables import as_one_test

HEARTBEAT: dict[str, Any] = {
    "do": "send",
    "conn": "a",
    "api": "Heartbeat",
    "version": 4,
    "body": {"group_id": "$g", "generation_id": 1, "member_id": "x", "group_instance_id": None},
}
ANSWER = {"do": "recv", "conn": "a", "took_ms": 3, "body": {"error_code": "NONE"}}


def text(*steps: Any, **head: Any) -> str:
    return json.dumps({"name": "n", "area": "x", "steps": list(steps), **head})


def test_every_kind_of_step_is_read() -> None:
    """All six steps become values, with defaults for what may be left out."""
    transcript = parse_transcript(
        text(
            HEARTBEAT,
            ANSWER,
            {"do": "sleep", "ms": 5},
            {"do": "quiet", "conn": "a", "ms": 7},
            {"do": "close", "conn": "a"},
            {"do": "restart"},
            topics={"t": 2},
            config={"group.max.size": 2},
        )
    )
    assert transcript.steps == (
        Send("a", "a", "Heartbeat", 4, HEARTBEAT["body"]),
        Receive("a", 3, {"error_code": "NONE"}),
        Sleep(5),
        Quiet("a", 7),
        Close("a"),
        Restart(),
    )
    assert (str(transcript), transcript.shows, transcript.restarts) == ("x/n", "", True)
    assert (transcript.topics, transcript.settings) == ({"t": 2}, {"group.max.size": 2})


def test_acls_are_read() -> None:
    """ACLs stand in the head or in a step, with Kafka's numbers, and bring the settings of an authorizer."""
    deny, allow = {"deny": "READ", "group": "$g"}, {"allow": "ALL", "topic": "t", "principal": "User:alice"}
    transcript = parse_transcript(text({"do": "acls", "acls": [allow]}, acls=[deny], config={"group.max.size": 2}))
    assert transcript.acls == (AclEntry(3, "$g", 3, 2, "User:*"),)
    assert transcript.steps == (SetAcls((AclEntry(2, "t", 2, 3, "User:alice"),)),)
    assert transcript.settings == {"group.max.size": 2, **ACL_SETTINGS}
    assert transcript.sets_acls
    assert not parse_transcript(text(HEARTBEAT)).sets_acls


@as_one_test
@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([7], "step 1: must be a table"),
        ([{"conn": "a"}], "step 1: do: is missing"),
        ([{"do": "dance"}], "step 1: do: there is no step 'dance'"),
        ([{"do": "sleep", "ms": 1}, {"do": "sleep", "ms": "1"}], "step 2: ms: must be a whole number"),
        ([{"do": "sleep", "ms": True}], "step 1: ms: must be a whole number"),
        ([{"do": "sleep", "ms": -1}], "step 1: ms: must be a whole number from 0"),
        ([{"do": "sleep", "ms": 1, "sec": 2}], "step 1: sec: is an unknown key; there are do, ms"),
        ([{"do": "acls", "acls": [{"group": "g"}]}], "step 1: acls[0]: must have one of deny, allow"),
        ([{"do": "acls", "acls": [{"deny": "READ"}]}], "step 1: acls[0]: must have one of topic, group"),
        ([{"do": "acls", "acls": [{"deny": "DANCE", "group": "g"}]}], "step 1: acls[0].deny: there is no oper"),
        ([{"do": "acls", "acls": [{"deny": "READ", "group": "g", "host": "*"}]}], "step 1: acls[0].host: is"),
        ([{**HEARTBEAT, "api": "HeartBeat"}], "step 1: there is no API 'HeartBeat'"),
        ([{**HEARTBEAT, "version": 99}], "step 1: Heartbeat has no version 99"),
        ([{**HEARTBEAT, "body": {**HEARTBEAT["body"], "group": "g"}}], "step 1: there is no field group; there are"),
        ([{**HEARTBEAT, "body": {"group_id": "g"}}], "step 1: 'generation_id' is missing @ HeartbeatRequest"),
        ([{**HEARTBEAT, "body": {**HEARTBEAT["body"], "generation_id": "1"}}], "step 1: Heartbeat v4"),
        ([{**HEARTBEAT, "body": {**HEARTBEAT["body"], "member_id": "$m1"}}], "step 1: '$m1' is sent before"),
        ([{**HEARTBEAT, "body": {**HEARTBEAT["body"], "member_id": "$any"}}], "step 1: '$any' is sent before"),
        ([{**HEARTBEAT, "body": {**HEARTBEAT["body"], "member_id": "$q"}}], "step 1: '$q' is no variable"),
        ([ANSWER], "step 1: connection 'a' is not open"),
        ([HEARTBEAT, ANSWER, ANSWER], "step 3: connection 'a' has no unanswered request"),
        ([HEARTBEAT, {"do": "restart"}, ANSWER], "step 3: connection 'a' is not open"),
        ([HEARTBEAT, {**ANSWER, "body": {"errors": 1}}], "step 2: HeartbeatResponse has no field 'errors'"),
        (
            [{**HEARTBEAT, "body": {**HEARTBEAT["body"], "member_id": "$topic:t9"}}],
            "step 1: '$topic:t9' is not among the topics",
        ),
        ([{"do": "quiet", "conn": "a", "ms": 1}], "step 1: connection 'a' is not open"),
        ([{"do": "close", "conn": "a"}], "step 1: connection 'a' is not open"),
    ],
)
def test_malformed_steps_are_refused(steps: list[Any], message: str) -> None:
    """The error names the source, the step and what is wrong with it."""
    with pytest.raises(TranscriptError, match=re.escape(f"some.json: {message}")):
        parse_transcript(text(*steps), "some.json")


@as_one_test
@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{\n oops", "line 2: not JSON"),
        ("[]", "must be a table"),
        ("[" * 100_000, "nested too deeply"),
        ('{"area": "x", "steps": []}', "name: is missing"),
        ('{"name": "n", "area": "x"}', "steps: is missing"),
        ('{"name": "n", "area": "x", "steps": {}}', "steps: must be a list"),
        (text(colour="red"), "colour: is an unknown key"),
        (text(topics={"t": 0}), "topics.t: must be a whole number from 1"),
        (text(config={"k": [1]}), "config.k: must be a number or text"),
    ],
)
def test_malformed_documents_are_refused(document: str, message: str) -> None:
    """The error names the source and what is wrong with the document."""
    with pytest.raises(TranscriptError, match=re.escape(f"some.json: {message}")):
        parse_transcript(document, "some.json")


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    """A folder gives every .json file below it, sorted by path; a file gives itself."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.json").write_text(text(name="two"))
    (tmp_path / "a.json").write_text(text(name="one"))
    (tmp_path / "notes.txt").write_text("not a transcript")
    assert [t.name for t in load_transcripts(tmp_path)] == ["one", "two"]
    assert [t.name for t in load_transcripts(tmp_path / "a.json")] == ["one"]


def test_absent_and_empty_paths_are_refused(tmp_path: Path) -> None:
    """No such file, an unreadable one and a folder without transcripts are errors that name the path."""
    with pytest.raises(TranscriptError, match=r"nowhere\.json: no such file"):
        load_transcripts(tmp_path / "nowhere.json")
    with pytest.raises(TranscriptError, match="no transcripts"):
        load_transcripts(tmp_path)
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TranscriptError, match=r"bad\.json: can't be read"):
        load_transcripts(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "node", "reason"),
    [
        (2, 3, "there is no node 3; 'nodes' is 2"),
        (1, 0, "there is no node 0"),
        (2, "controller", "node: must be a whole number or 'coordinator', not 'controller'"),
        (0, 1, "nodes: must be a whole number from 1 to 1000000, not 0"),
    ],
)
def test_nodes_that_there_are_not(nodes: int, node: object, reason: str) -> None:
    body = {"groups": ["$g"], "include_authorized_operations": False}
    send = {"do": "send", "conn": "a", "node": node, "api": "DescribeGroups", "version": 5, "body": body}
    document = {"name": "n", "area": "a", "nodes": nodes, "steps": [send]}
    with pytest.raises(TranscriptError, match=re.escape(reason)):
        parse_transcript(json.dumps(document))
