"""The command ``groupcoord conformance``: selection, output and exit status."""

from __future__ import annotations

import builtins
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

import groupcoord.conformance as groupcoord_conformance
from groupcoord import cli

from .scripted import ScriptedTarget

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="groupcoord")
def _groupcoord(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line against the make-believe server; returns exit status, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")
    target = ScriptedTarget(Heartbeat=lambda body: {"error_code": "UNKNOWN_MEMBER_ID"})
    monkeypatch.setattr(groupcoord_conformance, "InProcessTarget", lambda: target)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        output = capsys.readouterr()
        return int(caught.value.code or 0), output.out, output.err

    return run


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A folder with one transcript that passes against the make-believe server and one that fails."""
    return write_transcripts(tmp_path / "transcripts", good="UNKNOWN_MEMBER_ID", bad="NONE")


def write_transcripts(folder: Path, **codes: str) -> Path:
    """Write a transcript for each area that is named, with the code that it expects; the server has but one."""
    folder.mkdir(exist_ok=True)
    body = {"group_id": "$g", "generation_id": 1, "member_id": "x", "group_instance_id": None}
    send = {"do": "send", "conn": "a", "api": "Heartbeat", "version": 4, "body": body}
    for area, code in codes.items():
        steps: list[Any] = [send, {"do": "recv", "conn": "a", "body": {"error_code": code}}]
        head = {"name": "heartbeat", "area": area, "shows": f"It is {area}.", "config": {"group.max.size": 3}}
        (folder / f"{area}.json").write_text(json.dumps({**head, "steps": steps}))
    return folder


def test_a_run_without_failures_exits_with_0(groupcoord: Run, folder: Path) -> None:
    """The last line counts, and the status is 0."""
    status, out, _ = groupcoord("conformance", str(folder / "good.json"))
    assert (status, out.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 skipped")


def test_a_failure_is_explained_and_exits_with_1(groupcoord: Run, folder: Path) -> None:
    """The failure names transcript, step, path, both values and the settings it needs."""
    status, out, _ = groupcoord("conformance", str(folder))
    assert (status, out.splitlines()[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    for part in (
        "FAILED bad/heartbeat",
        "It is bad.",
        "step 2, receive Heartbeat v4 on a: the response differs",
        "at       error_code",
        'expected "NONE"',
        'got      "UNKNOWN_MEMBER_ID"',
        "it needs the settings group.max.size=3",
    ):
        assert part in out
    assert "FAILED good" not in out


def test_verbose_lists_every_transcript(groupcoord: Run, folder: Path) -> None:
    """--verbose adds a line per transcript and whole bodies."""
    _, out, _ = groupcoord("conformance", "--verbose", str(folder))
    assert "passed  good/heartbeat" in out
    assert 'got body      {"throttle_time": 0, "error_code": "UNKNOWN_MEMBER_ID"}' in out


def test_json_output_is_json_alone(groupcoord: Run, folder: Path) -> None:
    """--json prints the report as JSON and keeps the exit status."""
    status, out, _ = groupcoord("conformance", "--json", str(folder))
    assert status == 1
    assert json.loads(out)["failed"] == 1


def test_junit_file(groupcoord: Run, folder: Path, tmp_path: Path) -> None:
    """--junit writes every transcript as a test case, and the exit status stays."""
    path = tmp_path / "report.xml"
    status, out, _ = groupcoord("conformance", "--junit", str(path), str(folder))

    cases = {case.get("classname"): [child.tag for child in case] for case in Xml.parse(path).iter("testcase")}
    assert (status, out.splitlines()[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    assert cases == {"good": [], "bad": ["failure"]}


def test_a_junit_file_that_cannot_be_written(groupcoord: Run, folder: Path) -> None:
    """If the --junit file can't be written, the status is 2 with the reason."""
    status, _, err = groupcoord("conformance", "--junit", str(folder), str(folder))
    assert (status, err) == (2, f"groupcoord conformance: {folder} can't be written: Is a directory\n")


def test_too_many_skipped(groupcoord: Run, tmp_path: Path) -> None:
    body = {"group_id": "g", "member_id": "m", "member_epoch": -1, "topic_partitions": None}
    steps = [{"do": "send", "conn": "a", "api": "ConsumerGroupHeartbeat", "version": 1, "body": body}]
    head = {"name": "beat", "area": "new", "shows": "It is new."}
    (tmp_path / "beat.json").write_text(json.dumps({**head, "steps": steps}))

    for most, wanted in (("0", 1), ("1", 0)):
        status, out, err = groupcoord("conformance", "--max-skipped", most, str(tmp_path))
        assert (status, out.splitlines()[-1:]) == (wanted, ["0 passed, 0 failed, 1 skipped"])
        assert err == ("groupcoord conformance: 1 were skipped, 0 may be\n" if wanted else "")


def test_a_table_of_settings_is_for_a_command(groupcoord: Run, tmp_path: Path) -> None:
    """--launch-settings without --launch, or with a file that isn't there, is refused."""
    table = str(tmp_path / "settings.toml")
    for words, message in (
        (["--launch-settings", table], "--launch-settings is for --launch"),
        (["--launch-settings", table, "--launch", "x {port}"], f"{table} can't be read: No such file or directory"),
    ):
        status, _, err = groupcoord("conformance", *words)
        assert (status, err) == (2, f"groupcoord conformance: {message}\n")


def test_expected_failures(groupcoord: Run, folder: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("*/heartbeat  # our members are others\n")
    status, out, _ = groupcoord("conformance", "--expect-failures", str(known), str(folder))

    assert (status, out.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 skipped, 1 expected")
    assert "1 expected: our members are others" in out
    assert "good/heartbeat was expected to fail, and passed" in out
    known.write_text("\nb/nothing\n")
    _, _, err = groupcoord("conformance", "--expect-failures", str(known), str(folder))
    assert "known.txt: line 2: there is no transcript 'b/nothing'" in err


@pytest.fixture(name="saved")
def _saved(groupcoord: Run, folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two runs that were kept with --json: in the second, what was bad is mended, and what was good is broken."""
    runs = tmp_path / "before.json", tmp_path / "after.json"
    runs[0].write_text(groupcoord("conformance", "--json", str(folder))[1])
    write_transcripts(folder, good="NONE", bad="UNKNOWN_MEMBER_ID")
    runs[1].write_text(groupcoord("conformance", "--json", str(folder))[1])
    return runs


def test_compare_with_a_saved_run(groupcoord: Run, folder: Path, saved: tuple[Path, Path]) -> None:
    """--compare lists new failures, fixed ones, and the run they began with; with --json as data."""
    status, out, _ = groupcoord("conformance", "--compare", str(saved[0]), str(folder))
    assert status == 1
    failure = "failed at step 2, receive Heartbeat v4 on a: the response differs"
    assert f"bad/heartbeat: passed; before: {failure}" in out
    assert f"good/heartbeat: {failure}; before: passed" in out
    assert out.splitlines()[-1] == f"since {saved[0]}: 1 fail now, 1 no longer fail, 0 others changed"

    _, out, _ = groupcoord("conformance", "--json", "--compare", str(saved[1]), str(folder))
    assert json.loads(out)["changes"] == []


def test_compare_two_saved_runs(groupcoord: Run, saved: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """--compare given twice runs nothing; the status is 1 if something fails that did not."""
    monkeypatch.delattr(groupcoord_conformance, "InProcessTarget")
    before, after = ("--compare", str(saved[0])), ("--compare", str(saved[1]))

    status, out, _ = groupcoord("conformance", *before, *after)
    assert (status, out.splitlines()[-1]) == (1, f"since {saved[0]}: 1 fail now, 1 no longer fail, 0 others changed")
    status, out, _ = groupcoord("conformance", *before, *after, "--json")
    assert (status, [change["is_worse"] for change in json.loads(out)["changes"]]) == (1, [False, True])
    status, out, _ = groupcoord("conformance", *before, *before)
    assert (status, out) == (0, f"since {saved[0]}: 0 fail now, 0 no longer fail, 0 others changed\n")


def test_two_saved_runs_need_nothing_else(groupcoord: Run, saved: tuple[Path, Path]) -> None:
    """A server, a selection or a third run with two saved ones is a usage error."""
    two = [word for path in saved for word in ("--compare", str(path))]
    for others in (["--bootstrap", "h:1"], ["--only", "good"], ["--junit", "x.xml"], [str(saved[0])], ["--jobs", "16"]):
        status, out, err = groupcoord("conformance", *two, *others)
        assert (status, out) == (2, "")
        assert "two saved runs are compared without running anything" in err
    assert "two saved runs at most" in groupcoord("conformance", *two, "--compare", str(saved[0]))[2]


@pytest.mark.parametrize("words", [("--only", "^good/"), ("--area", "good")])
def test_selection(groupcoord: Run, folder: Path, words: tuple[str, str]) -> None:
    """--only and --area choose transcripts."""
    status, out, _ = groupcoord("conformance", *words, str(folder))
    assert (status, out.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 skipped")


def test_list_runs_nothing(groupcoord: Run, folder: Path) -> None:
    """--list prints names and what they show; with --json as JSON."""
    status, out, _ = groupcoord("conformance", "--list", str(folder))
    assert (status, out.split()[0], "It is bad." in out) == (0, "bad/heartbeat", True)
    _, out, _ = groupcoord("conformance", "--list", "--json", "--area", "offset_load")
    assert {transcript["area"] for transcript in json.loads(out)} == {"offset_load"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.json"], "nowhere.json: no such file"),
        ([__file__], "test_cli.py: line 1: not JSON"),
        (["--bootstrap", "h:1", "--launch", "x {port} {sets}"], "give only one of"),
        (["--in-process", "--bootstrap", "h:1"], "give only one of"),
        (["--bootstrap", "h"], "can't connect to h:9092"),
        (["--bootstrap", "h:0"], "'h:0' is no address HOST:PORT"),
        (["--launch", "broker"], "{port} is missing in 'broker'"),
        (["--launch", "broker {port}"], "{sets} is missing"),
        (["--launch", "broker {port} {sets} {home}"], "unknown placeholder {home}"),
        (["--launch", "broker '{port}"], "No closing quotation"),
        (["--launch", "broker {port"], "expected '}'"),
        (["--has", "a=1"], "--has is for a server that runs already"),
        (["--launch", "x {port} {sets}", "--has", "a=1"], "--command-config and --has are for a server that runs"),
        (["--bootstrap", "h:1", "--has", "a"], "--has takes KEY=VALUE, not 'a'"),
        (["--command-config", "nowhere.properties"], "nowhere.properties can't be read: No such file"),
        (["--compare", "nowhere.json"], "nowhere.json can't be read"),
        (["--compare", __file__], "is not output of groupcoord conformance --json"),
        (["--expect-failures", "nowhere.txt"], "nowhere.txt can't be read"),
        (["--skip", "("], "--skip '(' is no regular expression"),
        (["--skip", ""], "no transcript is selected"),
        (["--only", "("], "is no regular expression"),
        (["--only", "nothing like this"], "no transcript is selected"),
        (["--area", "moon"], "there is no area 'moon'; there are acl_broker, acl_group, admin,"),
        (["--jobs", "0"], "--jobs"),
        (["--colour"], "No such option"),
    ],
)
def test_usage_errors_exit_with_2(groupcoord: Run, words: list[str], message: str) -> None:
    """Impossible arguments give a line on stderr and status 2."""
    status, out, err = groupcoord("conformance", *words)
    assert (status, out) == (2, "")
    assert message in err


def test_a_missing_package_is_named(
    groupcoord: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the packages of the serve extra the command prints the extra to install, and exits with 2."""
    genuine = builtins.__import__

    def without_typer(name: str, *rest: Any, **options: Any) -> Any:
        if name == "typer":
            raise ModuleNotFoundError("No module named 'typer'", name="typer")
        return genuine(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_typer)
    status, out, err = groupcoord("conformance")
    assert (status, out) == (2, "")
    assert err == "groupcoord: typer is not installed; try: pip install 'groupcoord[serve]'\n"


def test_help_lists_every_command_and_imports_none() -> None:
    """--help shows all subcommands without importing their modules."""
    program = (
        "import sys; from groupcoord import cli\n"
        "try: cli.main(['--help'])\n"
        "finally: print([name for name in sys.modules if name.startswith('groupcoord.cli.')])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    for name in cli.COMMANDS:
        assert f" {name} " in out
    assert out.splitlines()[-1] == "['groupcoord.cli.interrupts', 'groupcoord.cli.options']"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--bootstrap", "127.0.0.1:{port}"), "can't connect to 127.0.0.1:{port}: Connection refused"),
        (("--launch", "no-such-broker {{port}} {{sets}}"), "cannot start no-such-broker: no such program"),
    ],
    ids=["bootstrap", "launch"],
)
def test_without_a_server_nothing_is_tried(groupcoord: Run, words: tuple[str, str], told: str) -> None:
    """If no server listens, or the program does not exist, one line reports it; exit status 2."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # it is taken, but nobody listens
        port = sock.getsockname()[1]
        status, out, err = groupcoord("conformance", *(word.format(port=port) for word in words))
    assert (status, out, err) == (2, "", f"groupcoord conformance: {told.format(port=port)}\n")
