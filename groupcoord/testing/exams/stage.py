"""Stage of an exam: the server, the instances of the program, and the stream of numbered records."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import IO, Literal, get_args
from uuid import UUID
from weakref import WeakSet

from attrs import define, field, frozen

from groupcoord.conformance.sockets import last_words, placeholders_in
from groupcoord.core.messages import OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.errors import GroupcoordError
from groupcoord.testing.asserting.groups import GroupDescription
from groupcoord.testing.exams.trace import Breach, Law, Trace
from groupcoord.testing.faults.server_faults import Fault
from groupcoord.testing.server import ServerThread

PLACEHOLDERS = ("bootstrap", "group", "topic", "output", "instance", "protocol")
LOGIN_PLACEHOLDERS = ("security_protocol", "ca", "mechanism", "user", "password")
"""Placeholders for TLS and SASL; empty without them."""
ENVIRONMENT_PREFIX = "EXAM_"
RESTARTS_MAX = 10
RESTART_AFTER_S = 0.5
END_WITHIN_S = 20.0


STARTED_WITHIN_S = 5.0
_STARTING = Lock()
_LIVES: WeakSet[Instance] = WeakSet()
"""Instances started by this process, guarded by :data:`_STARTING`."""


def kill_all() -> None:
    """Kill all instances of all exams of this process and prevent further starts."""
    _STARTING.acquire(timeout=STARTED_WITHIN_S)
    for instance in list(_LIVES):
        instance.send_kill()


class CommandError(GroupcoordError, ValueError):
    """The command cannot be started or has an unknown placeholder."""


def check_command(command: Sequence[str]) -> None:
    if not command:
        raise CommandError("no command given; append -- COMMAND…")
    for word in command:
        try:
            placeholders_in(word, PLACEHOLDERS + LOGIN_PLACEHOLDERS)
        except ValueError as error:
            raise CommandError(str(error)) from None


@define(eq=False)
class Instance:
    """Process of the program; it is restarted when it ends by itself, as a supervisor does."""

    name: str
    _words: Sequence[str]
    _environment: Mapping[str, str]
    _log_path: Path
    _note: Callable[[str, str], object]
    is_wanted: bool = False
    ends: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _again_s: float = 0.0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.is_wanted = True
        with self._log_path.open("ab") as log, _STARTING:
            self._process = self._launched(log)
            _LIVES.add(self)
        self._note(self.name, "starts")

    def _launched(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"can't start {shlex.join(self._words)}: {error}") from None

    def tend(self) -> None:
        """Restart the process shortly after it ended by itself, up to a limit."""
        if not self.is_wanted or self.is_running:
            return
        now_s = time.monotonic()
        if not self._again_s:
            assert self._process is not None
            self.ends += 1
            self._note(self.name, f"exits with status {self._process.returncode}")
            self._again_s = now_s + RESTART_AFTER_S
        elif now_s >= self._again_s and self.ends <= RESTARTS_MAX:
            self._again_s = 0.0
            self.start()

    def terminate(self) -> bool:
        """Send SIGTERM and wait; return False if SIGKILL was necessary."""
        self.is_wanted = False
        if not self.is_running:
            return True
        assert self._process is not None
        self._note(self.name, "gets SIGTERM")
        self._signal(signal.SIGTERM)
        try:
            status = self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._note(self.name, f"has not ended after {END_WITHIN_S:g} s, and is killed")
            self.kill()
            return False
        self._note(self.name, f"ends with status {status}")
        return True

    def kill(self) -> None:
        self.is_wanted = False
        if self._process is not None and self.is_running:
            self._note(self.name, "gets SIGKILL")
            self._signal(signal.SIGKILL)
            self._process.wait()

    def send_kill(self) -> None:
        if self.is_running:
            self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        self._note(self.name, "gets SIGSTOP")
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._note(self.name, "gets SIGCONT")
        self._signal(signal.SIGCONT)

    def last_words(self) -> str:
        return last_words(self._log_path)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)


Protocol = Literal["classic", "consumer", "share"]
Declared = Literal["at-least-once", "exactly-once", "nothing"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

GROUP_ID = "exam"
TOPIC = "exam-input"
OUTPUT = "exam-output"
PARTITIONS = 4
SHARE_SETTINGS: Mapping[str, str | int] = {
    "group.share.initialize.retry.interval.ms": 500,
    "group.share.record.lock.duration.ms": 5_000,
    "group.share.min.record.lock.duration.ms": 1_000,
}
"""Settings shorter than Kafka's defaults."""
HEARTBEAT_SETTINGS: Mapping[str, int] = {"group.consumer.heartbeat.interval.ms": 2_000}
"""librdkafka treats a response as lost after this time and does not recover; see docs/client-bugs.md."""
RETENTION_SETTINGS: Mapping[str, int] = {
    "offsets.retention.minutes": 60,
    "offsets.retention.check.interval.ms": 60_000,
}
RETENTION_MS = 62 * 60_000
"""Time after which offsets of an empty group expire, and records of its topic do not."""
USER, PASSWORD = "exam-user", "exam-password"
SPARE_INSTANCES = 1
FROM_THE_FIRST = {"share.auto.offset.reset": "earliest"}
LOOK_AGAIN_S = 0.05
FEED_EVERY_S = 0.1
JOIN_WITHIN_S = 90.0
COMMIT_SHARE = 2 / 3
"""Share of ``within_s`` after which some processed records must be committed."""
SEEN_WITHIN_S = 3.0
"""Time in which a busy server reads the last requests of an ended process."""


def _as_command(command: Iterable[str]) -> tuple[str, ...]:
    return tuple(command)


@frozen
class Plan:
    """Program to examine, and how.

    Attributes:
        command: command of an instance with the placeholders ``{bootstrap}``, ``{group}``, ``{topic}``, ``{output}``,
            ``{instance}`` and ``{protocol}``, and for a log-in ``{security_protocol}``, ``{ca}``, ``{mechanism}``,
            ``{user}`` and ``{password}``.
        instances: number of instances.
        protocol: protocol of the group.
        declared: guarantee for records in the output; ``nothing`` without an output.
        within_s: seconds within which the program must catch up after a fault.
        settings: further server settings by Kafka's keys.
        security_protocol: protocol of the connection; TLS certificates are created (extra ``login``).
        mechanism: SASL mechanism, if clients log in.

    Raises:
        CommandError: the command is invalid.
        ValueError: another value is invalid.
    """

    command: Sequence[str] = field(converter=_as_command)
    instances: int = 3
    protocol: Protocol = "classic"
    declared: Declared = "at-least-once"
    within_s: float = 30.0
    settings: Mapping[str, str | int | float] = field(factory=dict)
    security_protocol: SecurityProtocol = "PLAINTEXT"
    mechanism: Mechanism = "SCRAM-SHA-256"

    def __attrs_post_init__(self) -> None:
        check_command(self.command)
        for name, value, known in (
            ("protocol", self.protocol, get_args(Protocol)),
            ("declared", self.declared, get_args(Declared)),
            ("security_protocol", self.security_protocol, get_args(SecurityProtocol)),
            ("mechanism", self.mechanism, get_args(Mechanism)),
        ):
            if value not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")
        if not 2 <= self.instances <= PARTITIONS:
            raise ValueError(f"instances must be from 2 to {PARTITIONS}, not {self.instances}")
        if self.protocol == "share" and self.declared == "exactly-once":
            raise ValueError("share groups have no transactions: declare at-least-once, or nothing")
        if self.within_s <= 0:
            raise ValueError(f"within_s must be more than 0, not {self.within_s}")

    @property
    def logs_in(self) -> bool:
        """True if clients authenticate."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        """True if connections use TLS."""
        return self.security_protocol.endswith("SSL")


class Stage:
    """Server with three nodes, instances with a listener each, and records for them; the last instance is spare."""

    def __init__(self, plan: Plan, folder: Path, settings: Mapping[str, str | int | float]) -> None:
        self.plan = plan
        names = [f"worker{number}" for number in range(1, plan.instances + SPARE_INSTANCES + 1)]
        listeners = {
            "listeners": ",".join(f"{name.upper()}://127.0.0.1:0" for name in names),
            "listener.security.protocol.map": ",".join(f"{name.upper()}:{plan.security_protocol}" for name in names),
        }
        login = {"sasl.enabled.mechanisms": plan.mechanism} if plan.logs_in else {}
        self.server = ServerThread(
            topics={TOPIC: PARTITIONS, OUTPUT: 1},
            nodes=3,
            settings={
                **listeners,
                **login,
                **SHARE_SETTINGS,
                **HEARTBEAT_SETTINGS,
                **RETENTION_SETTINGS,
                "auto.create.topics.enable": "false",  # clients would recreate deleted topics
                **settings,
                **plan.settings,
            },
            users={USER: PASSWORD} if plan.logs_in else None,
            tls=plan.uses_tls,
        )
        self.trace = Trace(GROUP_ID, TOPIC, OUTPUT if plan.declared != "nothing" else None, self._topic_name)
        self.breaches: dict[Law, list[Breach]] = {Law.LEAVING: []}
        self.instances: dict[str, Instance] = {}
        self._left: dict[str, set[str]] = defaultdict(set)
        self._names, self._folder = names, folder
        self._topic_names: dict[UUID, str | None] = {}
        self._feeding = threading.Event()
        self._is_over = threading.Event()
        self._feeder = threading.Thread(target=self._feed, name="exam-feed", daemon=True)
        self._round, self._writing = threading.Lock(), threading.Lock()
        self.counts = [0] * PARTITIONS

    def _topic_name(self, topic_id: UUID) -> str | None:
        with suppress(RuntimeError):  # the server stops and answers its last requests
            self._topic_names[topic_id] = self.server.run(lambda broker: broker.topics.topic_name(topic_id))
        return self._topic_names.get(topic_id)

    def __enter__(self) -> Stage:
        self.server.start()
        self.server.watch(self.trace.watch)
        self.server.run(lambda broker: broker.group_configs.replace({GROUP_ID: FROM_THE_FIRST}))
        login = self._login()
        for name in self._names:
            values = {
                "bootstrap": self.server.bootstrap_of(name.upper()),
                "group": GROUP_ID,
                "topic": TOPIC,
                "output": OUTPUT,
                "instance": name,
                "protocol": self.plan.protocol,
                **login,
            }
            log_path = self._folder / f"{name}.log"
            words = [word.format(**values) for word in self.plan.command]
            environment = {ENVIRONMENT_PREFIX + key.upper(): value for key, value in values.items()}
            self.instances[name] = Instance(name, words, environment, log_path, self.trace.note)
        self._feeder.start()
        return self

    def _login(self) -> dict[str, str]:
        login = dict.fromkeys(LOGIN_PLACEHOLDERS, "")
        login["security_protocol"] = self.plan.security_protocol
        if self.server.certificates is not None:
            login["ca"] = str(self.server.certificates.write_to(self._folder) / "authority.pem")
        if self.plan.logs_in:
            login |= {"mechanism": self.plan.mechanism, "user": USER, "password": PASSWORD}
        return login

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._feeder.join()
        for instance in self.instances.values():
            instance.kill()
        self.server.__exit__(kind, error, traceback)

    # ------------------------------------------------------------ instances

    @property
    def first(self) -> Instance:
        return next(iter(self.instances.values()))

    @property
    def spare(self) -> Instance:
        return self.instances[self._names[-1]]

    @property
    def running(self) -> list[Instance]:
        return [instance for instance in self.instances.values() if instance.is_wanted]

    def start(self, instance: Instance) -> None:
        self.trace.forget(instance.name)
        instance.start()

    def start_all(self) -> bool:
        """Start all but the spare and produce records; return whether all joined and each partition has commits."""
        for name in self._names[:-SPARE_INSTANCES]:
            self.start(self.instances[name])
        self.feed()
        self.wait(lambda: self._works() or self.uncommitted() or self._has_given_up(), JOIN_WITHIN_S)
        return self._holds(self._works)

    def _works(self) -> bool:
        return self.is_at_rest() and self.has_begun()

    def _has_given_up(self) -> bool:
        return any(instance.is_wanted and instance.ends > RESTARTS_MAX for instance in self.running)

    def end(self, instance: Instance) -> None:
        """Stop an instance with SIGTERM; it must leave its group, unless it is static or the group is rebalancing."""
        seat = self.trace.seats[instance.name]
        was_member = seat.has_joined and not seat.is_static and self._holds(self.is_at_rest)
        ended = instance.terminate()
        if was_member and not self.wait(lambda: seat.has_left, SEEN_WITHIN_S if ended else 0.0):
            text = "ends without leaving the group" if ended else "does not end when it gets SIGTERM"
            self.breaches[Law.LEAVING].append(Breach(self.trace.now_s, instance.name, text))
        self.forget_member(instance)

    def forget_member(self, instance: Instance) -> None:
        self._forget(instance, self.trace.seats[instance.name].member_ids)

    def _forget(self, instance: Instance, member_ids: set[str]) -> None:
        for member in self.server.members(GROUP_ID):
            if member.member_id in member_ids:
                self.expire(instance, member.member_id)

    def _look_after(self, instance: Instance) -> None:
        """Restart an instance that ended by itself and expire the sessions that it left."""
        left, seat = self._left[instance.name], self.trace.seats[instance.name]
        if instance.is_wanted and not instance.is_running:
            if not seat.is_static:  # a static member is replaced by its successor
                left |= seat.member_ids
            self.trace.forget(instance.name)
        instance.tend()
        if left:
            self._holds(partial(self._forget, instance, left))
            self._holds(lambda: left.intersection_update(member.member_id for member in self.server.members(GROUP_ID)))

    def expire(self, instance: Instance, member_id: str) -> None:
        try:
            self.server.expire_member(GROUP_ID, member_id)
        except LookupError:
            return  # a pending join keeps the member alive in Kafka
        self.trace.note("", f"the session of {instance.name} is over")

    # ------------------------------------------------------------ offsets

    def begin_anew(self) -> None:
        """Advance time until the committed offsets of the empty group expire."""
        self.server.clock.advance(RETENTION_MS)
        self.trace.set_back("its offsets have expired", {})

    def go_back(self, share: float) -> None:
        """Reset the group's offsets to a share of its progress, as an administrator."""
        offsets = {index: int(place * share) for index, place in self.places().items()}
        self.commit(offsets)
        self.trace.set_back("an administrator has reset its offsets", offsets)

    def commit(self, offsets: Mapping[int, int]) -> None:
        places = tuple(OffsetToCommit(index, offset) for index, offset in offsets.items())
        request = OffsetCommit(GROUP_ID, (TopicToCommit(TOPIC, places),))
        self.server.control(lambda control: control.coordinating(GROUP_ID).coordinator.call(request))

    # ------------------------------------------------------------ records

    def feed(self) -> None:
        self._feeding.set()

    def stop_feeding(self) -> None:
        with self._round:
            self._feeding.clear()

    def _feed(self) -> None:
        while not self._is_over.wait(FEED_EVERY_S):
            with self._round:
                for index in range(len(self.counts) if self._feeding.is_set() else 0):
                    self.produce(index)

    def produce(self, index: int, value: str = "") -> None:
        """Write the next record of a partition with its number, or with another value."""
        with self._writing:
            try:
                self.server.produce(TOPIC, [value or f"{index}-{self.counts[index]}"], partition=index)
            except (RuntimeError, LookupError):
                return
            if value:
                self.trace.excuse(index, self.counts[index])
            self.counts[index] += 1

    def delete_topic(self) -> None:
        with self._writing:
            self.server.delete_topic(TOPIC)
            self.counts.clear()
        self.trace.note("", f"{TOPIC} is deleted")

    def create_topic(self) -> None:
        with self._writing:
            self.trace.begin_again(f"{TOPIC} is made again")
            self.server.create_topics({TOPIC: PARTITIONS})
            self.counts.extend([0] * PARTITIONS)

    # ------------------------------------------------------------ how things stand

    def wait(self, condition: Callable[[], object], within_s: float) -> bool:
        """Wait for a condition while restarting instances; return whether it held."""
        deadline_s = time.monotonic() + within_s
        while True:
            for instance in list(self.instances.values()):
                self._look_after(instance)
            if self._holds(condition):
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(LOOK_AGAIN_S)

    def pause(self, duration_s: float) -> None:
        self.wait(lambda: False, duration_s)

    def meet(self, fault: Fault, count: int = 1, within_s: float = 10.0) -> bool:
        return self.wait(lambda: fault.count >= count, within_s)

    @staticmethod
    def _holds(condition: Callable[[], object]) -> bool:
        try:
            return bool(condition())
        except RuntimeError:
            return False  # the server is down

    def group(self) -> GroupDescription | None:
        return self.server.group(GROUP_ID)

    def is_at_rest(self) -> bool:
        """True if all wanted instances are members and each partition has an owner."""
        group = self.group()
        if group is None or group.state != "Stable" or len(group.members) != len(self.running):
            return False
        owned = [index for member in group.members for topic, index in member.assignment if topic == TOPIC]
        if self.plan.protocol == "share":
            return set(owned) == set(range(self.partition_count))  # share members may own a partition together
        return sorted(owned) == list(range(self.partition_count))

    @property
    def partition_count(self) -> int:
        return self.server.topics[TOPIC].partition_count

    def has_begun(self) -> bool:
        return all(self.places().get(index) for index in range(PARTITIONS))

    def uncommitted(self) -> list[int]:
        """Return processed partitions without commits, if one is overdue."""
        places = self.places()
        since_s = {index: at_s for index, at_s in self.trace.first_work_s.items() if not places.get(index)}
        if not since_s or self.trace.now_s - min(since_s.values()) < COMMIT_SHARE * self.plan.within_s:
            return []
        return sorted(since_s)

    def is_caught_up(self) -> bool:
        places = self.places()
        return all(places.get(index, 0) >= end for index, end in enumerate(self.counts))

    def places(self) -> dict[int, int]:
        """Return the progress by partition: the committed offset, or in a share group the first one not finished."""
        if self.plan.protocol == "share":
            done = self.server.share(GROUP_ID).progress()
            return {each.partition: each.start_offset for each in done if each.topic == TOPIC}
        committed = self.server.committed(GROUP_ID)
        return {place.partition: offset for place, offset in committed.items() if place.topic == TOPIC}

    def seeking(self) -> list[str]:
        return [one.name for one in self.running if one.is_running and self.trace.seats[one.name].seeks]

    def fenced(self) -> list[str]:
        return [one.name for one in self.running if one.is_running and self.trace.seats[one.name].fenced_s is not None]
