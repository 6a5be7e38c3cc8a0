"""Scripted clients, each of which executes the steps of a script, and base classes of planned events."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.errors import ErrorCode
from groupcoord.laws import errors_in
from groupcoord.messages import CoordinatorType, FindCoordinator, FindCoordinatorResponse, Request, Response
from groupcoord.sim.actors.environment import GuestGroup, Stage
from groupcoord.sim.actors.groups import Population, SimulatedGroup
from groupcoord.sim.kernel import SimulatedConnection, mixed, rank_of_deadline, stable_number


@frozen(kw_only=True)
class Fault:
    """Planned event: a fault that lasts for a while, or a client that is active for a while.

    Attributes:
        start_ms, end_ms: its bounds in milliseconds since the start of the run; equal for a single moment.
    """

    start_ms: int
    end_ms: int

    @property
    def group_id(self) -> str | None:
        """Only group that it affects, its attribute ``group``; None: it may affect all."""
        group: str | None = getattr(self, "group", None)
        return group

    def affects(self, group_id: str) -> bool:
        """Return whether it may affect a group."""
        return self.group_id is None or self.group_id == group_id

    def begin(self, stage: Stage, population: Population) -> None:
        """Start the event."""

    def end(self, stage: Stage, population: Population) -> None:
        """End the event."""


@frozen(kw_only=True)
class Application(Fault):
    """Instances of a program, which start and stop together. They form a group, but are not simulated consumers.

    Attributes:
        restart_every_ms: interval between the restarts of two instances, until all have restarted.
    """

    group: str
    instances: int
    topics: tuple[str, ...]
    restart_from_ms: int | None = None
    restart_every_ms: int = 30_000
    down_ms: int = 5_000
    is_graceful: bool = True

    def restart_ms(self, index: int) -> int | None:
        if self.restart_from_ms is None:
            return None
        restart_ms = self.restart_from_ms + index * self.restart_every_ms
        return restart_ms if restart_ms < self.end_ms else None


NO_ANSWER = "no answer"
"""Outcome of a request, or of a coordinator lookup, without a response."""

REQUEST_TIMEOUT_MS = 12_000
"""Time after which a request counts as lost."""


class Pause(NamedTuple):
    """Step: wait."""

    duration_ms: int


class Ask(NamedTuple):
    """Step: send a request to the coordinator of a group, after a lookup; None: to any node.

    Its result is the response, or None if the request or the lookup had none.
    """

    request: Request
    group_id: str | None


class AskNode(NamedTuple):
    """Step: send a request to a node on a kept connection, also of the APIs for partition leaders."""

    request: Any
    node_id: int


class HangUp(NamedTuple):
    """Step: close the kept connections. Without ``notifies``, nodes do not notice, as if the machine had failed."""

    notifies: bool


Script = Generator[Ask | AskNode | HangUp | Pause, Response | None, None]
"""Script of a client: a generator of steps, which receives the response of each."""


class ScriptedClient:
    """Client that executes a script. While it is active, the group that it can affect is not steady."""

    def __init__(self, stage: Stage, name: str, group: SimulatedGroup | GuestGroup | None, script: Script) -> None:
        self._stage = stage
        self._name = name
        self._group = group
        self._script = script
        self._number = stage.next_client_number()
        self._key = stable_number(stage.seed, "visitor", self._number)
        self._connection: SimulatedConnection | None = None
        self._kept: dict[int, SimulatedConnection] = {}
        self._request: Request | None = None
        self._query: Ask | None = None
        self._step = 0
        if group is not None:
            group.scripted_clients += 1
        self._go_on(None)

    def _go_on(self, answer: Response | None) -> None:
        self._step += 1
        if self._request is not None:
            outcome = NO_ANSWER if answer is None else next(iter(errors_in(answer)), ErrorCode.NONE).name
            self._stage.count(self._name, type(self._request).__name__, outcome)
            self._request = None
        try:
            step = self._script.send(answer)
        except StopIteration:
            if self._group is not None:
                self._group.scripted_clients -= 1
                self._group.disturbed()
            return
        if isinstance(step, Pause):
            self._wake_in(step.duration_ms)
            return
        if isinstance(step, HangUp):
            for connection in self._kept.values():
                connection.is_silent = connection.is_silent or not step.notifies
                self._stage.cluster.network.close(connection)
            self._kept.clear()
            self._wake_in(0)
            return
        self._request = step.request
        if isinstance(step, AskNode):
            self._send_to(step.node_id, step.request)
        elif step.group_id is None:
            self._send(step.request, mixed(self._key, self._stage.scheduler.time_ms))  # to a pseudo-random node
        else:
            self._query = step
            search = FindCoordinator(CoordinatorType.GROUP, (step.group_id,))
            self._send(search, mixed(self._key, self._stage.scheduler.time_ms))

    def _wake_in(self, duration_ms: int) -> None:
        scheduler = self._stage.scheduler
        scheduler.at(scheduler.time_ms + duration_ms, rank_of_deadline(self._number), self._wake, self._step)

    def _wake(self, step: int) -> None:
        if step == self._step:
            self._lose()

    def _send(self, request: Request, place: int) -> None:
        cluster = self._stage.cluster
        self._connection = cluster.network.connect(self, self._number, cluster.nodes[place % len(cluster.nodes)])
        self._wake_in(REQUEST_TIMEOUT_MS)
        cluster.network.send(self._connection, self._step, request)

    def _send_to(self, node_id: int, request: Request) -> None:
        cluster = self._stage.cluster
        if node_id not in self._kept:
            self._kept[node_id] = cluster.network.connect(self, self._number, cluster.nodes[node_id - 1])
        self._connection = self._kept[node_id]
        self._wake_in(REQUEST_TIMEOUT_MS)
        cluster.network.send(self._connection, self._step, request)

    def receive(self, connection: SimulatedConnection, correlation_id: int, response: Response) -> None:
        if connection is not self._connection:
            return
        if connection in self._kept.values():
            self._connection = None
        else:
            self._hang_up()
        query, self._query = self._query, None
        if query is None:
            self._go_on(response)
            return
        assert isinstance(response, FindCoordinatorResponse)
        (found,) = response.coordinators
        if found.error_code is ErrorCode.NONE:
            self._step += 1  # the timeout of the lookup no longer applies
            self._send(query.request, found.node.node_id - 1)
        else:
            self._go_on(None)

    def disconnected(self, connection: SimulatedConnection) -> None:
        if connection is self._connection:
            self._lose()
        else:
            self._forget(connection)

    def _lose(self) -> None:
        self._hang_up()
        self._query = None
        self._go_on(None)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._stage.cluster.network.close(self._connection)
            self._forget(self._connection)
            self._connection = None

    def _forget(self, connection: SimulatedConnection) -> None:
        for node_id in [node_id for node_id, kept in self._kept.items() if kept is connection]:
            del self._kept[node_id]
