"""The commands of scripts. Times are milliseconds since the script began; the group is ``g`` unless ``group=`` says so.

The world, first of all (else: Kafka's defaults, one log partition, every topic exists, the log answers at once):
    config KEY=VALUE… [topics=NAME:PARTITIONS,…]

Clients are named by a word; each remembers its member id, generation and what it joined with. The ids that the
coordinator makes are ``a-1``, ``a-2`` … for client ``a``, ``i-1`` … for instance ``i``. ``id=@b`` is client b's id.
    join CLIENT [protocols=range,sticky] [topics=T,…] [owned=T/P,…] [metadata=TEXT] [type=T] [session=MS]
        [rebalance=MS] [instance=I] [id=ID] [v=N]
        Without v= a dynamic client joins as of request version 3, a static one 9.
    sync CLIENT [CLIENT:SHARE…] [gen=N] [id=ID] [instance=I] [type=T] [protocol=P]
    heartbeat CLIENT [gen=N] [id=ID] [instance=I]
    form CLIENT[:INSTANCE]… [as for join]   they join an empty group, and each is assigned its own name
    leave WHO…                              a client, an id, or (CLIENT or ID)/INSTANCE; /INSTANCE alone is an admin's
    commit [CLIENT] TOPIC/PARTITION=OFFSET… [gen=N] [id=ID] [instance=I] [metadata=M] [retention=MS] [epoch=N]
    txn-commit PRODUCER TOPIC/PARTITION=OFFSET… [as=CLIENT] [gen=N] [epoch=N]
    marker PRODUCER commit|abort [epoch=N]  the epoch is the producer's
    fetch [TOPIC/PARTITION…] [stable=yes]
    delete-offsets TOPIC/PARTITION…; delete [GROUP…]; describe; list [STATE…]; topic-deleted TOPIC

Members of consumer groups (KIP-848), their topics and expressions: :mod:`tests.scripts.consumer_group_commands`.

Time: sleep MS (every timer fires at its moment), clock MS (nothing fires), tick, deadline
The log: late on|off, ack [N], ack-together, fail-append ERROR [N] (what waits, or else the next), skip-offsets N
The process: crash [KEY=VALUE…], unload EPOCH, load EPOCH, begin-load EPOCH, continue-load N, close
Looking inside: dump, dump-log
"""

from __future__ import annotations

import inspect
import re
import shlex
from typing import TypeVar
from uuid import UUID

from attrs import define, field

from groupcoord import ErrorCode, LogStoreError
from groupcoord.config import MigrationPolicy
from groupcoord.core.consumer_protocol import Subscription, TopicPartition, encode_subscription
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.messages import (
    CompleteTransaction,
    DeleteGroups,
    DescribeGroups,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    Response,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
    TopicToDelete,
    TopicToFetch,
    TxnOffsetCommit,
)
from groupcoord.testing.machine.consumers import Sent
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver

from .asked_host import AskedCoordinator
from .consumer_group_commands import ConsumerGroupCommands
from .rendering import render, text_of, words

T = TypeVar("T", TopicToFetch, TopicToDelete)

GROUP = "g"
OPTION = re.compile(r"([a-z_.]+)=(.*)", re.DOTALL)
OFFSET = re.compile(r"([^/]*)/(-?\d+)=(-?\d+)")
PARTITION = re.compile(r"([^/]*)/(-?\d+)")
HOW = {"protocols", "topics", "owned", "metadata", "type", "session", "rebalance", "v", "instance"}
KNOWS_MEMBER_ID_REQUIRED, KNOWS_SKIP_ASSIGNMENT = 4, 9


@define
class ScriptedMember:
    """State of a client."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    how: dict[str, str] = field(factory=dict)


class RecordingDriver(Driver):
    """The driver of the core's tests, that writes down what happens; every step checks the laws there, too.

    Questions of its coordinator can wait.
    """

    coordinator_class = AskedCoordinator

    def __init__(self, lines: list[str], topics: Topics | None, **settings: int) -> None:
        self.lines = lines
        self.clients: dict[str, ScriptedMember] = {}
        self.told: list[tuple[Kip848Consumer, ScriptedMember]] = []
        self.labels: dict[int, tuple[str, ScriptedMember | None]] = {}
        self._written = 0
        self._held = -1
        self._states: dict[str, str] = {}
        super().__init__(topics=topics, **settings)

    def say(self, line: str) -> None:
        """Write a line down."""
        self.lines.append(line)

    def ask(
        self, label: str, request: Request, client: ScriptedMember | None = None, consumer: Kip848Consumer | None = None
    ) -> None:
        """Send a request, and print a line if it waits."""
        self.labels[id(request)] = (label, client)
        sent = self.submit(request, consumer)
        if sent.is_waiting:
            self.say(f"{label} waits")

    def deliver(self) -> None:
        """Write down what is new: records, answers, states."""
        records = list(self.store.read(0))
        for entry in records[self._written :]:
            self.say(f"log {entry.offset}: {render(entry.record)}")
        self._written = len(records)
        for number in (ticket.number for ticket in self.store.waiting() if ticket.number > self._held):
            self.say(f"the log holds append {number} back")
            self._held = number
        self.fleet.deliver()
        for consumer, client in self.told:
            client.member_id, client.generation = consumer.member_id, consumer.epoch
        self.told.clear()
        self.say_states()
        self.check_laws()

    def on_answer(self, sent: Sent, response: Response | None) -> None:
        """Write an answer down; its client remembers who it is."""
        super().on_answer(sent, response)
        label, client = self.labels.pop(id(sent.request))
        self.say(f"{label}: {'never answered' if response is None else render(response)}")
        if client is not None and isinstance(response, JoinGroupResponse):
            if response.error_code is ErrorCode.NONE:
                client.generation = response.generation_id
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
        if client is not None and isinstance(sent.consumer, Kip848Consumer):
            self.told.append((sent.consumer, client))

    def groups(self) -> dict[str, GroupMetadata | ConsumerGroup]:
        """Return the groups as the coordinator has them."""
        partition = self.coordinator.partition(0)
        return {} if partition is None else partition.groups

    def say_states(self) -> None:
        """Write down which groups have another state or generation than before."""
        states = {name: state_of(group) for name, group in self.groups().items()}
        for name in sorted({*states, *self._states}):
            if states.get(name) != self._states.get(name):
                self.say(f"{name} is {states.get(name, 'gone')}")
        self._states = states

    def forget_requests(self) -> None:
        """Forget waiting requests."""
        self.labels.clear()
        self._held = -1


def state_of(group: GroupMetadata | ConsumerGroup) -> str:
    """Return where a group stands."""
    if isinstance(group, ConsumerGroup):
        return f"a consumer group, {group.group_state.value}, epoch {group.state.epoch}"
    return f"{group.state.value}, generation {group.generation_id}"


class Session(ConsumerGroupCommands):
    """Runs the commands of one script."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._world: RecordingDriver | None = None

    def run(self, line: str) -> list[str]:
        """Run a command and return what it printed.

        Raises:
            ValueError: there is no such command, or its arguments can't be understood.
        """
        name, *words_of_line = shlex.split(line)
        method = getattr(self, "do_" + name.replace("-", "_"), None)
        if method is None:
            raise ValueError(f"there is no command {name!r}")
        options = [match for word in words_of_line if (match := OPTION.fullmatch(word))]
        positional = [word for word in words_of_line if not OPTION.fullmatch(word)]
        keywords = {match[1].replace(".", "_"): match[2] for match in options}
        self._lines.clear()
        try:
            inspect.signature(method).bind(*positional, **keywords)
            method(*positional, **keywords)
        except (TypeError, LookupError, ValueError) as error:
            raise ValueError(f"{name}: {error.args[0]}") from error
        return self._lines.copy() or ["ok"]

    @property
    def world(self) -> RecordingDriver:
        """The world; by default with Kafka's configuration."""
        if self._world is None:
            self._world = RecordingDriver(self._lines, None)
        return self._world

    def do_config(self, *, topics: str | None = None, **settings: str) -> None:
        """Make the world."""
        if self._world is not None:
            raise ValueError("it comes first")
        counts = dict(entry.split(":") for entry in (topics or "").split(",") if entry)
        resolver = None if topics is None else Topics({name: int(count) for name, count in counts.items()})
        self._world = RecordingDriver(self._lines, resolver, **settings_of(settings))

    # ------------------------------------------------------------ clients

    def _client(self, name: str) -> ScriptedMember:
        return self.world.clients.setdefault(name, ScriptedMember(name))

    def _id(self, text: str) -> str:
        return self._client(text[1:]).member_id if text.startswith("@") else text

    def _identity(
        self, client: ScriptedMember, id: str | None, gen: str | None, instance: str | None
    ) -> tuple[int, str, str | None]:
        return (
            client.generation if gen is None else int(gen),
            client.member_id if id is None else self._id(id),
            client.instance if instance is None else None if instance == "none" else instance,
        )

    def do_join(self, client: str, *, group: str = GROUP, id: str | None = None, **how: str) -> None:
        """Join, as before but for what is given."""
        who = self._client(client)
        unknown = how.keys() - HOW
        if unknown:
            raise ValueError(f"got an unexpected keyword argument {min(unknown)!r}")
        if "instance" in how:
            instance = how.pop("instance")
            who.instance = None if instance == "none" else instance
        who.how.update(how)
        version = int(who.how.get("v", 3 if who.instance is None else 9))
        metadata = who.how.get("metadata", "metadata").encode()
        if "topics" in who.how:
            owned = tuple(map(partition_of, who.how["owned"].split(","))) if "owned" in who.how else ()
            topics = tuple(who.how["topics"].split(","))
            metadata = encode_subscription(Subscription(topics, owned_partitions=owned))
        names = [name for name in who.how.get("protocols", "range").split(",") if name]
        request = JoinGroup(
            group,
            who.member_id if id is None else self._id(id),
            who.how.get("type", "consumer"),
            tuple(JoinProtocol(name, metadata) for name in names),
            session_timeout_ms=int(who.how.get("session", "10000")),
            rebalance_timeout_ms=int(who.how.get("rebalance", "60000")),
            group_instance_id=who.instance,
            client_id=client,
            client_host="/127.0.0.1",
            requires_known_member_id=version >= KNOWS_MEMBER_ID_REQUIRED,
            supports_skip_assignment=version >= KNOWS_SKIP_ASSIGNMENT,
        )
        self.world.ask(f"join {client}", request, who)

    def do_form(self, *clients: str, **how: str) -> None:
        """Form a stable group, in short."""
        world = self.world
        for client in clients:
            name, _, instance = client.partition(":")
            self.do_join(name, **how, **({"instance": instance} if instance else {}))
        names = [client.partition(":")[0] for client in clients]
        for _ in range(2):
            world.sleep(world.config.group_initial_rebalance_delay_ms)
        for name in names:
            self.do_sync(name, *([f"{other}:{other}" for other in names] if name == names[0] else []))
        self._lines.clear()
        group = world.groups()[GROUP]
        world.say(f"{GROUP} is {group.state.value}, generation {group.generation_id}, leader {group.leader}")

    def do_sync(
        self,
        client: str,
        *shares: str,
        group: str = GROUP,
        gen: str | None = None,
        id: str | None = None,
        instance: str | None = None,
        type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """Sync; a leader's request has the assignments."""
        who = self._client(client)
        given = [share.partition(":") for share in shares]
        assignments = tuple(
            SyncAssignment(self.world.clients[name].member_id if name in self.world.clients else name, what.encode())
            for name, _, what in given
        )
        identity = self._identity(who, id, gen, instance)
        self.world.ask(f"sync {client}", SyncGroup(group, *identity, type, protocol, assignments), who)

    def do_heartbeat(
        self,
        client: str,
        *,
        group: str = GROUP,
        gen: str | None = None,
        id: str | None = None,
        instance: str | None = None,
    ) -> None:
        """Send a heartbeat."""
        who = self._client(client)
        self.world.ask(f"heartbeat {client}", Heartbeat(group, *self._identity(who, id, gen, instance)), who)

    def do_leave(self, *who: str, group: str = GROUP) -> None:
        """Leave, all in one request."""
        members = []
        for word in who:
            name, slash, instance = word.partition("/")
            if slash:
                member_id = self.world.clients[name].member_id if name in self.world.clients else name
                members.append(LeavingMember(member_id, instance))
            elif name in self.world.clients:
                client = self.world.clients[name]
                members.append(LeavingMember(client.member_id, client.instance))
            else:
                members.append(LeavingMember(name))
        self.world.ask(words("leave", *who), LeaveGroup(group, tuple(members)))

    # ------------------------------------------------------------ offsets

    def do_commit(
        self,
        *words_of_line: str,
        group: str = GROUP,
        gen: str | None = None,
        id: str | None = None,
        instance: str | None = None,
        metadata: str = "",
        retention: str = "-1",
        epoch: str = "-1",
    ) -> None:
        """Commit, as a member or from outside."""
        name = next((word for word in words_of_line if "/" not in word), None)
        who = ScriptedMember("") if name is None else self._client(name)
        topics = topics_to_commit(words_of_line, int(epoch), metadata)
        request = OffsetCommit(group, topics, *self._identity(who, id, gen, instance), retention_time_ms=int(retention))
        self.world.ask(words("commit", *words_of_line), request)

    def do_txn_commit(
        self,
        producer: str,
        *offsets: str,
        group: str = GROUP,
        gen: str | None = None,
        epoch: str = "0",
        **member: str,
    ) -> None:
        """Commit in a producer's transaction; ``as=`` names the client whose ids are sent."""
        who = self._client(member.pop("as")) if "as" in member else ScriptedMember("")
        if member:
            raise ValueError(f"got an unexpected keyword argument {min(member)!r}")
        generation, member_id, instance = self._identity(who, None, gen, None)
        topics = topics_to_commit(offsets, -1, "")
        request = TxnOffsetCommit(group, topics, int(producer), int(epoch), "tx", generation, member_id, instance)
        self.world.ask(words("txn-commit", producer, *offsets), request)

    def do_marker(self, producer: str, outcome: str, *, epoch: str = "0") -> None:
        """End a transaction."""
        request = CompleteTransaction(0, int(producer), int(epoch), {"commit": True, "abort": False}[outcome])
        self.world.ask(f"marker {producer} {outcome}", request)

    def do_fetch(self, *partitions: str, group: str = GROUP, stable: str = "no") -> None:
        """Fetch offsets: those named, or all."""
        wanted = GroupToFetch(group, topics_of(partitions, TopicToFetch) if partitions else None)
        self.world.ask("fetch", OffsetFetch((wanted,), require_stable=stable == "yes"))

    def do_delete_offsets(self, *partitions: str, group: str = GROUP) -> None:
        """Delete offsets."""
        self.world.ask("delete-offsets", OffsetDelete(group, topics_of(partitions, TopicToDelete)))

    def do_topic_deleted(self, topic: str) -> None:
        """A topic is gone from the cluster."""
        if self.world.topics is not None:
            self.world.delete_topic(topic)
        else:
            self.world.coordinator.topic_deleted(topic, UUID(int=0))
            self.world.deliver()

    # ------------------------------------------------------------ administration

    def do_delete(self, *groups: str) -> None:
        """Delete groups."""
        self.world.ask("delete", DeleteGroups(groups or (GROUP,)))

    def do_describe(self, *, group: str = GROUP) -> None:
        """Describe the group."""
        self.world.ask("describe", DescribeGroups((group,)))

    def do_list(self, *states: str) -> None:
        """List groups."""
        self.world.ask("list", ListGroups(states))

    # ------------------------------------------------------------ time

    def do_sleep(self, duration: str) -> None:
        """Advance the clock; each line has its time."""
        world, lines = self.world, self._lines
        end_ms = world.now_ms + int(duration)
        while (due_ms := world.coordinator.next_deadline_ms()) is not None:
            start, wait_ms = len(lines), due_ms - world.clock.now_ms()
            if world.now_ms + wait_ms > end_ms:
                break
            world.sleep(max(wait_ms, 0))
            lines[start:] = [f"{world.now_ms}: {line}" for line in lines[start:]]
        world.clock.advance(end_ms - world.now_ms)

    def do_clock(self, duration: str) -> None:
        """Turn the clock without telling the coordinator."""
        self.world.clock.advance(int(duration))

    def do_tick(self) -> None:
        """Run the coordinator's timers."""
        self.world.coordinator.tick()
        self.world.deliver()

    def do_deadline(self) -> None:
        """Print the coordinator's next deadline."""
        world = self.world
        due_ms = world.coordinator.next_deadline_ms()
        now = world.clock.now_ms() - world.now_ms
        world.say("none" if due_ms is None else f"{due_ms - now}")

    # ------------------------------------------------------------ the log

    def do_late(self, switch: str) -> None:
        """Make appends wait for ``ack``, or not."""
        self.world.store.is_late = {"on": True, "off": False}[switch]

    def do_ack(self, count: str | None = None) -> None:
        """The log writes what waits, and answers each."""
        self.world.write(None if count is None else int(count))

    def do_ack_together(self) -> None:
        """The log writes what waits, and answers for the last."""
        self.world.write_together()

    def do_fail_append(self, error: str, count: str = "1") -> None:
        """The log refuses the oldest appends that wait; without any, the next ones."""
        code = ErrorCode[error]
        failure = LogStoreError(error)
        failure.error_code, failure.outcome_unknown = code, code is ErrorCode.REQUEST_TIMED_OUT
        if self.world.store.waiting():
            self.world.refuse(failure, int(count))
        else:
            self.world.store.fail_next(*[failure] * int(count))

    def do_skip_offsets(self, count: str) -> None:
        """Another writer takes offsets."""
        self.world.log.skip_offsets(0, int(count))

    # ------------------------------------------------------------ the process

    def do_crash(self, **settings: str) -> None:
        """Kill the coordinator and start another on the log."""
        self.world.forget_requests()
        self.world.restart(**settings_of(settings))
        self.world.say_states()

    def do_unload(self, epoch: str) -> None:
        """The log partition moves away."""
        self.world.coordinator.unload(0, int(epoch))
        self.world.deliver()

    def do_load(self, epoch: str) -> None:
        """The log partition moves here."""
        self.world.coordinator.load(0, int(epoch))
        self.world.deliver()

    def do_begin_load(self, epoch: str) -> None:
        """The log partition moves here, and loads in steps."""
        self.world.say("loading" if self.world.coordinator.begin_load(0, int(epoch)) else "nothing to load")
        self.world.deliver()

    def do_continue_load(self, count: str) -> None:
        """Load some records more."""
        self.world.say("served" if self.world.coordinator.continue_load(0, int(count)) else "loading")
        self.world.deliver()

    def do_close(self) -> None:
        """Shut the coordinator down."""
        self.world.coordinator.close()
        self.world.deliver()

    # ------------------------------------------------------------ looking inside

    def do_dump(self) -> None:
        """Show the members of each group, and who waits."""
        for name, group in sorted(self.world.groups().items()):
            if isinstance(group, ConsumerGroup):
                self.dump_consumer_group(group)
                continue
            self.world.say(
                words(
                    f"{name} {group.state.value} generation={group.generation_id}",
                    f"leader={group.leader}" if group.leader else None,
                    f"pending=[{' '.join(group.pending_members)}]" if group.pending_members else None,
                    f"unsynced=[{' '.join(group.pending_sync)}]" if group.pending_sync else None,
                )
            )
            for member in group.members.values():
                waiting = [kind for kind in ("join", "sync") if getattr(member, f"parked_{kind}") is not None]
                self.world.say(
                    words(
                        f"  {member.member_id}",
                        member.group_instance_id and f"({member.group_instance_id})",
                        f"has {text_of(member.assignment)}",
                        f"waits for {waiting[0]}" if waiting else None,
                    )
                )

    def do_dump_log(self) -> None:
        """Show the log."""
        for entry in self.world.store.read(0):
            self.world.say(f"{entry.offset}: {render(entry.record)}")


def settings_of(words_of_line: dict[str, str]) -> dict[str, int]:
    """Return settings with their values: numbers, or a policy of migration."""
    return {key: int(value) if value.isdigit() else MigrationPolicy(value) for key, value in words_of_line.items()}


def topics_to_commit(entries: tuple[str, ...], epoch: int, metadata: str) -> tuple[TopicToCommit, ...]:
    """Return the ``topic/partition=offset`` words as topics, each run of one topic together."""
    topics: list[tuple[str, list[OffsetToCommit]]] = []
    for entry in entries:
        match = OFFSET.fullmatch(entry)
        if match is None:
            if "/" in entry:
                raise ValueError(f"{entry!r} is not TOPIC/PARTITION=OFFSET")
            continue
        if not topics or topics[-1][0] != match[1]:
            topics.append((match[1], []))
        topics[-1][1].append(OffsetToCommit(int(match[2]), int(match[3]), epoch, metadata))
    return tuple(TopicToCommit(name, tuple(offsets)) for name, offsets in topics)


def topics_of(entries: tuple[str, ...], kind: type[T]) -> tuple[T, ...]:
    """Return the ``topic/partition`` words as topics."""
    topics: dict[str, list[int]] = {}
    for topic, index in map(partition_of, entries):
        topics.setdefault(topic, []).append(index)
    return tuple(kind(name, tuple(indexes)) for name, indexes in topics.items())


def partition_of(entry: str) -> TopicPartition:
    """Return the partition that a ``topic/partition`` word names."""
    match = PARTITION.fullmatch(entry)
    if match is None:
        raise ValueError(f"{entry!r} is not TOPIC/PARTITION")
    return TopicPartition(match[1], int(match[2]))
