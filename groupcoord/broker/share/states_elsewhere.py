"""The share coordinators of all processes, as one of them asks them: each has some of the states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.broker.cluster.neighbours import Asker, Neighbours, Question
from groupcoord.broker.share.persister import Submit
from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse
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
        parts = _Parts(request, token, len(leaders))
        for node_id, partitions in leaders.items():
            part = part_of(request, partitions)
            if node_id == self._neighbours.node_id:
                self._submit_here(part, parts)
            else:
                self._neighbours.ask(node_id, Question(part, Asker(self._neighbours.node_id)), parts.answer)


class _Parts:
    """The answers to the parts of a request, as they come: a token that takes those of this process.

    Args:
        request: the whole.
        token: takes its answer.
        count: how many answers to parts there will be.
    """

    def __init__(self, request: ShareStateRequest, token: Any, count: int) -> None:
        self._request = request
        self._token = token
        self._missing_count = count
        self._results = results_of(refuse_states(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def answer(self, response: ShareStateResponse | None) -> None:
        """Take an answer, None of who is gone; the last one makes the whole. What none has told is refused."""
        if response is not None:
            self._results.update(results_of(response))
        self._missing_count -= 1
        if not self._missing_count:
            self._token.answer(answer_of(self._request, self._results))
