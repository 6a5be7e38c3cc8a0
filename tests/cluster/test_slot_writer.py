"""Owners that take a log partition over from each other, on a network that delays, doubles, reorders and loses.

Nothing an owner does depends on who else it believes to be alive, so chance decides who takes over, and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from attrs import define, field
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from groupcoord.cluster.slot_log import Kind, Message, Slot, join, split
from groupcoord.cluster.slot_writer import (
    UNKNOWN,
    Acknowledged,
    Failed,
    Loaded,
    Lost,
    Operation,
    Purge,
    Put,
    Read,
    SlotWriter,
    State,
)

OWNERS = 3
BODY_BYTES_MAX = 8
"""Two appends go together, and more have to wait."""


@define(eq=False)
class Life:
    """One life of an owner, and what it was told.

    Attributes:
        tag: of this life.
        writer: decides.
        bodies: what it was asked to append, in order.
        acknowledged, refused: what it was told of that.
        state: everything that it knows to be in the log, in order; None before it has loaded.
    """

    tag: bytes
    writer: SlotWriter
    bodies: list[bytes] = field(factory=list)
    acknowledged: list[bytes] = field(factory=list)
    refused: list[bytes] = field(factory=list)
    state: list[bytes] | None = None


@define(eq=False)
class Flight:
    """An operation on its way to the engine, or (``result``) back."""

    life: Life
    operation: Operation
    result: Any = None


class SlotLogMachine(RuleBasedStateMachine):
    """The laws: one writer between fences; what is acknowledged is in the log, once and in order; what was refused for
    good is not; and who takes over knows everything below its fence."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[bytes] = []
        self.purged_before = 0
        self.there: list[Flight] = []
        self.back: list[Flight] = []
        self.lives: list[Life] = []
        self.all_lives: list[Life] = []

    @initialize()
    def begin(self) -> None:
        self.lives = [self.new_life() for _ in range(OWNERS)]

    def new_life(self) -> Life:
        tag = len(self.all_lives).to_bytes(16, "big")
        life = Life(tag, SlotWriter(tag, body_bytes_max=BODY_BYTES_MAX))
        self.all_lives.append(life)
        return life

    # ------------------------------------------------------------ owners

    @rule(number=st.integers(0, OWNERS - 1))
    def take_over(self, number: int) -> None:
        if self.lives[number].writer.state is State.LOST:
            self.lives[number] = self.new_life()

    @rule(number=st.integers(0, OWNERS - 1))
    def restart(self, number: int) -> None:
        self.lives[number] = self.new_life()

    @rule(number=st.integers(0, OWNERS - 1), count=st.integers(1, 3))
    def append(self, number: int, count: int) -> None:
        life = self.lives[number]
        if life.state is not None:
            for _ in range(count):
                body = b"%d-%d" % (self.all_lives.index(life), len(life.bodies))
                life.bodies.append(body)
                life.writer.append(body, body)
            self.take_events(life)

    @rule(number=st.integers(0, OWNERS - 1), parts=st.integers(0, 2))
    def snapshot(self, number: int, parts: int) -> None:
        life = self.lives[number]
        if life.writer.state is State.OWNER and not life.writer.is_writing_snapshot:
            assert life.state is not None
            state = life.state if parts else []
            if parts or not life.state:
                middle = len(state) // 2 if parts == 2 else 0
                halves = [state[:middle], state[middle:]] if parts == 2 else [state][:parts]
                life.writer.snapshot([join(half) for half in halves])

    def take_events(self, life: Life) -> None:
        for event in life.writer.take_events():
            if isinstance(event, Loaded):
                life.state = [body for chunk in event.chunks for body in split(chunk)] + event.appends
                below = self.appended(event.epoch)
                assert life.state == below, f"{life.state} was loaded, where there is {below}"
            elif isinstance(event, Acknowledged):
                body = self.bytes_of(event.token)
                life.acknowledged.append(body)
                assert life.state is not None
                life.state.append(body)
            elif isinstance(event, Failed):
                if not event.is_unknown:
                    life.refused.append(self.bytes_of(event.token))
            else:
                assert isinstance(event, Lost)
                assert life.writer.state is State.LOST

    @staticmethod
    def bytes_of(token: Hashable) -> bytes:
        assert isinstance(token, bytes)
        return token

    # ------------------------------------------------------------ network

    @rule(number=st.integers(0, OWNERS - 1))
    def send(self, number: int) -> None:
        life = self.lives[number]
        while (operation := life.writer.next_operation()) is not None:  # one, unless an owner sends more
            self.there.append(Flight(life, operation))

    @precondition(lambda self: self.there)
    @rule(data=st.data(), stays=st.booleans(), lag=st.integers(0, 3))
    def arrive(self, data: st.DataObject, stays: bool, lag: int) -> None:
        """Something arrives at the engine; a copy of it may come later."""
        flight = data.draw(st.sampled_from(self.there))
        if not stays:
            self.there.remove(flight)
        self.back.append(Flight(flight.life, flight.operation, self.carry_out(flight.operation, lag)))

    def carry_out(self, operation: Operation, lag: int) -> Any:
        if isinstance(operation, Put):
            if operation.slot != len(self.history):
                return len(self.history) - 1
            self.history.append(operation.payload)
            return None
        if isinstance(operation, Purge):
            self.purged_before = max(self.purged_before, operation.before_slot)
            return None
        assert isinstance(operation, Read)
        first = max(operation.from_slot, self.purged_before)
        return [Slot(slot, self.history[slot]) for slot in range(first, len(self.history) - lag)][:4]

    @precondition(lambda self: self.back)
    @rule(data=st.data(), stays=st.booleans())
    def come_back(self, data: st.DataObject, stays: bool) -> None:
        flight = data.draw(st.sampled_from(self.back))
        if not stays:
            self.back.remove(flight)
        flight.life.writer.done(flight.operation, flight.result)
        self.take_events(flight.life)

    @precondition(lambda self: self.there or self.back)
    @rule(data=st.data(), is_unknown=st.booleans())
    def lose(self, data: st.DataObject, is_unknown: bool) -> None:
        """Something is lost on its way, and the owner may notice."""
        flights = data.draw(st.sampled_from([flights for flights in (self.there, self.back) if flights]))
        flight = data.draw(st.sampled_from(flights))
        flights.remove(flight)
        if is_unknown:
            flight.life.writer.done(flight.operation, UNKNOWN)

    @rule(number=st.integers(0, OWNERS - 1))
    def go_well(self, number: int) -> None:
        """Complete all requests of this owner for a while, and append."""
        life = self.lives[number]
        for flight in [flight for flight in self.there if flight.life is life]:
            self.there.remove(flight)
            life.writer.done(flight.operation, UNKNOWN)
        for _ in range(6):
            operation = life.writer.next_operation()
            if operation is None:
                break
            life.writer.done(operation, self.carry_out(operation, 0))
            self.take_events(life)

    # ------------------------------------------------------------ laws

    def appended(self, before_slot: int | None = None) -> list[bytes]:
        """Return everything that was ever appended, in the order of the log."""
        messages = map(Message.decoded, self.history[:before_slot])
        return [body for message in messages if message.kind is Kind.BATCHES for body in split(message.body)]

    @invariant()
    def one_writes_between_fences(self) -> None:
        owner = b""
        for slot, payload in enumerate(self.history):
            message = Message.decoded(payload)
            if message.kind is Kind.FENCE:
                owner = message.tag
            assert message.tag == owner, f"slot {slot} is not its owner's"

    @invariant()
    def what_is_acknowledged_is_there_once_and_in_order(self) -> None:
        found = self.appended()
        assert all(count == 1 for count in Counter(found).values()), f"something is there twice: {found}"
        places = {body: place for place, body in enumerate(found)}
        for life in self.all_lives:
            assert all(body in places for body in life.acknowledged), "something acknowledged is not in the log"
            written = [places[body] for body in life.bodies if body in places]
            assert written == sorted(written), "the order is another one"
            assert life.acknowledged == life.bodies[: len(life.acknowledged)], "acknowledged out of order"
            assert not places.keys() & set(life.refused), "something is in the log that was refused for good"

    def teardown(self) -> None:
        """A new owner finds everything."""
        life = self.new_life()
        while life.state is None:
            operation = life.writer.next_operation()
            assert operation is not None
            life.writer.done(operation, self.carry_out(operation, 0))
            self.take_events(life)


TestSlotLog = SlotLogMachine.TestCase
TestSlotLog.settings = settings(max_examples=80, stateful_step_count=60)


# ---------------------------------------------------------------- what chance reaches too rarely


def owner(machine: SlotLogMachine, *bodies: bytes) -> Life:
    """Return a life that has taken over, and appended."""
    life = machine.new_life()
    work(machine, life)
    for body in bodies:
        life.bodies.append(body)
        life.writer.append(body, body)
    return life


def work(machine: SlotLogMachine, life: Life, count: int = 100) -> None:
    """Run an owner's pending work, up to a number of steps."""
    for _ in range(count):
        operation = life.writer.next_operation()
        if operation is None:
            return
        life.writer.done(operation, machine.carry_out(operation, 0))
        machine.take_events(life)


def test_one_put_is_in_flight_at_a_time() -> None:
    """With a second one, another owner's fence would take the place of the first, and the second would follow it."""
    machine = SlotLogMachine()
    life = owner(machine, b"first", b"second", b"third")
    put = life.writer.next_operation()
    assert life.writer.next_operation() is None
    other = owner(machine, b"other")
    work(machine, other)
    assert put is not None
    life.writer.done(put, machine.carry_out(put, 0))
    work(machine, life)
    assert (life.refused, other.acknowledged) == ([b"first", b"second", b"third"], [b"other"])
    machine.one_writes_between_fences()


@pytest.mark.parametrize("steps", range(9))
def test_a_snapshot_that_is_interrupted_loses_nothing(steps: int) -> None:
    """Wherever an owner dies in it, the next one has everything, and appends of meanwhile."""
    machine = SlotLogMachine()
    life = owner(machine, b"first", b"second")
    work(machine, life)
    life.writer.snapshot([join([b"first"]), join([b"second"])])
    life.bodies.append(b"third")
    life.writer.append(b"third", b"third")
    work(machine, life, steps)
    assert owner(machine).state == machine.appended()
    machine.what_is_acknowledged_is_there_once_and_in_order()


def test_an_interrupted_put_is_repeated_and_counts_once() -> None:
    """The outcome is unknown: the copy is refused, the slot is read back, and matches."""
    machine = SlotLogMachine()
    life = owner(machine, b"first")
    put = life.writer.next_operation()
    assert put is not None
    machine.carry_out(put, 0)
    life.writer.done(put, UNKNOWN)
    work(machine, life)
    assert (life.acknowledged, machine.appended()) == ([b"first"], [b"first"])


def test_what_was_purged_meanwhile_is_read_from_its_snapshot() -> None:
    """An older owner purges while the next one reads: what is left begins with its snapshot."""
    machine = SlotLogMachine()
    life = owner(machine, b"first", b"second", b"third", b"fourth")
    work(machine, life)
    life.writer.snapshot([join([b"first", b"second", b"third", b"fourth"])])
    work(machine, life, 2)
    purge = life.writer.next_operation()
    assert isinstance(purge, Purge)
    other = machine.new_life()
    work(machine, other, 3)
    assert other.writer.state is State.READING
    machine.carry_out(purge, 0)
    work(machine, other)
    assert other.state == [b"first", b"second", b"third", b"fourth"]


@pytest.mark.parametrize("payload", [b"", b"\x09" * 40, Message(Kind.BATCHES, bytes(16), 0, b"\0\0\0\x09x").encoded()])
def test_who_finds_something_else_does_not_take_over(payload: bytes) -> None:
    """A slot that no owner of this program has written is not guessed at."""
    machine = SlotLogMachine()
    machine.history.append(payload)
    life = machine.new_life()
    for _ in range(4):
        operation = life.writer.next_operation()
        if operation is not None:
            life.writer.done(operation, machine.carry_out(operation, 0))
    assert life.writer.state is State.LOST
    assert [type(event) for event in life.writer.take_events()] == [Lost]
