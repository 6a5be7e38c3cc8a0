"""Runner of transcripts against a target, and the requirements for which it skips them: APIs, nodes and settings.

A transcript requires all its settings. It requires one of :data:`~groupcoord.conformance.targets.USUAL_SETTINGS`
only if its requests depend on it: without a join, the initial rebalance delay does not matter."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import Any

from attrs import evolve, field, frozen

from groupcoord.conformance.client import (
    BROKER_RESOURCE,
    Client,
    NoResponseError,
    Request,
    ServerFacts,
    list_groups,
    list_topics,
    open_client,
    query_facts,
)
from groupcoord.conformance.entities import BodyError, Plain, ResponseError
from groupcoord.conformance.matching import (
    Bindings,
    TooAmbiguousError,
    first_difference,
    in_order,
    match,
    substitute,
    with_messages,
)
from groupcoord.conformance.preparation import (
    Cleaner,
    find_coordinators,
    find_nodes,
    group_ids,
    make_topics,
    set_acls,
    wait_for_topics,
    wait_until_ready,
)
from groupcoord.conformance.report import Failure, Outcome, Report, Verdict
from groupcoord.conformance.targets import (
    USUAL_SETTINGS,
    ConnectionClosedError,
    Server,
    Settings,
    Target,
    TargetError,
    Tolerance,
)
from groupcoord.conformance.transcript import (
    COORDINATOR,
    Close,
    Quiet,
    Receive,
    Restart,
    Send,
    SetAcls,
    Sleep,
    Step,
    Transcript,
    has_bytes,
    with_batches,
    with_bytes,
)
from groupcoord.core.messages import Node

TROUBLE = (ConnectionClosedError, NoResponseError, ResponseError, BodyError, TargetError, TooAmbiguousError)
"""Errors that fail a replay; others are raised."""

_GRACE_MS = 2000
"""Time beyond the tolerance, so that a late answer is reported with its delay."""


class _StepFailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def replay(
    transcript: Transcript,
    server: Server,
    group_id: str,
    tolerance: Tolerance,
    *,
    on_end: Callable[[Bindings], None] | None = None,
) -> Failure | None:
    """Replay a transcript with ``group_id`` as its ``$g``; return its failure, or pass its variables to ``on_end``."""
    with closing(_Replayer(transcript, server, group_id, tolerance)) as replayer:
        failure = replayer.run()
        if failure is None and on_end is not None:
            on_end(replayer.bindings)
        return failure


class _Replayer:
    def __init__(self, transcript: Transcript, server: Server, group_id: str, tolerance: Tolerance) -> None:
        self._transcript = transcript
        self._server = server
        self._tolerance = tolerance
        self.bindings: Bindings = {"$g": group_id}
        self._clients: dict[str, Client] = {}
        self._step = 0
        self._action = "before the first step"

    def run(self) -> Failure | None:
        try:
            topic_ids = make_topics(self._server, self._transcript.topics)
            self.bindings = {**self.bindings, **{f"$topic:{name}": topic_ids[name] for name in topic_ids}}
            wait_until_ready(self._server, self._transcript, self.bindings)
            if self._transcript.acls:
                set_acls(self._server, self._transcript.acls, self.bindings)
            for number, step in enumerate(self._transcript.steps, 1):
                self._step, self._action = number, _describe(step)
                self._play(step)
        except _StepFailedError as error:
            return error.failure
        except TROUBLE as error:
            return Failure(self._step, self._action, str(error))
        return None

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _play(self, step: Step) -> None:
        match step:
            case Send():
                if step.connection not in self._clients:
                    self._clients[step.connection] = Client(self._server, step.client_id, self._node_of(step))
                body = with_bytes(substitute(step.body, self.bindings), round(self._server.wall_ms()))
                self._clients[step.connection].send(step.api, step.version, body)
            case Receive():
                self._receive(step)
            case Quiet():
                self._stay_quiet(step)
            case Sleep():
                self._server.sleep(step.duration_ms)
            case Close():
                self._clients.pop(step.connection).close()
            case SetAcls():
                set_acls(self._server, step.acls, self.bindings)
            case Restart():
                self._server.restart()  # the server is killed before it sees connections close
                self.close()
                wait_until_ready(self._server, self._transcript, self.bindings)

    def _node_of(self, step: Send) -> Node | None:
        if step.node != COORDINATOR:
            return None if step.node is None else find_nodes(self._server)[int(step.node)]
        group_id = str(self.bindings["$g"])
        with open_client(self._server) as client:
            (node,) = find_coordinators(client, [group_id])
        return node

    def _receive(self, step: Receive) -> None:
        client = self._clients[step.connection]
        request = client.unanswered[0]
        self._action = f"receive {request} on {step.connection}"
        latest_ms = self._tolerance.latest_ms(request.api, step.took_ms)
        try:
            got = client.receive(latest_ms + _GRACE_MS)
        except (NoResponseError, ConnectionClosedError, ResponseError) as error:
            raise self._failed(str(error), expected=step.body) from error
        took_ms = self._server.now_ms() - request.sent_ms
        got = self._of_this_run(request, got, step.body)
        self._compare(step.body, got)
        if request.api == "CreateTopics":
            self._wait_for_new_topics(request, got)
        if took_ms < self._tolerance.earliest_ms(request.api, step.took_ms):
            raise self._failed(f"answered after {took_ms:.0f} ms already, expected after about {step.took_ms} ms")
        if took_ms > latest_ms:
            message = f"answered only after {took_ms:.0f} ms, expected after about {step.took_ms} ms"
            raise self._failed(message, late_by_ms=round(took_ms) - step.took_ms)

    def _compare(self, expected: Plain, got: Plain) -> None:
        if self._transcript.in_order:
            expected, got = in_order(expected), in_order(got)
        if self._transcript.messages:
            expected, got = with_messages(expected), with_messages(got)
        bindings = match(expected, got, self.bindings)
        if bindings is None:
            difference = first_difference(expected, got, self.bindings)
            raise self._failed("the response differs", difference=difference, expected=expected, got=got)
        self.bindings = bindings

    def _wait_for_new_topics(self, request: Request, got: Plain) -> None:
        made = [topic["name"] for topic in got["topics"] if topic["error_code"] == "NONE"]
        if made and not request.body.get("validate_only"):
            wait_for_topics(self._server, made)

    def _stay_quiet(self, step: Quiet) -> None:
        got = self._clients[step.connection].unexpected(step.duration_ms)
        if got is not None:
            raise self._failed("unexpected response", got=got)

    def _of_this_run(self, request: Request, got: Plain, expected: Plain) -> Plain:
        """Return a response without groups of other runs, with decoded records unless bytes are expected."""
        if request.api in ("Fetch", "ShareFetch") and not has_bytes(expected):
            return with_batches(got)
        if request.api != "ListGroups":
            return got
        own = str(self.bindings["$g"])
        return {**got, "groups": [group for group in got["groups"] if group["group_id"].startswith(own)]}

    def _failed(self, message: str, **details: Any) -> _StepFailedError:
        return _StepFailedError(Failure(self._step, self._action, message, **details))


def _describe(step: Step) -> str:
    match step:
        case Send():
            return f"send {step.api} v{step.version} on {step.connection}"
        case Receive():
            return f"receive on {step.connection}"
        case Quiet():
            return f"{step.duration_ms} ms of quiet on {step.connection}"
        case Sleep():
            return f"sleep {step.duration_ms} ms"
        case Close():
            return f"close {step.connection}"
        case SetAcls():
            return f"set {len(step.acls)} ACLs"
        case Restart():
            return "restart"


OPTIONAL_APIS = frozenset(
    (
        *("ConsumerGroupDescribe", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"),
        *("StreamsGroupDescribe", "StreamsGroupHeartbeat"),
    )
)
"""APIs that a server may lack, as older brokers do; transcripts with them are then skipped."""

INITIAL_DELAY = "group.initial.rebalance.delay.ms"
_MIN_SESSION_TIMEOUT = "group.min.session.timeout.ms"
_OTHERS_WAIT_MS = 1500
"""Allowance for the recorded silence of a member, to which longer delays are added."""

_CONFIG_APIS = frozenset(("AlterConfigs", "DescribeConfigs", "IncrementalAlterConfigs"))


def unlisted_versions(transcript: Transcript, facts: ServerFacts) -> list[str]:
    sent = sorted({(step.api, step.version) for step in _sends(transcript)})
    return [f"{api} v{version}" for api, version in sent if not _lists(facts, api, version)]


def unmet_settings(transcript: Transcript, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the required settings with other values on the server; unknown ones count as met."""
    own = {key: str(value) for key, value in transcript.settings.items()}
    unmet = {key: value for key, value in own.items() if key in settings and not _equal(value, settings[key])}
    reads_settings = any(step.api in _CONFIG_APIS for step in _sends(transcript))
    for key, usual in USUAL_SETTINGS.items():
        value = str(usual)
        if key in settings and key not in own and not _equal(value, settings[key]):
            matters = _MATTERS.get(key)
            if reads_settings or (matters is not None and matters(transcript, value, settings[key])):
                unmet[key] = value
    return unmet


def topics_made_by(transcript: Transcript) -> set[str]:
    """Return the topics that a transcript prepares, creates, or lets Metadata create automatically."""
    named = (
        topic.get("name")
        for step in _sends(transcript)
        if step.api in ("CreateTopics", "Metadata")
        for topic in step.body.get("topics") or ()
    )
    return {*transcript.topics, *(name for name in named if name is not None)}


def groups_named_by(transcript: Transcript) -> set[str]:
    """Return the fixed ids of groups that a transcript commits offsets for; ``$…`` stands for a generated id."""
    ids = (step.body["group_id"] for step in _sends(transcript) if step.api == "OffsetCommit")
    return {group_id for group_id in ids if not group_id.startswith("$")}


def alters_broker(transcript: Transcript) -> bool:
    return any(
        resource.get("resource_type") == BROKER_RESOURCE
        for step in _sends(transcript)
        if step.api in ("AlterConfigs", "IncrementalAlterConfigs")
        for resource in step.body.get("resources", ())
    )


def _lists(facts: ServerFacts, api: str, version: int) -> bool:
    lowest, highest = facts.apis.get(api, (1, 0))  # an empty range
    return lowest <= version <= highest


def _equal(wanted: str, found: str) -> bool:
    return wanted.strip().lower() == found.strip().lower()


def _sends(transcript: Transcript) -> Iterator[Send]:
    return (step for step in transcript.steps if isinstance(step, Send))


def initial_delay_ms(transcript: Transcript, settings: Mapping[str, str]) -> int:
    """Return by how much a server's initial rebalance delay may delay joins; 0 if the transcript sets the delay."""
    found = settings.get(INITIAL_DELAY, "")
    return int(found) if found.isdecimal() and INITIAL_DELAY not in transcript.settings else 0


def _exchanges(transcript: Transcript) -> Iterator[tuple[Send, Plain, tuple[Step, ...]]]:
    """Yield each request with the body of its response (or None) and the steps in between."""
    unanswered: dict[str, list[int]] = {}
    ends: list[tuple[int, int, Plain]] = []
    for place, step in enumerate(transcript.steps):
        match step:
            case Send():
                unanswered.setdefault(step.connection, []).append(place)
            case Receive():
                ends.append((unanswered[step.connection].pop(0), place, step.body))
            case Close():
                ends += [(sent, place, None) for sent in unanswered.pop(step.connection, ())]
            case Restart():
                ends += [(sent, place, None) for places in unanswered.values() for sent in places]
                unanswered.clear()
    ends += [(sent, len(transcript.steps), None) for places in unanswered.values() for sent in places]
    for sent, end, body in ends:
        send = transcript.steps[sent]
        assert isinstance(send, Send)
        yield send, body, transcript.steps[sent + 1 : end]


def _waits_for_company(transcript: Transcript, value: str, found: str) -> bool:
    delays, sessions_ms = 0, []
    for send, body, meanwhile in _exchanges(transcript):
        if send.api != "JoinGroup":
            continue
        if body is None:
            return True
        if body.get("error_code", "NONE") != "NONE":
            continue
        sessions_ms.append(send.body.get("session_timeout", 0))
        if len(body.get("members") or ()) == 1 and body.get("leader") == body.get("member_id"):
            delays += 1
            if any(isinstance(step, Send) for step in meanwhile):
                return True
    # A longer delay matters only if sessions expire in it: a member is silent during all delays but its own.
    is_long = found.isdecimal() and (delays - 1) * int(found) + _OTHERS_WAIT_MS >= min(sessions_ms, default=0)
    return delays > 1 and is_long


def _joins_with_session_timeouts_between(transcript: Transcript, value: str, found: str) -> bool:
    bounds = sorted(int(text) for text in (value, found) if text.lstrip("-").isdecimal())
    timeouts = [step.body.get("session_timeout", 0) for step in _sends(transcript) if step.api == "JoinGroup"]
    return len(bounds) == 2 and any(bounds[0] <= timeout < bounds[1] for timeout in timeouts)


def _heartbeats_in_consumer_groups(transcript: Transcript, value: str, found: str) -> bool:
    return any(step.api == "ConsumerGroupHeartbeat" for step in _sends(transcript))


def _lets_topics_be_made(transcript: Transcript, value: str, found: str) -> bool:
    return any(
        step.api == "Metadata" and step.body.get("allow_auto_topic_creation", True) for step in _sends(transcript)
    )


_MATTERS: Mapping[str, Callable[[Transcript, str, str], bool]] = {
    INITIAL_DELAY: _waits_for_company,
    _MIN_SESSION_TIMEOUT: _joins_with_session_timeouts_between,
    "group.consumer.session.timeout.ms": _heartbeats_in_consumer_groups,
    "auto.create.topics.enable": _lets_topics_be_made,
}
"""Functions that return whether a transcript depends on the difference between two values, by setting.

Only requests that read settings depend on the others.
"""


OnOutcome = Callable[[Outcome], None]
OnFacts = Callable[[ServerFacts], None]

_REPEATED_MAX = 16
"""Number of failed transcripts that are repeated alone; more failures are a property of the server."""


def run(
    transcripts: Iterable[Transcript],
    target: Target,
    *,
    jobs: int = 16,
    prefix: str = "",
    cleans: bool = True,
    on_facts: OnFacts | None = None,
    on_outcome: OnOutcome | None = None,
) -> Report:
    """Replay transcripts and return a report.

    A shared target has one server for each group of equal settings; otherwise every transcript has its own. On a shared
    server transcripts without a restart run concurrently, as they mostly sleep; those with one follow in turn. A few
    failed ones are repeated alone, since a busy server may be late and groups may share a log partition. If the
    settings belong to the server's owner, they are queried, and transcripts that need others are skipped.

    Args:
        jobs: maximum number of concurrent transcripts on a shared target.
        prefix: prefix of group ids and other names.
        cleans: remove afterwards what the run created on a server that the target did not start.
        on_facts: called in the calling thread with facts about the first server, before the first transcript.
        on_outcome: called in the calling thread with each outcome.

    Raises:
        ValueError: ``jobs`` is less than 1.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    ordered = list(transcripts)
    keys = frozenset(USUAL_SETTINGS).union(*(transcript.settings for transcript in ordered))
    running = _Run(target, jobs, prefix, cleans, on_facts, keys)
    found: dict[int, Outcome] = {}
    for outcome in running.outcomes(ordered):
        found[id(outcome.transcript)] = outcome
        if on_outcome is not None:
            on_outcome(outcome)
    outcomes = [found[id(transcript)] for transcript in ordered]
    return Report(outcomes, server=running.facts, left_behind=running.left_behind)


def settings_for(transcript: Transcript) -> Settings:
    return {**USUAL_SETTINGS, **transcript.settings}


@frozen
class _Stage:
    server: Server
    facts: ServerFacts
    topics: Mapping[str, int] = field(factory=dict)
    groups: Collection[str] = ()
    cleaner: Cleaner | None = None


class _Run:
    def __init__(
        self, target: Target, jobs: int, prefix: str, cleans: bool, on_facts: OnFacts | None, keys: frozenset[str]
    ) -> None:
        self._target = target
        self._jobs = jobs
        self._prefix = prefix
        self._cleans = cleans and target.own_settings is not None
        self._on_facts = on_facts
        self._queried = frozenset(key for key in keys if not target.sets(key))
        self.facts: ServerFacts | None = None
        self.left_behind: list[str] = []

    def outcomes(self, transcripts: list[Transcript]) -> Iterator[Outcome]:
        playable: list[Transcript] = []
        for transcript in transcripts:
            if transcript.restarts and not self._target.can_restart:
                yield Outcome(transcript, Verdict.SKIPPED, reason="it restarts the server, which this target cannot do")
            else:
                playable.append(transcript)
        if not self._target.shared:
            groups = [[transcript] for transcript in playable]
        elif self._target.own_settings is not None:
            groups = [playable] if playable else []
        else:
            playable.sort(key=_settings_key)
            groups = [list(group) for _, group in itertools.groupby(playable, _settings_key)]
        for group in groups:
            yield from self._together(group)

    def _start(self, transcript: Transcript) -> Server:
        settings = settings_for(transcript)
        return self._target.start(settings) if transcript.nodes == 1 else self._target.start(settings, transcript.nodes)

    def _together(self, transcripts: list[Transcript]) -> Iterator[Outcome]:
        try:
            server = self._start(transcripts[0])
        except (TargetError, ConnectionClosedError) as error:
            failure = Failure(0, "start of the server", str(error))
            yield from (Outcome(transcript, Verdict.FAILED, failure) for transcript in transcripts)
            return
        cleaner: Cleaner | None = None
        try:
            try:
                facts = self._query_facts(server)
                topics, groups = self._list_existing(server)
                cleaner = Cleaner(server, facts, topics) if self._cleans else None
            except TROUBLE as error:
                yield from (_not_run(transcript, error) for transcript in transcripts)
                return
            yield from self._play_all(transcripts, _Stage(server, facts, topics, groups, cleaner))
        finally:
            if cleaner is not None:
                self.left_behind = cleaner.clean()
            server.stop()

    def _play_all(self, transcripts: list[Transcript], stage: _Stage) -> Iterator[Outcome]:
        failed: list[Outcome] = []
        executor = ThreadPoolExecutor(self._jobs)
        try:
            together = [
                executor.submit(self._replay, transcript, stage)
                for transcript in transcripts
                if not transcript.restarts
            ]
            for future in as_completed(together):
                outcome = future.result()
                if outcome.failure is not None and len(together) > 1 and len(failed) < _REPEATED_MAX:
                    failed.append(outcome)
                else:
                    yield outcome
        finally:
            executor.shutdown(cancel_futures=True)
        if failed and stage.cleaner is not None:
            stage.cleaner.clean()  # leftovers could disturb their repetition
        for outcome in failed:
            alone = self._replay(outcome.transcript, stage)
            is_better = alone.verdict is Verdict.PASSED and outcome.failure is not None
            yield evolve(alone, failure_beside_others=outcome.failure) if is_better else alone
        for transcript in transcripts:
            if transcript.restarts:
                yield self._replay(transcript, stage)

    def _query_facts(self, server: Server) -> ServerFacts:
        facts = query_facts(server, self._queried, self._target.own_settings or {})
        if self.facts is None:
            self.facts = facts
            if self._on_facts is not None:
                self._on_facts(facts)
        return facts

    def _list_existing(self, server: Server) -> tuple[Mapping[str, int], Collection[str]]:
        if self._target.own_settings is None:
            return {}, ()
        with open_client(server) as client:
            return list_topics(client), list_groups(client)

    def _replay(self, transcript: Transcript, stage: _Stage) -> Outcome:
        started = time.monotonic()
        # Servers of one transcript see the same group id in every run.
        group_id = f"{self._prefix}{transcript.name}-{uuid.uuid4().hex[:6] if self._target.shared else '000000'}"
        try:
            reason = self._why_skipped(transcript, stage)
        except TROUBLE as error:
            return _not_run(transcript, error)
        if reason:
            return Outcome(transcript, Verdict.SKIPPED, reason=reason)
        if stage.cleaner is not None:
            ids = group_ids(transcript, {"$g": group_id})
            stage.cleaner.expect(ids, groups_named_by(transcript), topics_made_by(transcript))
            stage.cleaner.has_nodes |= transcript.nodes > 1
        failure = replay(transcript, stage.server, group_id, self._tolerance(transcript, stage.facts))
        seconds = time.monotonic() - started
        if failure is None:
            return Outcome(transcript, Verdict.PASSED, seconds=seconds)
        return Outcome(transcript, Verdict.FAILED, failure, hints=self._hints(transcript, stage.facts), seconds=seconds)

    def _tolerance(self, transcript: Transcript, facts: ServerFacts) -> Tolerance:
        return evolve(self._target.tolerance, initial_delay_ms=initial_delay_ms(transcript, facts.settings))

    def _why_skipped(self, transcript: Transcript, stage: _Stage) -> str:
        facts = stage.facts
        if missing := {step.api for step in _sends(transcript)} & OPTIONAL_APIS - facts.apis.keys():
            return f"the server does not list {', '.join(sorted(missing))}"
        if transcript.nodes > 1 and set(range(1, transcript.nodes + 1)) - find_nodes(stage.server).keys():
            return f"needs {transcript.nodes} nodes, with the ids from 1"
        if self._target.own_settings is not None and alters_broker(transcript):
            return "it changes settings of the broker itself"
        if self._target.own_settings is not None and transcript.sets_acls:
            return "it sets ACLs"
        if unmet := unmet_settings(transcript, facts.settings):
            return f"needs {_written(unmet)}"
        if self._target.own_settings is None:
            unset = {
                k: v for k, v in transcript.settings.items() if not self._target.sets(k) and k not in facts.settings
            }
            return f"needs {_written(unset)}, which cannot be set" if unset else ""
        for name, count in transcript.topics.items():
            if stage.topics.get(name, count) != count:
                return f"needs topic {name!r} with {count} partitions, and it has {stage.topics[name]}"
        if in_the_way := sorted(groups_named_by(transcript).intersection(stage.groups)):
            return f"needs a server without group {', '.join(map(repr, in_the_way))}"
        in_the_way = sorted((topics_made_by(transcript) - transcript.topics.keys()) & stage.topics.keys())
        return f"needs a server without topic {', '.join(in_the_way)}" if in_the_way else ""

    def _hints(self, transcript: Transcript, facts: ServerFacts) -> tuple[str, ...]:
        hints = []
        if transcript.settings and (self._target.own_settings is None or facts.why_unknown):
            hints.append(f"it needs the settings {_written(transcript.settings)}")
        if facts.apis and (unlisted := unlisted_versions(transcript, facts)):
            hints.append(f"the server does not list {', '.join(unlisted)}")
        return tuple(hints)


def _not_run(transcript: Transcript, error: Exception) -> Outcome:
    return Outcome(transcript, Verdict.FAILED, Failure(0, "asking the server about itself", str(error)))


def _written(settings: Settings) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


def _settings_key(transcript: Transcript) -> tuple[int, list[tuple[str, str]], str]:
    settings = sorted((key, str(value)) for key, value in settings_for(transcript).items())
    return transcript.nodes, settings, str(transcript) if transcript.sets_acls else ""
