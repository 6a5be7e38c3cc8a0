"""The commands of scripts about consumer groups (KIP-848). Topics have to be named by ``config topics=``.

    beat CLIENT [topics=T,…] [regex=R] [assignor=A] [instance=I] [rebalance=MS] [gives=N]
        [epoch=N] [owned=T/P,…] [again=yes]
        The next heartbeat of a consumer, whose member id is its name: a join if it is in no epoch. What is given stays,
        but for what is in the second line. ``gives``: so many partitions it gives back with each heartbeat (all,
        without). ``owned=none``: says that it has none. ``again``: has forgotten where it stands, and joins.
    pause CLIENT                            a static member leaves for a while (epoch -2)
    depart CLIENT                           a member leaves for good (epoch -1)
    group                                   describe the consumer group
    topic TOPIC PARTITIONS                  a topic comes, or grows to so many partitions
    regexes hold|answer [N]                 the host answers questions later; now, the question number N (the last one)

``commit CLIENT`` and ``leave CLIENT`` of the classic protocol take such members, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.messages import ConsumerGroupDescribe, ConsumerGroupHeartbeat, TopicPartitions
from groupcoord.testing.machine.modern_members import Kip848Consumer

from .rendering import partitions_of, words

if TYPE_CHECKING:
    from .commands import RecordingDriver

GROUP = "g"


class ConsumerGroupCommands:
    """A part of the session that runs a script."""

    world: RecordingDriver

    def _member(self, name: str) -> Kip848Consumer:
        """Return the consumer of this name; there is one from the first time on."""
        for consumer in self.world.fleet.consumers:
            if consumer.name == name and isinstance(consumer, Kip848Consumer):
                return consumer
        started = Kip848Consumer(name, GROUP, member_id=name)
        self.world.fleet.consumers.append(started)
        return started

    def _ask(self, label: str, request: ConsumerGroupHeartbeat, consumer: Kip848Consumer) -> None:
        client: Any = self._client(consumer.name)  # type: ignore[attr-defined]
        self.world.ask(label, request, client, consumer)

    def do_beat(
        self,
        client: str,
        *,
        topics: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        instance: str | None = None,
        rebalance: str | None = None,
        gives: str | None = None,
        epoch: str | None = None,
        owned: str | None = None,
        again: str = "no",
    ) -> None:
        """Send a consumer's next heartbeat."""
        who = self._member(client)
        if again == "yes":
            who.rejoin()
        if topics is not None:
            who.topics = tuple(name for name in topics.split(",") if name)
        who.regex = who.regex if regex is None else regex
        who.assignor = who.assignor if assignor is None else assignor
        who.instance_id = who.instance_id if instance is None else instance
        who.gives_back = who.gives_back if gives is None else int(gives)
        if rebalance is not None:
            who.rebalance_timeout_ms = int(rebalance)
        request = who.next_request()
        assert isinstance(request, ConsumerGroupHeartbeat)
        if epoch is not None:
            request = evolve(request, member_epoch=int(epoch))
        if owned is not None:
            request = evolve(request, topic_partitions=self._partitions(owned))
        self._ask(f"beat {client}", request, who)

    def _partitions(self, owned: str) -> tuple[TopicPartitions, ...]:
        by_topic: dict[str, list[int]] = {}
        for word in [] if owned == "none" else owned.split(","):
            topic, _, index = word.partition("/")
            by_topic.setdefault(topic, []).append(int(index))
        return tuple(TopicPartitions(self.world.topics.ids[name], tuple(found)) for name, found in by_topic.items())

    def do_pause(self, client: str) -> None:
        """A static member leaves for a while."""
        self._depart("pause", client, for_good=False)

    def do_depart(self, client: str) -> None:
        """A member leaves."""
        self._depart("depart", client, for_good=True)

    def _depart(self, verb: str, client: str, *, for_good: bool) -> None:
        who = self._member(client)
        self.world.ask(f"{verb} {client}", who.leave_request(for_good=for_good))
        who.rejoin()

    def do_group(self, *, group: str = GROUP) -> None:
        """Describe a consumer group."""
        self.world.ask("group", ConsumerGroupDescribe((group,)))

    def do_topic(self, topic: str, partitions: str) -> None:
        """A topic comes, or grows."""
        count = self.world.topics.partition_count(topic)
        if count is None:
            self.world.create_topic(topic, int(partitions))
        else:
            self.world.grow_topic(topic, int(partitions) - count)

    def do_regexes(self, what: str, which: str = "-1") -> None:
        """Make the host's answers wait, or release them."""
        coordinator: Any = self.world.coordinator
        if what == "hold":
            coordinator.asked.holds = True
        elif what == "answer":
            coordinator.answer(int(which))
            coordinator.tick()  # as a host does, which has the appends of it made
            self.world.deliver()
        else:
            raise ValueError(what)

    def dump_consumer_group(self, group: ConsumerGroup) -> None:
        """Show the members of a consumer group."""
        state = group.state
        self.world.say(
            f"{group.group_id} {group.group_state.value} epoch={state.epoch} target={state.assignment_epoch}"
        )
        for member_id, member in sorted(state.members.items()):
            assignment = member.assignment
            self.world.say(
                words(
                    f"  {member_id}",
                    member.metadata.instance_id and f"({member.metadata.instance_id})",
                    f"epoch={assignment.member_epoch}",
                    assignment.state.name,
                    f"has {partitions_of(assignment.assigned.items())}",
                    assignment.pending_revocation
                    and f"gives back {partitions_of(assignment.pending_revocation.items())}",
                    f"target {partitions_of(state.targets.get(member_id, {}).items())}",
                )
            )
