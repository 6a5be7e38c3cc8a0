"""Clients of a coordinator in tests: who waits for what, and who was told to own what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from groupcoord.core.messages import JoinGroupResponse, Request, Response, SyncGroupResponse
from groupcoord.core.replies import Reply
from groupcoord.errors import ErrorCode
from groupcoord.laws import error_codes, require
from groupcoord.testing.consumers import TOPIC, ClassicConsumer, Consumer

R = TypeVar("R", bound=Response)


class Sent:
    """A request that was sent, and what became of it.

    Attributes:
        token: what its answer comes with.
        request: what was asked.
        consumer: whose it is; None: nobody's in particular.
        member_id: the member id that was made for this request, if one was; else the request's own.
        answers: one, once there is one; None in it: the token came back without an answer, as where Kafka never gives
            one.
    """

    def __init__(self, token: int, request: Request, consumer: Consumer | None) -> None:
        self.token = token
        self.request = request
        self.consumer = consumer
        self.member_id: str = getattr(request, "member_id", "")
        self.answers: list[Response | None] = []

    @property
    def is_waiting(self) -> bool:
        """True as long as there is no answer."""
        return not self.answers

    @property
    def is_dropped(self) -> bool:
        """True if the token came back without an answer."""
        return self.answers == [None]

    def answer(self, kind: type[R]) -> R:
        """Return the answer, which must be there and of this kind."""
        assert len(self.answers) == 1, f"{self.request} has the answers {self.answers}"
        (answer,) = self.answers
        assert isinstance(answer, kind), answer
        return answer

    @property
    def joined(self) -> JoinGroupResponse:
        """The answer of a join."""
        return self.answer(JoinGroupResponse)

    @property
    def synced(self) -> SyncGroupResponse:
        """The answer of a sync."""
        return self.answer(SyncGroupResponse)

    @property
    def error(self) -> ErrorCode:
        """The only error code of the answer, NONE if there is no error."""
        (response,) = self.answers
        assert response is not None, self
        (error_code,) = set(error_codes(response))
        return error_code

    def __repr__(self) -> str:
        return f"Sent({self.token}, {self.request!r}, {self.answers!r})"


class Fleet:
    """Consumers and other clients: their requests go to a coordinator, its answers to who asked.

    Args:
        send: takes a request and a token.
        receive: returns the answers since the last call.
        on_answer: called with each answer before it is given to who asked.

    Attributes:
        consumers: all that ever were.
        outstanding: token → the request that has no answer yet.
    """

    def __init__(
        self,
        send: Callable[[Request, int], None],
        receive: Callable[[], Iterable[Reply]],
        on_answer: Callable[[Sent, Response | None], None],
    ) -> None:
        self._send = send
        self._receive = receive
        self._on_answer = on_answer
        self._last_token = 0
        self._owners: dict[tuple[str, int, int], str] = {}
        self.consumers: list[Consumer] = []
        self.outstanding: dict[int, Sent] = {}

    def send(self, request: Request, consumer: Consumer | None = None) -> Sent:
        """Send a request; the answer will be the consumer's, or nobody's in particular."""
        self._last_token += 1
        sent = self.outstanding[self._last_token] = Sent(self._last_token, request, consumer)
        if consumer is not None:
            consumer.is_waiting = True
        self._send(request, sent.token)
        return sent

    def deliver(self) -> None:
        """Give every answer to who asked.

        Raises:
            LawBrokenError: nobody waits for an answer, or it breaks a law.
        """
        for token, response in self._receive():
            is_awaited = token in self.outstanding
            require(is_awaited, "token {!r} is answered, but nobody waits for it: {!r}", token, response)
            sent = self.outstanding.pop(token)
            sent.answers.append(response)
            self._on_answer(sent, response)
            if sent.consumer is not None:
                sent.consumer.receive(response)
                if isinstance(sent.consumer, ClassicConsumer):
                    self._note_owned(sent.consumer)

    def lose_requests(self) -> None:
        """The coordinator has died: nobody is answered any more, and generations that it had not written count anew."""
        for sent in self.outstanding.values():
            if sent.consumer is not None:
                sent.consumer.receive(None)
        self.outstanding.clear()
        self._owners.clear()

    def forget_group(self, group_id: str) -> None:
        """A group is gone, or its last generation with it: generations of the next one count anew."""
        self._owners = {key: owner for key, owner in self._owners.items() if key[0] != group_id}

    def living(self, group_id: str) -> list[Consumer]:
        """Return the consumers of a group that are alive."""
        return [consumer for consumer in self.consumers if consumer.is_alive and consumer.group_id == group_id]

    def successors(self, consumer: Consumer) -> list[Consumer]:
        """Return the consumers that were started later under a static consumer's instance id, alive or not."""
        later = self.consumers[self.consumers.index(consumer) + 1 :]
        return [c for c in later if (c.group_id, c.instance_id) == (consumer.group_id, consumer.instance_id)]

    def ready(self, *phases: str) -> list[Consumer]:
        """Return the live consumers that wait for nothing, in these phases (any, if none are named)."""
        return [
            consumer
            for consumer in self.consumers
            if consumer.is_alive and not consumer.is_waiting and (not phases or consumer.phase in phases)
        ]

    def _note_owned(self, consumer: ClassicConsumer) -> None:
        """Within one generation, as members see it, a partition has one owner."""
        for index in consumer.owned or ():
            key = (consumer.group_id, consumer.generation_id, index)
            owner = self._owners.setdefault(key, consumer.identity)
            require(
                owner == consumer.identity,
                "in generation {} of group {!r} both {!r} and {!r} own {}-{}",
                *(consumer.generation_id, consumer.group_id, owner, consumer.identity, TOPIC, index),
            )
