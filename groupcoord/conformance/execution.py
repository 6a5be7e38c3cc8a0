"""Replay of one transcript against one server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from groupcoord.conformance.client import Client, NoResponseError, Request, open_client
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
    find_coordinators,
    find_nodes,
    make_topics,
    set_acls,
    wait_for_topics,
    wait_until_ready,
)
from groupcoord.conformance.report import Failure
from groupcoord.conformance.targets import ConnectionClosedError, Server, TargetError, Tolerance
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
        self._bindings: Bindings = {"$g": group_id}
        self._clients: dict[str, Client] = {}
        self._step = 0
        self._action = "before the first step"

    @property
    def bindings(self) -> Bindings:
        return self._bindings

    def run(self) -> Failure | None:
        try:
            topic_ids = make_topics(self._server, self._transcript.topics)
            self._bindings = {**self._bindings, **{f"$topic:{name}": topic_ids[name] for name in topic_ids}}
            wait_until_ready(self._server, self._transcript, self._bindings)
            if self._transcript.acls:
                set_acls(self._server, self._transcript.acls, self._bindings)
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
                body = with_bytes(substitute(step.body, self._bindings), round(self._server.wall_ms()))
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
                set_acls(self._server, step.acls, self._bindings)
            case Restart():
                self._server.restart()  # the server is killed before it sees connections close
                self.close()
                wait_until_ready(self._server, self._transcript, self._bindings)

    def _node_of(self, step: Send) -> Node | None:
        if step.node != COORDINATOR:
            return None if step.node is None else find_nodes(self._server)[int(step.node)]
        group_id = str(self._bindings["$g"])
        with open_client(self._server) as client:
            (node,) = find_coordinators(client, [group_id])
        return node

    def _receive(self, step: Receive) -> None:
        client = self._clients[step.connection]
        request = client.oldest_unanswered
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
        bindings = match(expected, got, self._bindings)
        if bindings is None:
            difference = first_difference(expected, got, self._bindings)
            raise self._failed("the response differs", difference=difference, expected=expected, got=got)
        self._bindings = bindings

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
        own = str(self._bindings["$g"])
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
