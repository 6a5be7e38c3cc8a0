"""State machine of a consumer group with failing logs, changing topics and time-outs: the group becomes stable when
they stop.
"""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.testing.machine.consumers import ClassicConsumer
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.laws.event_laws import EventLaws

GROUP = "group"
BOTH = ("orders", "payments")


class ObservedDriver(Driver):
    """Compares emitted events with the groups' states."""

    def boot(self) -> None:
        """Start a coordinator on the log."""
        super().boot()
        self.coordinator.observe()
        self.event_laws = EventLaws()

    def check_laws(self) -> None:
        """Check every law, those of events too."""
        super().check_laws()
        for event in self.coordinator.take_events():
            self.event_laws.see(event, self.coordinator)
        self.event_laws.check(self.coordinator)


class BadDay(ObservedDriver):
    """Three consumers of one group, with everything around them that can go wrong; a static one among them."""

    group_ids = (GROUP,)

    def __init__(self) -> None:
        super().__init__(
            late=True,
            topics=Topics(orders=4),
            group_initial_rebalance_delay_ms=0,
            group_consumer_assignment_interval_ms=0,
        )
        for name, topics, instance in (("a", ("orders",), None), ("b", BOTH, None), ("c", BOTH, "instance")):
            self.start_consumer(Kip848Consumer(name, GROUP, instance, topics, gives_back=1 if instance else None))

    # ------------------------------------------------------------ what consumers do

    def consumer(self, number: int) -> Kip848Consumer:
        living = [c for c in self.fleet.living(GROUP) if isinstance(c, Kip848Consumer)]
        return living[number % len(living)]

    def beat(self, number: int) -> None:
        """A consumer sends its next heartbeat, or commits."""
        self.go_on(self.consumer(number), commits=number > 8)

    def come_back(self, number: int) -> None:
        """A consumer leaves, a static one perhaps for a while, and comes back under another id."""
        consumer = self.consumer(number)
        if not consumer.is_waiting and consumer.epoch > 0:
            for_good = consumer.instance_id is None or number > 5
            self.submit(consumer.leave_request(for_good=for_good))
            self.restart_static(consumer)

    def subscribe(self, number: int) -> None:
        """A consumer wants other topics."""
        consumer = self.consumer(number)
        consumer.topics = ("orders",) if "payments" in consumer.topics else BOTH

    def join_classic(self, number: int) -> None:
        classic = ClassicConsumer("old", GROUP, asks_for_id=False)
        self.submit(classic.join_request())

    # ------------------------------------------------------------ what happens around them

    def wait(self, number: int) -> None:
        self.sleep(number**2 * 500)

    def write_some(self, number: int) -> None:
        self.write()

    def refuse_one(self, number: int) -> None:
        self.refuse(NotEnoughReplicasError(), 1)

    def time_out(self, number: int) -> None:
        """Time out a write with unknown outcome: the log partition is unloaded and loaded again."""
        if self.store.waiting():
            self.pass_on(self.store.time_out(is_written=number % 2 == 0))
            self.store.lose()
            self.load(0)

    def crash(self, number: int) -> None:
        """The process is killed, with some of what waits written, and another loads the log."""
        self.kill(number % 2)
        self.coordinator.load_all()
        self.check_laws()

    def change_topics(self, number: int) -> None:
        """A topic grows, comes or goes."""
        if number % 2:
            self.grow_topic("orders")
        elif "payments" in self.topics.ids:
            self.delete_topic("payments")
        else:
            self.create_topic("payments", 2)


STEPS = {
    "beat": BadDay.beat,
    "write": BadDay.write_some,
    "wait": BadDay.wait,
    "refuse": BadDay.refuse_one,
    "change_topics": BadDay.change_topics,
    "come_back": BadDay.come_back,
    "subscribe": BadDay.subscribe,
    "join_classic": BadDay.join_classic,
    "time_out": BadDay.time_out,
    "crash": BadDay.crash,
}
USUAL = ["beat"] * 8 + ["write"] * 4
steps = st.tuples(st.sampled_from([*USUAL, *STEPS]), st.integers(0, 10))


@settings(max_examples=25, deadline=None)
@given(st.lists(steps, min_size=15, max_size=60))
def test_a_group_comes_to_rest(walk: list[tuple[str, int]]) -> None:
    """Every law holds after each step; in the end each partition is one member's, and heartbeats write nothing."""
    day = BadDay()
    for name, number in walk:
        STEPS[name](day, number)
    day.recover()
    day.check_all_are_served(GROUP)
