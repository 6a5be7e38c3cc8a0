"""The runner against a make-believe server: verdicts, timing, grouping by settings, restarts and trouble."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groupcoord.conformance import Difference, Failure, Outcome, Report, Transcript, Verdict, parse_transcript, run
from groupcoord.conformance.targets import USUAL_SETTINGS, VIRTUAL_TIME, Tolerance
from tests.tables import as_one_test

from .scripted import ScriptedTarget

HEARTBEAT_BODY = {"group_id": "$g", "generation_id": 1, "member_id": "x", "group_instance_id": None}
HEARTBEAT = {"do": "send", "conn": "a", "api": "Heartbeat", "version": 4, "body": HEARTBEAT_BODY}
JOIN = {
    "do": "send",
    "conn": "a",
    "api": "JoinGroup",
    "version": 9,
    "body": {"group_id": "$g", "session_timeout": 9, "member_id": "", "protocol_type": "c", "protocols": []},
}
JOINED = {
    "error_code": "NONE",
    "generation_id": 1,
    "protocol_type": "c",
    "protocol_name": "p",
    "leader": "m",
    "member_id": "m",
    "members": [],
}


def answer(took_ms: int = 0, conn: str = "a", **body: Any) -> dict[str, Any]:
    return {"do": "recv", "conn": conn, "took_ms": took_ms, "body": body or {"error_code": "NONE"}}


def transcript(*steps: Any, **head: Any) -> Transcript:
    return parse_transcript(json.dumps({"name": "n", "area": "x", "steps": list(steps), **head}))


def only_outcome(target: ScriptedTarget, *steps: Any, **head: Any) -> Outcome:
    (outcome,) = run([transcript(*steps, **head)], target).outcomes
    return outcome


def failure_of(target: ScriptedTarget, *steps: Any, **head: Any) -> Failure:
    failure = only_outcome(target, *steps, **head).failure
    assert failure is not None
    return failure


def test_a_conversation_as_recorded_passes() -> None:
    """Answers that match and come in time pass, and the server is stopped afterwards."""
    target = ScriptedTarget(Heartbeat=lambda body: {"error_code": "NONE"})
    assert only_outcome(target, HEARTBEAT, answer()).verdict is Verdict.PASSED
    assert target.servers[0].is_stopped


def test_the_group_id_is_filled_in() -> None:
    """The server sees the run's group id in place of $g, and a list of groups is cut down to this run's."""
    seen = []
    group = {"protocol_type": "", "group_state": "Empty"}
    target = ScriptedTarget(
        Heartbeat=lambda body: seen.append(body["group_id"]),
        ListGroups=lambda body: {
            "error_code": "NONE",
            "groups": [{**group, "group_id": "n-000000"}, {**group, "group_id": "other"}],
        },
    )
    listing = {"do": "send", "conn": "b", "api": "ListGroups", "version": 4, "body": {"states_filter": []}}
    expected = answer(conn="b", error_code="NONE", groups=[{**group, "group_id": "$g"}])
    assert only_outcome(target, HEARTBEAT, listing, expected).verdict is Verdict.PASSED
    assert seen == ["n-000000"]


def test_a_different_answer_fails_with_step_and_path() -> None:
    target = ScriptedTarget(Heartbeat=lambda body: {"error_code": "UNKNOWN_MEMBER_ID"})
    failure = failure_of(target, {"do": "sleep", "ms": 1}, HEARTBEAT, answer())
    assert (failure.step, failure.action) == (3, "receive Heartbeat v4 on a")
    assert failure.difference == Difference("error_code", "NONE", "UNKNOWN_MEMBER_ID")
    assert 'got      "UNKNOWN_MEMBER_ID"' in failure.describe()
    assert "got body" in failure.describe(verbose=True)


USUAL = ScriptedTarget().tolerance  # 1.5 times as long and 100 ms


@as_one_test
@pytest.mark.parametrize(
    ("sent", "tolerance", "took_ms", "earliest_ms", "latest_ms"),
    [
        (HEARTBEAT, USUAL, 0, 0, 100),
        (HEARTBEAT, USUAL, 1000, 0, 1600),
        (JOIN, USUAL, 400, 0, 700),
        (JOIN, USUAL, 401, 231, 701),
        (JOIN, USUAL, 1000, 650, 1600),
        (HEARTBEAT, VIRTUAL_TIME, 1000, 800, 1050),
    ],
)
def test_answers_in_time(
    sent: dict[str, Any], tolerance: Tolerance, took_ms: int, earliest_ms: int, latest_ms: int
) -> None:
    """Only a join recorded with more than 400 ms may not be early; in virtual time no answer may."""

    def passes(delay_ms: int) -> bool:
        body = JOINED if sent is JOIN else {"error_code": "NONE"}
        target = ScriptedTarget(**{sent["api"]: lambda _: (delay_ms, body)})
        target.tolerance = tolerance
        return only_outcome(target, sent, answer(took_ms)).verdict is Verdict.PASSED

    delays = (max(earliest_ms - 1, 0), earliest_ms, latest_ms, latest_ms + 1)
    assert [passes(delay_ms) for delay_ms in delays] == [earliest_ms == 0, True, True, False]


@as_one_test
@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (None, "no response within 2100 ms"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x63", "not a response of Heartbeat v4"),
        (b"\x00\x00\x00\x02\x00\x00", "invalid response length 2;"),
        (b"\x7f\xff\xff\xff", "invalid response length 2147483647;"),
        (b"\x00\x00\x00\x0c" + b"\x00\x00\x00\x63" + bytes(7) + b"\x00", "carries correlation id 99, not 1"),
        (b"\x00\x00\x00\x0d" + b"\x00\x00\x00\x01" + bytes(9), "1 bytes are left over"),
    ],
)
def test_answers_that_are_none_fail(reply: bytes | None, message: str) -> None:
    """Silence, bytes that are no such response, and absurd lengths are failures with a reason."""
    target = ScriptedTarget(Heartbeat=lambda body: reply)
    assert message in failure_of(target, HEARTBEAT, answer()).message


def test_a_closed_connection_fails() -> None:
    failure = failure_of(ScriptedTarget(), HEARTBEAT, answer())
    assert (failure.step, failure.message) == (2, "the server hung up")


@pytest.mark.parametrize(("delay_ms", "verdict"), [(300, Verdict.FAILED), (301, Verdict.PASSED)])
def test_quiet_means_that_nothing_arrives(delay_ms: int, verdict: Verdict) -> None:
    """A response within the time of quiet is a failure; one after it is not."""
    target = ScriptedTarget(Heartbeat=lambda body: (delay_ms, {"error_code": "NONE"}))
    assert only_outcome(target, HEARTBEAT, {"do": "quiet", "conn": "a", "ms": 300}).verdict is verdict


def test_a_restart_closes_connections() -> None:
    """After a restart the server's readiness is checked again, and connections are new."""
    target = ScriptedTarget(Heartbeat=lambda body: {"error_code": "NONE"})
    assert only_outcome(target, HEARTBEAT, {"do": "restart"}, HEARTBEAT, answer()).verdict is Verdict.PASSED
    assert target.servers[0].restarts == 1


def test_restarts_are_skipped_where_they_can_not_be() -> None:
    outcome = only_outcome(ScriptedTarget(shared=True, can_restart=False), {"do": "restart"})
    assert outcome.verdict is Verdict.SKIPPED
    assert "restarts the server" in outcome.reason


CONSUMER_HEARTBEAT = {
    "do": "send",
    "conn": "a",
    "api": "ConsumerGroupHeartbeat",
    "version": 1,
    "body": {"group_id": "$g", "member_id": "m", "member_epoch": -1, "topic_partitions": None},
}


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_server_may_do_without_is_skipped_there(shared: bool) -> None:
    """A transcript about groups of KIP-848 is skipped at a server that doesn't list their APIs, and else played."""
    left = {"error_code": "NONE", "member_epoch": -1, "heartbeat_interval": 0}
    answers: Any = {"ConsumerGroupHeartbeat": lambda body: left}
    outcome = only_outcome(ScriptedTarget(shared=shared, **answers), CONSUMER_HEARTBEAT, answer())
    assert (outcome.verdict, outcome.reason) == (Verdict.SKIPPED, "the server does not list ConsumerGroupHeartbeat")
    listed = {"api_keys": [{"api_key": 68, "min_version": 0, "max_version": 1}], "error_code": "NONE"}
    answers["ApiVersions"] = lambda body: listed
    assert (
        only_outcome(ScriptedTarget(shared=shared, **answers), CONSUMER_HEARTBEAT, answer()).verdict is Verdict.PASSED
    )


def test_a_server_that_does_not_say_what_it_lists_fails() -> None:
    target = ScriptedTarget(ApiVersions=lambda body: None)
    failure = failure_of(target, CONSUMER_HEARTBEAT, answer())
    assert failure.action == "asking the server about itself"


def test_a_server_that_does_not_start_fails_its_transcripts() -> None:
    for shared in (False, True):
        target = ScriptedTarget(shared=shared)
        target.refuse_start = True
        failure = failure_of(target, {"do": "sleep", "ms": 1})
        assert (failure.step, failure.message) == (0, "no server today")


def test_a_server_that_never_gets_ready_fails() -> None:
    """A coordinator that never finishes loading is a failure before the first step."""
    target = ScriptedTarget(ListGroups=lambda body: {"error_code": "COORDINATOR_LOAD_IN_PROGRESS", "groups": []})
    failure = failure_of(target, {"do": "sleep", "ms": 1})
    assert (failure.step, failure.message) == (0, "the coordinators are not ready within 60 s")


def test_acls_are_set_on_a_server_of_ones_own() -> None:
    made: list[dict[str, Any]] = []
    shown = iter([0, 1, 1])
    answers: Any = {
        "DeleteAcls": lambda body: {"filter_results": []},
        "CreateAcls": lambda body: made.extend(body["creations"]) or {"results": []},
        "DescribeAcls": lambda body: {
            "error_code": "NONE",
            "error_message": None,
            "resources": [
                {
                    "resource_type": 3,
                    "resource_name": "x",
                    "acls": [{"principal": "p", "host": "*", "operation": 3, "permission_type": 2}],
                }
            ]
            * next(shown),
        },
    }
    target = ScriptedTarget(shared=True, **answers)
    acls = [{"deny": "READ", "group": "$g"}]
    outcomes = run([transcript(name=name, acls=acls) for name in ("one", "two")], target).outcomes
    assert [outcome.verdict for outcome in outcomes] == [Verdict.PASSED] * 2
    assert [server.settings["authorizer.class.name"].rsplit(".")[-1] for server in target.servers] == [
        "StandardAuthorizer"
    ] * 2
    assert [acl["resource_name"][:4] for acl in made] == ["one-", "two-"]
    assert {(acl["resource_type"], acl["operation"], acl["permission_type"]) for acl in made} == {(3, 3, 2)}


def test_acls_of_a_server_that_somebody_else_started_stay() -> None:
    target = ScriptedTarget(shared=True, Metadata=lambda body: {"brokers": [], "topics": []})
    target.own_settings = {}
    outcome = only_outcome(target, acls=[{"deny": "READ", "group": "$g"}])
    assert (outcome.verdict, outcome.reason) == (Verdict.SKIPPED, "it sets ACLs")


def test_order_and_messages_are_compared_where_a_transcript_says_so() -> None:
    """Lists match in any order, and messages are ignored, unless a transcript has in_order or messages."""
    topics = [{"name": name, "error_code": "NONE", "error_message": name} for name in ("a", "b")]
    target = ScriptedTarget(CreatePartitions=lambda body: {"results": topics})
    send = {"topics": [], "timeout": 1, "validate_only": False}
    sent = {"do": "send", "conn": "b", "api": "CreatePartitions", "version": 3, "body": send}
    swapped = answer(conn="b", results=topics[::-1])
    assert only_outcome(target, sent, swapped).verdict is Verdict.PASSED
    failure = failure_of(target, sent, swapped, in_order=True)
    assert failure.difference == Difference("results.0.name", "b", "a")
    other = answer(conn="b", results=[topics[0], topics[1] | {"error_message": "why"}])
    assert only_outcome(target, sent, other, in_order=True).verdict is Verdict.PASSED
    failure = failure_of(target, sent, other, messages=True)
    assert failure.difference == Difference("results[1].message", "why", "b")


def test_shared_servers_are_one_per_settings() -> None:
    target = ScriptedTarget(shared=True)
    size = {"group.max.size": 2}
    made = [transcript({"do": "sleep", "ms": 1}, name=str(n), config=size if n % 2 else {}) for n in range(6)]
    seen: list[Outcome] = []
    report = run(made, target, jobs=2, on_outcome=seen.append)
    assert [outcome.transcript.name for outcome in report.outcomes] == list("012345")
    assert sorted(outcome.transcript.name for outcome in seen) == list("012345")
    assert sorted((server.settings for server in target.servers), key=len) == [
        dict(USUAL_SETTINGS),
        {**USUAL_SETTINGS, **size},
    ]
    assert all(server.is_stopped for server in target.servers)


def test_servers_of_their_own_are_one_per_transcript() -> None:
    target = ScriptedTarget()
    run([transcript({"do": "sleep", "ms": 1}) for _ in range(3)], target)
    assert len(target.servers) == 3


def test_jobs_must_be_positive() -> None:
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        run([], ScriptedTarget(), jobs=0)


def test_a_report_counts_and_describes() -> None:
    target = ScriptedTarget(Heartbeat=lambda body: {"error_code": "NONE"})
    good, bad = (
        transcript(HEARTBEAT, answer()),
        transcript(HEARTBEAT, answer(error_code="FENCED_INSTANCE_ID"), area="y"),
    )
    report = run([good, bad], target)
    assert (report.ok, report.areas(), report.count(Verdict.PASSED, "y")) == (False, ["x", "y"], 0)
    assert report.describe().splitlines()[-1] == report.summary() == "1 passed, 1 failed, 0 skipped"
    data = json.loads(json.dumps(report.to_json()))
    assert (data["passed"], data["failed"], data["skipped"]) == (1, 1, 0)
    assert data["outcomes"][1]["failure"]["path"] == "error_code"
    assert Report().ok
