"""Members of a consumer group on a bad day: whatever log, topics and time do, it comes to rest when they stop."""

from __future__ import annotations

from uuid import UUID

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord import ErrorCode
from groupcoord.config import MigrationPolicy
from groupcoord.consumer_protocol import Subscription, encode_subscription
from groupcoord.core.consumer.group import ConsumerGroupState
from groupcoord.core.consumer.records import (
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.records import GroupTombstone
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse, TopicPartitions
from groupcoord.testing.fleet import Sent
from tests.core.consumer.members import Members, Topics
from tests.core.driver import Driver, Group, protocols_of
from tests.laws.event_laws import EventLaws

ROUNDS = 60
ROUND_MS = 2_500
"""150 s in all: longer than a session and a rebalance timeout together."""

MUST_JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


@define
class Client:
    """A consumer: it sends one heartbeat at a time, and gives back at once what it is not to have any more.

    Attributes:
        owned: the partitions that it has.
        told: those that the coordinator knows it to have; None: say everything.
        asked: the topics that it last said to want.
    """

    name: str
    names: tuple[str, ...]
    instance: str | None = None
    asked: tuple[str, ...] | None = None
    epoch: int = 0
    incarnation: int = 1
    owned: dict[UUID, tuple[int, ...]] = field(factory=dict)
    told: dict[UUID, tuple[int, ...]] | None = None
    sent: Sent | None = None

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.incarnation}"

    def next_request(self) -> ConsumerGroupHeartbeat:
        """Return its next heartbeat: in full where it does not know where it stands."""
        is_full = self.epoch == 0 or self.told is None or self.asked != self.names
        self.asked = self.names if is_full else self.asked
        says_partitions = is_full or self.owned != self.told
        return ConsumerGroupHeartbeat(
            "group",
            self.member_id,
            self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=30_000 if is_full else -1,
            subscribed_topic_names=self.names if is_full else None,
            topic_partitions=tuple(TopicPartitions(*entry) for entry in self.owned.items())
            if says_partitions
            else None,
        )

    def take_answer(self) -> None:
        """Follow the answer, if there is one."""
        if self.sent is None or self.sent.is_waiting:
            return
        response = self.sent.answer(ConsumerGroupHeartbeatResponse)
        self.sent = None
        if response.error_code in MUST_JOIN_AGAIN:
            self.start_again()
        elif response.error_code is not ErrorCode.NONE:
            self.told = None
        elif response.member_epoch >= 0:
            self.epoch, self.told = response.member_epoch, self.owned
            if response.assignment is not None:
                self.owned = {topic.topic_id: topic.partitions for topic in response.assignment}

    def start_again(self) -> None:
        self.epoch, self.owned, self.told, self.sent = 0, {}, None, None


class ObservedDriver(Driver):
    """Checks what the coordinator says of its groups against what they are."""

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


class BadDay:
    """Three consumers of one group, with everything around them that can go wrong; a static one among them."""

    def __init__(self) -> None:
        self.topics = Topics(orders=4)
        self.driver = ObservedDriver(
            late=True,
            topics=self.topics,
            group_consumer_assignment_interval_ms=0,
            group_consumer_migration_policy=MigrationPolicy.BIDIRECTIONAL,
        )
        self.members = Members(self.driver)
        self.clients = [
            Client("a", ("orders",)),
            Client("b", ("orders", "payments")),
            Client("c", ("orders", "payments"), "instance"),
        ]

    # ------------------------------------------------------------ what clients do

    def beat(self, number: int) -> None:
        """A client sends its next heartbeat."""
        client = self.clients[number % 3]
        client.take_answer()
        if client.sent is None:
            client.sent = self.driver.submit(client.next_request())
            client.take_answer()

    def leave(self, number: int) -> None:
        """A client leaves, a static one perhaps for a while, and comes back under another id."""
        client = self.clients[number % 3]
        if client.sent is None and client.epoch > 0:
            epoch = -2 if client.instance is not None and number > 5 else -1
            self.driver.submit(ConsumerGroupHeartbeat("group", client.member_id, epoch, instance_id=client.instance))
            client.incarnation += 1
            client.start_again()

    def subscribe(self, number: int) -> None:
        """A client wants other topics."""
        client = self.clients[number % 3]
        client.names = ("orders",) if "payments" in client.names else ("orders", "payments")
        client.told = None

    def join_classic(self, number: int) -> None:
        """Somebody joins with the classic protocol, and is not heard of again."""
        subscription = encode_subscription(Subscription(("orders",)))
        Group(self.driver).join("old", protocols=protocols_of("range", metadata=subscription), rebalance_ms=20_000)

    def commit(self, number: int) -> None:
        """A client commits an offset."""
        client = self.clients[number % 3]
        Group(self.driver).commit(number, member_id=client.member_id, generation=client.epoch)

    # ------------------------------------------------------------ what happens around them

    def sleep(self, number: int) -> None:
        self.driver.sleep(number**2 * 500)

    def write(self, number: int) -> None:
        self.driver.write()

    def refuse(self, number: int) -> None:
        self.driver.refuse(NotEnoughReplicasError(), 1)

    def time_out(self, number: int) -> None:
        """Nobody knows what became of a write: the log partition is given up and loaded again."""
        if self.driver.store.waiting():
            self.driver.pass_on(self.driver.store.time_out(is_written=number % 2 == 0))
            self.driver.store.lose()
            self.driver.load(0)

    def crash(self, number: int) -> None:
        """The process is killed, with some of what waits written, and another loads the log."""
        self.driver.kill(number % 2)
        self.driver.coordinator.load_all()
        self.driver.check_laws()
        for client in self.clients:
            client.sent, client.told = None, None

    def change_topics(self, number: int) -> None:
        """A topic grows, comes or goes."""
        coordinator = self.driver.coordinator
        if number % 2:
            self.topics.counts["orders"] += 1
            coordinator.topics_changed(["orders"])
        elif "payments" in self.topics.ids:
            coordinator.topic_deleted("payments", self.topics.delete("payments"))
        else:
            self.topics.create("payments", 2)
            coordinator.topics_created(["payments"])

    # ------------------------------------------------------------ laws

    def check_epochs_grow(self) -> None:
        """In the log the epochs of a group and of its target grow until the group is gone."""
        epoch = target_epoch = 0
        for record in self.driver.written():
            match record:
                case ConsumerGroupMetadataRecord():
                    assert record.epoch > epoch
                    epoch = record.epoch
                case ConsumerGroupTargetAssignmentMetadataRecord():
                    assert target_epoch <= record.assignment_epoch <= epoch
                    target_epoch = record.assignment_epoch
                case GroupTombstone(key=(3, "")):
                    epoch = 0
                case GroupTombstone(key=(6, "")):
                    target_epoch = 0

    def check_nothing_is_written(self) -> None:
        """Heartbeats of a group that has come to rest are answered without a write."""
        before = self.driver.written()
        for number in range(3):
            self.beat(number)
            assert self.clients[number].sent is None
        assert self.driver.written() == before

    def check_all_is_served(self) -> None:
        """Everybody is Stable at the target epoch, and each partition of a subscribed topic is exactly one's."""
        group = self.members.inside
        assert group is not None
        state = group.state
        assert group.group_state is ConsumerGroupState.STABLE, group
        assert state.members.keys() == {client.member_id for client in self.clients}
        assert {member.assignment.member_epoch for member in state.members.values()} == {state.epoch}
        for client in self.clients:
            assigned = state.members[client.member_id].assignment.assigned
            assert {t: set(p) for t, p in client.owned.items()} == {t: set(p) for t, p in assigned.items()}
        owned = sorted((t, p) for client in self.clients for t, indexes in client.owned.items() for p in indexes)
        wanted = {name for client in self.clients for name in client.names if name in self.topics.ids}
        assert owned == sorted((self.topics.ids[n], p) for n in wanted for p in range(self.topics.counts[n]))

    def recover(self) -> None:
        """Faults stop, the log partition is loaded once more, and everybody goes on."""
        self.driver.store.mend()
        self.driver.write_all()
        self.driver.store.is_late = False
        self.driver.load(0)
        for _ in range(ROUNDS):
            for number in range(3):
                self.beat(number)
            self.driver.advance(ROUND_MS)


STEPS = {
    "beat": BadDay.beat,
    "write": BadDay.write,
    "sleep": BadDay.sleep,
    "refuse": BadDay.refuse,
    "change_topics": BadDay.change_topics,
    "leave": BadDay.leave,
    "subscribe": BadDay.subscribe,
    "commit": BadDay.commit,
    "join_classic": BadDay.join_classic,
    "time_out": BadDay.time_out,
    "crash": BadDay.crash,
}
USUAL = ["beat"] * 8 + ["write"] * 4
steps = st.tuples(st.sampled_from([*USUAL, *STEPS]), st.integers(0, 10))


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=15, max_size=60))
def test_a_group_comes_to_rest(walk: list[tuple[str, int]]) -> None:
    """Every law holds after each step; in the end each partition is one member's, and heartbeats write nothing."""
    day = BadDay()
    for name, number in walk:
        STEPS[name](day, number)
        day.check_epochs_grow()
    day.recover()
    day.check_all_is_served()
    day.check_nothing_is_written()
    day.check_epochs_grow()
