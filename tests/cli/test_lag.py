"""``groupcoord lag`` shows how far groups of a running cluster are behind, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from groupcoord import cli
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.testing import ServerThread

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="groupcoord")
def _groupcoord(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; returns exit status, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        output = capsys.readouterr()
        return int(caught.value.code or 0), output.out, output.err

    return run


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[ServerThread]:
    """A server with a group that has read one of three records."""
    commit = OffsetCommit("billing", (TopicToCommit("orders", (OffsetToCommit(0, 1),)),))
    with ServerThread(topics={"orders": 1}) as server:
        server.produce("orders", ["coffee", "tea", "water"])
        server.run(lambda broker: broker.coordinator.call(commit))
        yield server


def test_a_table_for_people(groupcoord: Run, server: ServerThread) -> None:
    """Each partition is a line with its status, lag, time behind and owner."""
    status, out, _ = groupcoord("lag", "--bootstrap-server", server.bootstrap)
    (line,) = [line for line in out.splitlines() if "billing" in line]
    cells = [cell.strip() for cell in line.strip("│").split("│")]

    assert status == 0
    assert (cells[:5], cells[6:]) == (["NO OWNER", "billing", "Empty", "orders-0", "2"], ["1", "3", ""])
    assert cells[5].endswith("s")


def test_names_are_escaped_and_cut(groupcoord: Run) -> None:
    """What clients call their groups reaches no terminal as it is, and takes no more than a line of a table."""
    commit = TopicToCommit("orders", (OffsetToCommit(0, 1),))
    with ServerThread(topics={"orders": 1}) as server:
        for group_id in ("\x1b[31mred", "\u202egnol", "a\nb", "x" * 1_000):
            server.run(lambda broker, name=group_id: broker.coordinator.call(OffsetCommit(name, (commit,))))
        _, out, _ = groupcoord("lag", "--bootstrap-server", server.bootstrap)
        _, _, err = groupcoord("lag", "--bootstrap-server", server.bootstrap, "--group", "\x1b[31mgone")

    assert all(line.isprintable() for line in out.splitlines())
    assert all(shown in out for shown in (r"\x1b[31mred", r"\u202egnol", r"a\nb", "xxx…"))
    assert max(map(len, out.splitlines())) < 200
    assert r"\x1b[31mgone" in err


def test_lines_for_programs(groupcoord: Run, server: ServerThread) -> None:
    """With --json each partition is an object; groups that there aren't are told on stderr."""
    status, out, err = groupcoord(
        "lag", "--bootstrap-server", server.bootstrap, "--json", "--group", "billing", "--group", "none"
    )
    (found,) = map(json.loads, out.splitlines())

    assert (status, err) == (0, "not told: group none: there is no such group\n")
    assert (found["lag"], found["status"], found["member_id"]) == (2, "NO OWNER", None)
    assert found["lag_ms"] >= 0


def test_nothing_committed_is_said(groupcoord: Run, server: ServerThread) -> None:
    """A group without offsets, or none at all, is said to have committed nothing."""
    status, out, _ = groupcoord("lag", "--bootstrap-server", server.bootstrap, "--group", "none")

    assert (status, out) == (0, "no group has committed anything\n")


def test_what_is_wrong_is_told_in_a_line(groupcoord: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is a usage error; where nobody listens the command has failed."""
    monkeypatch.setattr("groupcoord.analysis.live.connection.FIRST_ANSWER_MS", 1)
    assert groupcoord("lag") == (
        2,
        "",
        "groupcoord lag: name a cluster, by --bootstrap-server or --command-config\n",
    )
    status, out, err = groupcoord("lag", "--bootstrap-server", "127.0.0.1:1")
    assert (status, out, len(err.splitlines())) == (1, "", 1)
