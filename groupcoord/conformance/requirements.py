"""Requirements of transcripts: APIs, nodes and settings that a server may lack.

A transcript was recorded with :data:`~groupcoord.conformance.targets.USUAL_SETTINGS` and its own settings. It requires
all of its own. It requires a usual one only if its requests depend on it: without a join, the initial rebalance delay
does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from groupcoord.conformance.client import BROKER_RESOURCE, ServerFacts
from groupcoord.conformance.entities import Plain
from groupcoord.conformance.preparation import find_nodes
from groupcoord.conformance.targets import USUAL_SETTINGS, Server
from groupcoord.conformance.transcript import Close, Receive, Restart, Send, Step, Transcript

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


def missing_apis(transcript: Transcript, facts: ServerFacts) -> list[str]:
    return sorted({step.api for step in _sends(transcript)} & OPTIONAL_APIS - set(facts.apis))


def missing_nodes(transcript: Transcript, server: Server) -> set[int]:
    return set(range(1, transcript.nodes + 1)) - find_nodes(server).keys()


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


def needed_keys(transcripts: Iterable[Transcript]) -> set[str]:
    return set(USUAL_SETTINGS).union(*(transcript.settings for transcript in transcripts))


def topics_made_by(transcript: Transcript) -> set[str]:
    """Return the topics that a transcript prepares, creates, or lets Metadata create automatically."""
    asked = (
        topic.get("name")
        for step in _sends(transcript)
        if step.api in ("CreateTopics", "Metadata")
        for topic in step.body.get("topics") or ()
    )
    return {*transcript.topics, *(name for name in asked if name is not None)}


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
