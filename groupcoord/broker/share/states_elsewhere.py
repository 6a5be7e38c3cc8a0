"""The share coordinators of all processes, as one of them asks them: each has some of the states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from groupcoord.broker.cluster.neighbours import Asker, Neighbours, Question
from groupcoord.broker.share.persister import Submit
from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse
from groupcoord.core.share_state.partition import AnyResult
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.core.share_state.requests import (
    TopicIdPartition,
    answer_of,
    asked_partitions,
    part_of,
    refuse_states,
    results_of,
)
from groupcoord.errors import ErrorCode


class StatesElsewhere:
    """Asks those processes that coordinate the share-partitions of a request, this one among them.

    Args:
        neighbours: the other processes.
        leader_of: returns which node coordinates a share-partition.
        submit_here: asks the share coordinator of this process.
    """

    def __init__(
        self, neighbours: Neighbours, leader_of: Callable[[SharePartitionKey], int], submit_here: Submit
    ) -> None:
        self._neighbours = neighbours
        self._leader_of = leader_of
        self._submit_here = submit_here

    def submit(self, request: ShareStateRequest, token: Any) -> None:
        """Ask; the token takes one answer when all have answered. A process that is gone is not available."""
        leaders: dict[int, set[TopicIdPartition]] = {}
        for asked in asked_partitions(request):
            leaders.setdefault(self._leader_of(SharePartitionKey(request.group_id, *asked)), set()).add(asked)
        if leaders.keys() <= {self._neighbours.node_id}:
            self._submit_here(request, token)
            return
        parts = _Parts(request, token)
        for node_id, partitions in leaders.items():
            part = part_of(request, partitions)
            if node_id == self._neighbours.node_id:
                self._submit_here(part, parts)
            else:
                question = Question(part, Asker(self._neighbours.node_id))
                self._neighbours.ask(node_id, question, partial(parts.take, part))


class _Parts:
    """The answers to the parts of a request, as they come: a token that takes those of this process."""

    def __init__(self, request: ShareStateRequest, token: Any) -> None:
        self._request = request
        self._token = token
        self._missing = set(asked_partitions(request))
        self._results: dict[TopicIdPartition, AnyResult] = {}

    def take(self, part: ShareStateRequest, response: ShareStateResponse | None) -> None:
        """Take what another process has answered."""
        self.answer(refuse_states(part, ErrorCode.COORDINATOR_NOT_AVAILABLE) if response is None else response)

    def answer(self, response: ShareStateResponse) -> None:
        """Take an answer; the last one makes the whole."""
        found = results_of(response)
        self._results.update(found)
        self._missing.difference_update(found)
        if not self._missing:
            self._token.answer(answer_of(self._request, self._results))
