"""The exam as its users have it: plans, verdicts, a command, and a test for each scenario."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from attrs import evolve

from groupcoord import cli
from groupcoord.messages import ConsumerGroupHeartbeat
from groupcoord.testing import exam
from groupcoord.testing.exams import (
    SCENARIOS,
    Breach,
    CommandError,
    Event,
    Law,
    Plan,
    Result,
    Scenario,
    Verdict,
    scenarios_for,
)
from groupcoord.testing.exams.as_tests import command_for
from groupcoord.testing.exams.examination import exam_junit, exam_page, in_lines, story
from groupcoord.testing.exams.stage import GROUP_ID, PARTITIONS, TOPIC, Stage
from groupcoord.testing.exams.trace import judge
from groupcoord.testing.faults.control import Control
from tests.tables import as_one_test

from .rounds import of_worker
from .worker import Worker

COMMAND, QUEUE_COMMAND, ONCE_COMMAND = map(of_worker, ("worker.py", "queue_worker.py", "transactional_worker.py"))
BREACH = Breach(2.5, "worker1", "commits 9 of partition 0, and record 0-7 is not processed")


def work(bootstrap: str, group: str, topic: str, output: str, instance: str, protocol: str) -> None:
    Worker(bootstrap, group, topic, output, instance, protocol).run()


def result_of(*verdicts: Verdict, trouble: str = "", scenario: Scenario = SCENARIOS[0]) -> Result:
    events = (
        Event(1.0, "", "quiet begins"),
        Event(2.0, "worker2", "Heartbeat exam -> fine"),
        Event(2.4, "worker1", "OffsetCommit exam: exam-input-0 at 9 -> fine"),
        Event(3.0, "worker1", "later"),
    )
    return Result(scenario, verdicts, events, 4.25, not trouble, trouble, {"worker1": "no\nsuch broker"})


@as_one_test
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plan(()), "no command given; append -- COMMAND…"),
        (lambda: Plan(("x", "{topik}")), "unknown placeholder {topik} in '{topik}'"),
        (lambda: Plan(("x", "{")), "'{' can't be read"),
        (lambda: Plan(("x",), instances=1), "instances must be from 2 to 4, not 1"),
        (lambda: Plan(("x",), protocol="streams"), "protocol is one of classic, consumer, share, not 'streams'"),
        (lambda: Plan(("x",), protocol="share", declared="exactly-once"), "share groups have no transactions"),
        (lambda: Plan(("x",), declared="twice"), "declared is one of at-least-once, exactly-once, nothing"),
        (lambda: Plan(("x",), within_s=0), "within_s must be more than 0"),
        (lambda: Plan(("x",), security_protocol="TLS"), "security_protocol is one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        (lambda: Plan(("x",), mechanism="GSSAPI"), "mechanism is one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (
            lambda: scenarios_for(Plan(("x",)), ["quiet", "nothing like it"]),
            "no scenario's name matches 'nothing like it'; there are quiet",
        ),
        (
            lambda: scenarios_for(Plan(("x",)), ["quiet", "^locks"]),
            "locks-run-out is not played: it is for protocol share, not classic",
        ),
        (
            lambda: scenarios_for(Plan(("x",)), ["is-fenced"]),
            "transaction-is-fenced is not played: it is for programs that declare exactly-once, not at-least-once",
        ),
        (lambda: scenarios_for(Plan(("x",)), ["^login"]), "login-expires is not played: it needs a log-in"),
        (lambda: scenarios_for(Plan(("x",)), ["("]), "'(' is no regular expression"),
        (lambda: command_for(lambda topic: None), "must be a function at the top of a file"),
        (lambda: command_for(result_of), "result_of() takes 'verdicts'"),
    ],
)
def test_what_can_not_be_examined_is_told(make: Callable[[], object], message: str) -> None:
    """A plan that can't be carried out is refused before anything starts, with what is wrong about it."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared below
        make()
    assert message in str(refused.value)


def test_scenarios_are_those_of_the_protocol() -> None:
    """A program gets the scenarios of its protocol, and each has its reason."""
    classic, consumer = ({one.name for one in scenarios_for(Plan(("x",), protocol=p))} for p in ("classic", "consumer"))

    assert "errors-of-JoinGroup" in classic - consumer
    assert "errors-of-ConsumerGroupHeartbeat" in consumer - classic
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
    share = {one.name for one in scenarios_for(Plan(("x",), protocol="share"))}
    assert "locks-run-out" in share - classic - consumer
    assert "offsets-expire" in consumer - share
    once = {one.name for one in scenarios_for(Plan(("x",), declared="exactly-once"))}
    assert once - classic == {"transaction-is-fenced", "transaction-coordinator-moves"}
    assert classic - once == {"offsets-expire", "offsets-are-reset", "topic-is-made-again"}
    login = {one.name for one in scenarios_for(Plan(("x",), security_protocol="SASL_SSL"))}
    assert login - classic == {"login-expires"}
    assert all(one.why.endswith(".") for one in SCENARIOS)


def test_a_law_that_explains_another_takes_the_blame() -> None:
    """Consequences of a fenced member that does not return are not counted; unchecked laws are omitted."""
    verdicts = judge({Law.FENCED: [BREACH], Law.CAUGHT_UP: [BREACH], Law.OWNED: [], Law.LEAVING: [BREACH]})

    assert [verdict.law for verdict in verdicts] == [Law.OWNED, Law.FENCED, Law.CAUGHT_UP, Law.LEAVING]
    assert [verdict.law for verdict in verdicts if verdict.is_broken] == [Law.FENCED]
    assert verdicts[2].explained_by is Law.FENCED


def test_a_broken_law_is_told_with_its_story() -> None:
    """The story has the instance's and the exam's actions before the breach, and no others."""
    broken = result_of(Verdict(Law.AHEAD, (BREACH,)), Verdict(Law.OWNED))

    assert not broken.is_passed
    assert in_lines(broken) == [
        "  broken: no committed offset is beyond the processed records",
        "    2.5 s: worker1 commits 9 of partition 0, and record 0-7 is not processed",
        "    events before it:",
        "         1.00 s  the exam: quiet begins",
        "         2.40 s  worker1: OffsetCommit exam: exam-input-0 at 9 -> fine",
        "         2.50 s  worker1: commits 9 of partition 0, and record 0-7 is not processed",
    ]
    seen = evolve(broken, known_bugs={"worker1": ["looks like a known bug"]})
    assert in_lines(seen) == [*in_lines(broken), "  worker1 looks like a known bug"]
    assert "worker1 looks like a known bug" in exam_page([seen], "x")
    assert in_lines(result_of(trouble="nobody came")) == [
        "  nobody came",
        "  worker1 printed last: no",
        "  worker1 printed last: such broker",
    ]


def test_the_story_has_the_causes_that_a_breach_names() -> None:
    """A commit that goes back is shown with the commit before it, by any member, at any time."""
    before = Event(0.5, "worker3", "OffsetCommit exam: exam-input-0 at 9 -> fine")
    back = Breach(2.5, "worker1", "commits 3 of partition 0, and 9 was committed before", (before,))

    assert [event.text for event in story(result_of(), back)] == [
        "OffsetCommit exam: exam-input-0 at 9 -> fine",
        "quiet begins",
        "OffsetCommit exam: exam-input-0 at 9 -> fine",
        "commits 3 of partition 0, and 9 was committed before",
    ]


def test_what_is_broken_without_faults_is_told_once() -> None:
    """A law that is broken in quiet is only named in other scenarios; other laws have their stories there."""
    baseline = result_of(Verdict(Law.AHEAD, (BREACH,)))
    alike = result_of(Verdict(Law.AHEAD, (BREACH,)), scenario=SCENARIOS[1])
    worse = result_of(Verdict(Law.AHEAD, (BREACH,)), Verdict(Law.FENCED, (BREACH,)), scenario=SCENARIOS[2])

    known = "  broken in quiet, too: no committed offset is beyond the processed records"
    assert in_lines(alike, baseline) == [known]
    lines = in_lines(worse, baseline)
    assert (lines[0], lines[-1]) == ("  broken: a fenced instance stops or rejoins", known)
    assert in_lines(baseline, baseline) == in_lines(baseline)
    page = exam_page([baseline, alike, worse], "x")
    assert (page.count("<details>"), page.count('class="sequence"')) == (2, 4)


def test_results_for_build_servers_and_people() -> None:
    """JUnit has a case for each scenario with the laws that are broken; the page a row, and a diagram of the breach."""
    results = [result_of(Verdict(Law.AHEAD)), result_of(Verdict(Law.AHEAD, (BREACH,)), Verdict(Law.OWNED))]
    passed, failed = Xml.fromstring(exam_junit(results)).iter("testcase")
    page = exam_page(results, "my-program <x>")

    assert (failed[0].get("message"), len(passed)) == ("no committed offset is beyond the processed records", 0)
    assert "1 of 2 scenarios passed." in page
    assert "my-program &lt;x&gt;" in page
    rows = [re.sub(r"\s*<[^>]+>\s*", "|", row) for row in re.findall("<tr>(.*?)</tr>", page)]
    assert [re.findall("[^|]+", row) for row in rows[1:]] == [
        ["FAILED", "4 s", "quiet", SCENARIOS[0].why, "no committed offset is beyond the processed records"],
        ["passed", "4 s", "quiet", SCENARIOS[0].why],
    ]
    assert page.count('class="sequence"') == 1


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid programs and options end with status 2 and a line; --list shows the scenarios."""
    for words, message in (
        ([], "no command given"),
        (["--protocol", "streams", "--", "x"], "protocol is one of"),
        (["--set", "x", "--", "x"], "--set takes KEY=VALUE"),
        (["--only", "quiet", "--", "/nowhere/program"], "can't start /nowhere/program"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["exam", *words])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["exam", "--list", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["name"] == "quiet"


def test_a_program_that_cannot_start_is_an_error() -> None:
    """A missing command is reported, and its server is stopped."""
    test = exam(["/nowhere/program"], only=["^quiet$"])
    with pytest.raises(CommandError, match="can't start /nowhere/program"):
        test(SCENARIOS[0])


def test_offsets_expire_and_records_do_not(tmp_path: Path) -> None:
    """After the time that the exam lets pass, nothing is committed, and all that came is there to be read again."""
    with Stage(Plan(("x",)), tmp_path, {}) as stage:
        stage.produce(0)
        stage.commit({0: 1})
        assert stage.places() == {0: 1}
        stage.begin_anew()
        assert stage.wait(lambda: not stage.places(), 5.0)
        assert [record.value for record in stage.server.records(TOPIC)] == [b"0-0"]


def test_nobody_waits_for_the_session_of_who_ended_by_itself(tmp_path: Path) -> None:
    """It is started again, and the former member is not waited for, whatever its session timeout."""
    with Stage(Plan(("true",)), tmp_path, {}) as stage:
        stage.server.control(
            lambda control: control.coordinating(GROUP_ID).coordinator.call(
                ConsumerGroupHeartbeat(
                    GROUP_ID,
                    "m",
                    subscribed_topic_names=(TOPIC,),
                    rebalance_timeout_ms=60_000,
                    topic_partitions=(),
                )
            )
        )
        stage.start(stage.first)
        stage.trace.seats[stage.first.name].member_ids = {"m"}
        assert [member.member_id for member in stage.server.members(GROUP_ID)] == ["m"]
        assert stage.wait(lambda: not stage.server.members(GROUP_ID), 5.0)


def test_no_record_comes_after_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Records in flight are waited for, so that none comes late."""
    produced: list[int] = []
    begun = threading.Event()

    def produce(index: int) -> None:
        begun.set()
        time.sleep(0.01)  # as a busy machine does
        produced.append(index)

    with Stage(Plan(("x",)), tmp_path, {}) as stage:
        monkeypatch.setattr(stage, "produce", produce)
        stage.feed()
        assert begun.wait(5.0)
        stage.stop_feeding()
        assert len(produced) % PARTITIONS == 0


def test_errors_of_rebalances_begin_when_the_group_is_at_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else each would last until the exam gives up waiting, and members would be out before it is over."""
    active: list[list[str]] = []
    with Stage(Plan(("x",)), tmp_path, {}) as stage:
        monkeypatch.setattr(stage, "wait", lambda *_: active.append(stage.server.control(Control.describe_faults)))
        monkeypatch.setattr(stage, "meet", lambda *_, **__: True)
        monkeypatch.setattr(stage, "pause", lambda *_: True)
        next(one for one in SCENARIOS if one.name == "errors-of-JoinGroup").happen(stage)
    assert active
    assert not any(active)


@pytest.mark.ci
@pytest.mark.parametrize("thread", [0, -1], ids=["the_main_thread", "another_thread"])
def test_an_exam_that_is_broken_off_leaves_no_instance(thread: int, tmp_path: Path) -> None:
    """SIGTERM ends the command, as a build server does, and all that it has started, whichever thread takes it."""
    pipe = tmp_path / "lives"
    os.mkfifo(pipe)
    script = f"exec 3>{pipe}; echo >&3; exec sleep 600"
    exam_command = [sys.executable, "-m", "groupcoord", "exam", "--only", "^quiet$", "--", "sh", "-c", script]
    with subprocess.Popen(exam_command) as broken_off, pipe.open() as lives:
        lives.readline()
        threads = sorted(int(one) for one in os.listdir(f"/proc/{broken_off.pid}/task"))
        ctypes.CDLL(None).tgkill(broken_off.pid, threads[thread], signal.SIGTERM)
        assert broken_off.wait(20.0) == 128 + signal.SIGTERM
        lives.read()  # is back when nobody has it open any more


@pytest.mark.ci
def test_a_right_program_passes_by_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A program that loses nothing passes; a page and a JUnit file are written."""
    page, junit = tmp_path / "exam.html", tmp_path / "exam.xml"
    with pytest.raises(SystemExit) as ended:
        cli.main(
            [
                *(
                    "exam",
                    "--only",
                    "^killed$",
                    "--only",
                    "^coordinator-moves$",
                    "--jobs",
                    "2",
                    "--protocol",
                    "consumer",
                ),
                *("--html", str(page), "--junit", str(junit), "--", *COMMAND),
            ]
        )

    out = capfd.readouterr().out
    assert (ended.value.code, out.splitlines()[-1]) == (0, "2 passed, 0 failed"), out
    assert "2 of 2 scenarios passed." in page.read_text()
    assert Xml.parse(junit).getroot().get("failures") == "0"


@pytest.mark.ci
def test_a_program_that_never_commits_is_told_so_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """A failure common to all scenarios is reported once: the others are skipped. Progress of --json is on stderr."""
    command = of_worker("wrong_workers.py", "never-commits")
    with pytest.raises(SystemExit) as ended:
        cli.main(["exam", "--json", "--within", "3", "--", *command])

    out, err = capfd.readouterr()
    (result,) = json.loads(out)
    (broken,) = [verdict for verdict in result["verdicts"] if verdict["breaches"]]
    assert (ended.value.code, broken["law"], result["trouble"]) == (1, "processed records are committed", "")
    assert "FAILED quiet" in err
    assert "32 other scenarios were not played" in err


test_a_function_is_examined = pytest.mark.ci(exam(work, only=["^session-ends$"]))
test_offsets_that_go_back_are_worked_off = pytest.mark.ci(exam(COMMAND, only=["^offsets", "^slow-processing$"]))
test_what_was_not_sent_is_not_committed = pytest.mark.ci(exam(COMMAND, only=["^killed$"], declared="nothing"))
test_a_topic_is_made_again = pytest.mark.ci(exam(COMMAND, only=["made-again"], protocol="consumer"))
test_log_ins_are_renewed = pytest.mark.ci(exam(COMMAND, only=["^login"], security_protocol="SASL_SSL"))
test_queue_workers_survive = pytest.mark.ci(exam(QUEUE_COMMAND, only=["^killed", "^locks"], protocol="share"))
test_transactions_survive = pytest.mark.ci(exam(ONCE_COMMAND, only=["^transaction"], declared="exactly-once"))
