"""Clients that are no consumers: they come, do an errand one step after the other, and go."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from groupcoord.errors import ErrorCode
from groupcoord.messages import CoordinatorType, FindCoordinator, FindCoordinatorResponse, Request, Response
from groupcoord.sim.answers import NONE, errors_of
from groupcoord.sim.network import Connection
from groupcoord.sim.randomness import mixed, stable_number
from groupcoord.sim.scheduler import rank_of_deadline

if TYPE_CHECKING:
    from groupcoord.sim.groups import SimulatedGroup
    from groupcoord.sim.world import World

NO_ANSWER = "no answer"
"""What came of a request, or of the search for its node, that was lost."""

PATIENCE_MS = 12_000
"""A visitor waits for an answer so long; then it counts as lost."""


class Pause(NamedTuple):
    """A step: do nothing for a while."""

    duration_ms: int


class Ask(NamedTuple):
    """A step: send a request to the node that coordinates a group, found as clients do; None: to any node.

    What comes back is the answer; None if there was none, to the request or to the search for the node.
    """

    request: Request
    group_id: str | None


Errand = Generator[Ask | Pause, Response | None, None]
"""What a visitor does, told as one story."""


class Visitor:
    """Does an errand. See :class:`groupcoord.sim.network.Client` for how it takes answers.

    While it is there, the groups that it can touch are not steady. What its requests are answered is counted.

    Args:
        world: where it happens.
        name: what kind of visitor it is.
        groups: those that it can touch.
        errand: what it does.
    """

    def __init__(self, world: World, name: str, groups: list[SimulatedGroup], errand: Errand) -> None:
        self._world = world
        self._name = name
        self._groups = groups
        self._errand = errand
        self._number = world.next_client_number()
        self._key = stable_number(world.seed, "visitor", self._number)
        self._connection: Connection | None = None
        self._request: Request | None = None
        self._asked: Ask | None = None
        self._step = 0
        for group in groups:
            group.visitors += 1
        self._go_on(None)

    def _go_on(self, answer: Response | None) -> None:
        """Take the next step of the errand; ``answer`` is what the last one brought."""
        self._step += 1
        if self._request is not None:
            errors = [NO_ANSWER] if answer is None else errors_of(answer)
            self._world.count(self._name, type(self._request).__name__, errors[0] if errors else NONE.name)
            self._request = None
        try:
            step = self._errand.send(answer)
        except StopIteration:
            for group in self._groups:
                group.visitors -= 1
                group.disturbed()
            return
        if isinstance(step, Pause):
            self._wake_in(step.duration_ms)
            return
        self._request = step.request
        if step.group_id is None:
            self._send(step.request, mixed(self._key, self._world.scheduler.time_ms))
        else:
            self._asked = step
            search = FindCoordinator(CoordinatorType.GROUP, (step.group_id,))
            self._send(search, mixed(self._key, self._world.scheduler.time_ms))

    def _wake_in(self, duration_ms: int) -> None:
        scheduler = self._world.scheduler
        scheduler.at(scheduler.time_ms + duration_ms, rank_of_deadline(self._number), self._wake, self._step)

    def _wake(self, step: int) -> None:
        """A pause is over, or patience."""
        if step == self._step:
            self._lose()

    def _send(self, request: Request, place: int) -> None:
        """Send a request to the node at a place, counted round and round."""
        cluster = self._world.cluster
        self._connection = cluster.network.connect(self, self._number, cluster.nodes[place % len(cluster.nodes)])
        self._wake_in(PATIENCE_MS)
        cluster.network.send(self._connection, self._step, request)

    def receive(self, connection: Connection, correlation_id: int, response: Response) -> None:
        """Take an answer."""
        if connection is not self._connection:
            return
        self._hang_up()
        asked, self._asked = self._asked, None
        if asked is None:
            self._go_on(response)
            return
        assert isinstance(response, FindCoordinatorResponse)
        (found,) = response.coordinators
        if found.error_code is ErrorCode.NONE:
            self._step += 1
            self._send(asked.request, found.node.node_id - 1)
        else:
            self._go_on(None)

    def disconnected(self, connection: Connection) -> None:
        """Take note of a lost connection."""
        if connection is self._connection:
            self._lose()

    def _lose(self) -> None:
        self._hang_up()
        self._asked = None
        self._go_on(None)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._world.cluster.network.close(self._connection)
            self._connection = None
