"""Base of the kill harness's transactional clients: producer id, steps, end of transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from attrs import frozen

from groupcoord.schema.engine import Values
from tests.client import Request, init_producer_id
from tests.crash.clients import NONE, BrokenPromiseError, KillClient

END_TXN = 26
CONCURRENT_TRANSACTIONS = 51
TIMEOUT_MS = 900_000
NEW_EPOCH = 0.25
COMMITTED = 0.6


class TransactionPromises(ABC):
    """Promises to one client. Attributes: ending: whether the transaction is to be committed (True) or aborted (False),
    from the request to its response. producer: the newest id and epoch.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.ending: bool | None = None
        self.producer = (-1, -1)

    def sender_fields(self, prefix: str = "") -> Values:
        """Return the fields of a request that name the transactional id, producer id and epoch."""
        producer_id, epoch = self.producer
        fields = {"transactional_id": self.transactional_id, "producer_id": producer_id, "producer_epoch": epoch}
        return {f"{prefix}{name}": value for name, value in fields.items()}

    @abstractmethod
    def ended(self, *, is_committed: bool) -> None:
        """The transaction has ended."""

    def initialised(self, producer: tuple[int, int]) -> None:
        """Record a new epoch, which aborts an open transaction. Raises: BrokenPromiseError: it is not newer."""
        if producer <= self.producer:
            raise BrokenPromiseError(f"{self.transactional_id}: producer {producer} after {self.producer}")
        self.producer = producer
        self.ended(is_committed=False)


@frozen
class Initialise:
    """Get a producer id, or a new epoch."""


@frozen
class End:
    """Commit the transaction, or abort it."""

    is_committed: bool


PromisesT = TypeVar("PromisesT", bound=TransactionPromises)
StepT = TypeVar("StepT")


class TransactionalClient(KillClient[PromisesT], Generic[PromisesT, StepT]):
    """Client with one transaction after another; some are aborted, and some stay open over a restart. After a restart
    it repeats unanswered requests, or gets a new epoch, which aborts the open one.
    """

    def __init__(self, promises: PromisesT, seed: str) -> None:
        super().__init__(promises, seed)
        self._steps: list[Initialise | StepT | End] = [Initialise()]

    def connected(self) -> None:
        """Repeat what was not answered, or start over with a new epoch."""
        super().connected()
        if self.random.random() < NEW_EPOCH:
            self._steps = [Initialise()]
        self._send_first()

    def on_response(self, request: Values, response: Values) -> None:
        step, promises = self._steps[0], self.promises
        error = response["error_code"] if isinstance(step, Initialise | End) else self.error_of(step, response)
        if isinstance(step, Initialise) and error == CONCURRENT_TRANSACTIONS:
            self._send_first()
            return
        if error != NONE:
            raise BrokenPromiseError(f"{promises.transactional_id}: {step} failed with {error}")
        if isinstance(step, Initialise):
            promises.initialised((response["producer_id"], response["producer_epoch"]))
        elif isinstance(step, End):
            promises.ended(is_committed=step.is_committed)
        else:
            self.acknowledged(step)
        del self._steps[0]
        if not self._steps:
            self._steps = [*self.next_steps(), End(self.random.random() < COMMITTED)]
        self._send_first()

    def _send_first(self) -> None:
        step, promises = self._steps[0], self.promises
        if isinstance(step, Initialise):
            promises.ending = False
            self.send(init_producer_id(promises.transactional_id, TIMEOUT_MS))
        elif isinstance(step, End):
            promises.ending = step.is_committed
            self.send(Request(END_TXN, 1, {**promises.sender_fields(), "committed": step.is_committed}))
        else:
            self.send(self.request_of(step))

    @abstractmethod
    def next_steps(self) -> list[StepT]:
        """Return the requests of a new transaction, without its end."""

    @abstractmethod
    def request_of(self, step: StepT) -> Request:
        """Return the request of a step; it may be sent again."""

    @abstractmethod
    def error_of(self, step: StepT, response: Values) -> int:
        """Return the error code of a step's response."""

    def acknowledged(self, step: StepT) -> None:
        """Note that a step was done."""
