"""A server that runs already: its own settings, what a run leaves on it, TLS and a log-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from groupcoord import cli
from groupcoord.config.client_properties import ClientProperties
from groupcoord.conformance import AddressTarget, Outcome, Report, Transcript, Verdict, load_transcripts, run
from groupcoord.conformance.client import list_topics, open_client
from groupcoord.conformance.runner import topics_made_by, unmet_settings
from groupcoord.conformance.sockets import SocketServer
from groupcoord.conformance.targets import ConnectionClosedError, TargetError
from groupcoord.conformance.transcript import PACKAGED
from groupcoord.errors import ErrorCode
from groupcoord.messages import DeleteGroups, ListGroupsResponse, OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.testing import ServerThread

QUICK = (
    "fetch/fetch_several_groups",
    "commit/metadata_limit_is_configurable",
    "configs/settings_of_the_broker",
    "hb_join/hbj_three_members_join_in_a_row",
    "leave/batch_while_preparing",
    "offset_delete/delete_groups_removes_offsets",
)
"""Some of those that take no time; only the first and the last one need no setting."""


DELAY = "group.initial.rebalance.delay.ms"
SLOW = {DELAY: "3000", "group.min.session.timeout.ms": "6000"}


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[ServerThread]:
    """A server with a topic, and Kafka's defaults where a server for tests has others."""
    settings = {"group.initial.rebalance.delay.ms": 3000, "group.consumer.assignment.interval.ms": 1000}
    with ServerThread(topics=["orders"], settings=settings) as server:
        yield server


def target_of(server: ServerThread, **settings: str) -> AddressTarget:
    host, _, port = server.bootstrap.rpartition(":")
    return AddressTarget(host, int(port), settings={key.replace("_", "."): value for key, value in settings.items()})


def chosen(*names: str) -> list[Transcript]:
    return load_transcripts(*(PACKAGED / f"{name}.json" for name in names))


def verdicts(report: Report) -> dict[str, tuple[Verdict, str]]:
    return {str(outcome.transcript): (outcome.verdict, outcome.reason) for outcome in report.outcomes}


def left_on(server: ServerThread) -> tuple[set[str], list[str]]:
    host, _, port = server.bootstrap.rpartition(":")
    with open_client(SocketServer(host, int(port))) as client:
        groups = client.ask("ListGroups", 4, {"states_filter": []})["groups"]
        return {name for name in list_topics(client) if name[:2] != "__"}, [group["group_id"] for group in groups]


def test_what_needs_other_settings_is_skipped(server: ServerThread) -> None:
    """The server's settings are read; transcripts that need others are skipped with the reason, and none fails."""
    report = run(chosen(*QUICK), target_of(server))

    assert verdicts(report) == {
        "fetch/fetch_several_groups": (Verdict.PASSED, ""),
        "commit/metadata_limit_is_configurable": (Verdict.SKIPPED, "needs offset.metadata.max.bytes=10"),
        "configs/settings_of_the_broker": (Verdict.SKIPPED, "it changes settings of the broker itself"),
        "hb_join/hbj_three_members_join_in_a_row": (
            Verdict.SKIPPED,
            "needs group.consumer.assignment.interval.ms=0",
        ),
        "leave/batch_while_preparing": (Verdict.SKIPPED, "needs group.initial.rebalance.delay.ms=0"),
        "offset_delete/delete_groups_removes_offsets": (Verdict.PASSED, ""),
    }
    assert report.server is not None
    assert report.server.settings["group.initial.rebalance.delay.ms"] == "3000"
    assert report.server.apis["JoinGroup"] == (0, 9)


def test_what_is_told_counts_for_more_than_the_answer(server: ServerThread) -> None:
    """A setting that the caller names is believed."""
    needy = chosen("commit/metadata_limit_is_configurable")
    report = run(needy, target_of(server, offset_metadata_max_bytes="10"))

    assert report.outcomes[0].verdict is Verdict.FAILED  # it is played, and the server has another limit


def test_a_run_leaves_nothing_behind(server: ServerThread) -> None:
    """Groups and topics of the run are gone; those of others are there as before."""
    report = run(chosen(*QUICK), target_of(server), prefix="mine-")

    assert (report.left_behind, left_on(server)) == ([], ({"orders"}, []))


def test_a_group_that_is_not_listed_yet_is_deleted(server: ServerThread) -> None:
    """Kafka 4.4 lists a group that came by a refused commit only after the next write to its log partition."""
    with server.on("ListGroups", lambda call: ListGroupsResponse(ErrorCode.NONE, ()), after=True):
        report = run(chosen(*QUICK), target_of(server))

    assert (report.left_behind, left_on(server)[1]) == ([], [])


def test_a_group_of_somebody_else_is_left_alone(server: ServerThread) -> None:
    """A conversation about the empty group id is skipped where there is such a group, and leaves none otherwise."""
    commit = OffsetCommit("", (TopicToCommit("orders", (OffsetToCommit(0, 42),)),))
    named = chosen("commit/empty_group_id")
    assert verdicts(run(named, target_of(server)))["commit/empty_group_id"] == (Verdict.PASSED, "")
    assert left_on(server)[1] == []

    server.run(lambda broker: broker.coordinator.call(commit))
    reason = "needs a server without group ''"
    assert verdicts(run(named, target_of(server)))["commit/empty_group_id"] == (Verdict.SKIPPED, reason)
    assert server.committed("") == {("orders", 0): 42}
    server.run(lambda broker: broker.coordinator.call(DeleteGroups(("",))))


def test_what_is_kept_begins_with_the_prefix(server: ServerThread) -> None:
    """Without cleaning, groups and topics stay, and another run takes them away."""
    transcripts = chosen("fetch/fetch_several_groups")
    run(transcripts, target_of(server), prefix="mine-", cleans=False)
    topics, groups = left_on(server)

    assert topics - {"orders"} == set(transcripts[0].topics)
    assert groups
    assert all(group.startswith("mine-") for group in groups)


def test_prefix_and_keep_on_the_command_line(server: ServerThread) -> None:
    """--keep leaves what begins with --prefix, without it nothing of the run stays."""
    words = ["conformance", "--bootstrap", server.bootstrap, "--only", "^fetch/fetch_several_groups$"]
    topics_before, groups_before = left_on(server)
    for kept in (["--keep"], []):
        with pytest.raises(SystemExit) as caught:
            cli.main([*words, "--prefix", "kept-" if kept else "gone-", *kept])
        assert not caught.value.code

    topics, groups = left_on(server)
    made = set(groups) - set(groups_before)
    assert topics >= topics_before
    assert made
    assert all(group.startswith("kept-") for group in made)


def test_a_topic_of_other_size_is_in_the_way(server: ServerThread) -> None:
    """A transcript that needs a topic of that name with another number of partitions is skipped."""
    server.create_topics({"u2": 3})

    (outcome,) = run(chosen("fetch/fetch_every_version"), target_of(server)).outcomes

    assert outcome.verdict is Verdict.SKIPPED
    assert outcome.reason == "needs topic 'u2' with 2 partitions, and it has 3"


@pytest.mark.parametrize(
    ("name", "settings", "unmet"),
    [
        ("fetch/fetch_several_groups", SLOW, {}),
        ("leave/batch_while_preparing", SLOW, {DELAY: "0"}),
        ("join/session_timeout_bounds", SLOW, {"group.min.session.timeout.ms": "100"}),
        ("leave/batch_while_preparing", {}, {}),
        ("join/vote_ties_of_two", SLOW, {}),
        ("join/duplicate_waiting_join", SLOW, {DELAY: "0"}),
    ],
)
def test_settings_that_make_a_difference(name: str, settings: dict[str, str], unmet: dict[str, str]) -> None:
    """A delay of the first rebalance matters if a member joins and another client sends requests meanwhile."""
    (transcript,) = chosen(name)
    assert unmet_settings(transcript, settings) == unmet


def test_joins_may_take_as_long_as_the_server_waits(server: ServerThread) -> None:
    """On a server with an initial delay a conversation passes whose first join was recorded without one."""
    with ServerThread(settings={"group.initial.rebalance.delay.ms": 1800}) as delayed:
        report = run(chosen("commit/member_commit_on_stable_group"), target_of(delayed))

    assert verdicts(report) == {"commit/member_commit_on_stable_group": (Verdict.PASSED, "")}


def test_topics_that_are_made_on_the_way() -> None:
    """Names stand in the transcript's head, or in requests that create topics."""
    (transcript,) = chosen("records/log_append_time")
    assert "dat" in topics_made_by(transcript)


@pytest.fixture(name="secure", scope="module")
def _secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerThread, Path]]:
    """A server that wants TLS and a log-in, and the folder with the authority's certificate."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.location": str(folder / "server.pem"),
    }
    with ServerThread(settings=settings, users={"ann": "ann-secret"}) as server:
        yield server, folder


def properties_of(folder: Path, mechanism: str, login: str, **more: str) -> ClientProperties:
    names = {"PLAIN": "PlainLoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}
    path = folder / "client.properties"
    path.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.{names.get(mechanism, 'ScramLoginModule')} required {login};\n"
        + "".join(f"{key.replace('_', '.')}={value}\n" for key, value in more.items())
    )
    return ClientProperties.load(path)


def only_outcome(server: ServerThread, properties: ClientProperties) -> Outcome:
    host, _, port = server.bootstrap.rpartition(":")
    target = AddressTarget(host, int(port), properties=properties)
    (outcome,) = run(chosen("fetch/fetch_several_groups"), target).outcomes
    return outcome


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_through_tls_and_a_log_in(secure: tuple[ServerThread, Path], mechanism: str) -> None:
    """A properties file for Kafka's own tools opens the way by each mechanism."""
    server, folder = secure
    login = (
        'unsecuredLoginStringClaim_sub="ann"' if mechanism == "OAUTHBEARER" else 'username="ann" password="ann-secret"'
    )
    properties = properties_of(folder, mechanism, login, ssl_truststore_location=str(folder / "authority.pem"))

    outcome = only_outcome(server, properties)

    assert outcome.verdict is Verdict.PASSED, outcome.failure


def test_who_is_not_let_in(secure: tuple[ServerThread, Path]) -> None:
    """A wrong password and an unknown authority are reported before the first transcript."""
    server, folder = secure
    login = 'username="ann" password="wrong"'
    stranger = properties_of(folder, "PLAIN", login, ssl_truststore_location=str(folder / "authority.pem"))
    trusting = properties_of(folder, "PLAIN", login)
    host, _, port = server.bootstrap.rpartition(":")

    with pytest.raises(ConnectionClosedError, match=r"refuses the log-in: Authentication failed"):
        AddressTarget(host, int(port), properties=stranger).check()
    with pytest.raises(ConnectionClosedError, match=r"no TLS with 127\.0\.0\.1:.*certificate verify failed"):
        AddressTarget(host, int(port), properties=trusting).check()
    with pytest.raises(TargetError, match="cannot be restarted"):
        SocketServer(host, int(port)).restart()
