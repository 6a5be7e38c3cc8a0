"""Scenarios of the exam: functions that each cause a failure while the program works."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from attrs import field, frozen

from groupcoord.testing.asserting.requests import ObservedConnection
from groupcoord.testing.exams.stage import GROUP_ID, TOPIC, Declared, Instance, Protocol, Stage
from groupcoord.testing.faults import Call

ALL_PROTOCOLS: tuple[Protocol, ...] = ("classic", "consumer", "share")
OF_PARTITIONS: tuple[Protocol, ...] = ("classic", "consumer")
OF_CLASSIC: tuple[Protocol, ...] = ("classic",)
OF_CONSUMER: tuple[Protocol, ...] = ("consumer",)
NOT_CLASSIC: tuple[Protocol, ...] = ("consumer", "share")
OF_RECORDS: tuple[Protocol, ...] = ("share",)
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
MOVED = "NOT_COORDINATOR"
AWAY = "COORDINATOR_NOT_AVAILABLE"
FOR_A_WHILE_S = 2.0
SLOW_MS = 1_500
TAKEN_OVER_S = 1.0
"""Time for other instances to take over; much shorter than the tolerance for late work."""
STILL_AT_IT_S = 5.0
TILL_CLIENTS_GIVE_UP_S = 8.0
"""Time in which a client may retry a commit by topic name, which would apply to a recreated topic."""


@frozen
class Scenario:
    """Failure that tests a program.

    Attributes:
        why: the cause in production, as a sentence.
        declared: the guarantees that it can test; empty for all.
        needs_login: it applies only to clients that log in.
        settings: server settings by Kafka's keys.
    """

    name: str
    why: str
    happen: Callable[[Stage], None]
    protocols: Collection[Protocol] = ALL_PROTOCOLS
    declared: Collection[Declared] = ()
    needs_login: bool = False
    settings: Mapping[str, str | int | float] = field(factory=dict)


SCENARIOS: list[Scenario] = []
BASELINE = "quiet"


Happen = Callable[[Stage], None]


def scenario(why: str, **options: Any) -> Callable[[Happen], Happen]:
    def add(happen: Happen) -> Happen:
        SCENARIOS.append(Scenario(happen.__name__.replace("_", "-"), why, happen, **options))
        return happen

    return add


# ---------------------------------------------------------------- processes


@scenario("No failure: the baseline of the other scenarios.")
def quiet(stage: Stage) -> None:
    stage.pause(FOR_A_WHILE_S)


@scenario("A new version is rolled out: the instances are stopped and started one after the other.")
def rolling_restart(stage: Stage) -> None:
    """Stop each instance with SIGTERM and start it again."""
    for instance in stage.running:
        stage.end(instance)
        stage.start(instance)
        stage.wait(stage.is_at_rest, stage.plan.within_s)


@scenario("The kernel kills a process for lack of memory, or a machine fails.")
def killed(stage: Stage) -> None:
    instance = stage.first
    instance.kill()
    stage.forget_member(instance)
    stage.wait(stage.is_at_rest, stage.plan.within_s)
    stage.start(instance)


@scenario("A long garbage collection, swapping, or a debugger: a process pauses for longer than its session timeout.")
def frozen_past_its_session(stage: Stage) -> None:
    """Send SIGSTOP, and SIGCONT after others have taken over from the expired session."""
    instance = stage.first
    instance.freeze()
    stage.forget_member(instance)
    stage.pause(FOR_A_WHILE_S)
    instance.thaw()


@scenario("Load rises and falls: an instance is added and removed.")
def scale_out_and_in(stage: Stage) -> None:
    stage.start(stage.spare)
    stage.wait(stage.is_at_rest, stage.plan.within_s)
    stage.pause(1.0)
    stage.end(stage.spare)


# ---------------------------------------------------------------- sessions


@scenario("A network loses heartbeats: the session of a working process expires.")
def session_ends(stage: Stage) -> None:
    stage.forget_member(stage.first)


@scenario(
    "The session expires while a commit is in flight: the commit fails, and its sender is no longer a member.",
    protocols=OF_PARTITIONS,
)
def session_ends_during_a_commit(stage: Stage) -> None:
    instance = stage.first
    with stage.server.hold("OffsetCommit", where=partial(_is_from, instance), times=1) as held:
        stage.meet(held)
        stage.forget_member(instance)


def _is_from(instance: Instance, call: Call) -> bool:
    return isinstance(call.connection, ObservedConnection) and call.connection.listener == instance.name.upper()


@scenario("A database is slow, and a batch exceeds max.poll.interval.ms: the member is removed while it works.")
def slow_processing(stage: Stage) -> None:
    instance = stage.first
    with stage.server.hold("Produce", where=partial(_is_from, instance)) as held:
        stage.meet(held)
        stage.forget_member(instance)
        if stage.plan.protocol == "share":
            stage.server.share(GROUP_ID).expire_locks()
        stage.pause(TAKEN_OVER_S)


@scenario(
    "Processing exceeds the acquisition lock, and the member expires: its records are delivered to others.",
    protocols=OF_RECORDS,
)
def locks_run_out(stage: Stage) -> None:
    for _ in range(3):
        stage.wait(stage.server.share(GROUP_ID).acquired, stage.plan.within_s)
        stage.forget_member(stage.first)
        stage.server.share(GROUP_ID).expire_locks()
        stage.trace.note("", "the locks of all records are over")
        stage.pause(1.0)
    stage.pause(STILL_AT_IT_S)


# ---------------------------------------------------------------- offsets


AGAIN: tuple[Declared, ...] = ("at-least-once", "nothing")
"""Guarantees under which records may be processed again."""


def _while_all_are_away(change: Callable[[], None], stage: Stage) -> None:
    instances = stage.running
    for instance in instances:
        stage.end(instance)
    change()
    for instance in instances:
        stage.start(instance)


@scenario(
    "A group is stopped for longer than offsets are retained, and starts without them.",
    protocols=OF_PARTITIONS,
    declared=AGAIN,
)
def offsets_expire(stage: Stage) -> None:
    _while_all_are_away(stage.begin_anew, stage)


@scenario(
    "Records were processed wrongly, and an administrator resets the offsets to process them again.",
    protocols=OF_PARTITIONS,
    declared=AGAIN,
)
def offsets_are_reset(stage: Stage) -> None:
    _while_all_are_away(partial(stage.go_back, 0.5), stage)


# ---------------------------------------------------------------- transactions


ONCE: tuple[Declared, ...] = ("exactly-once",)


@scenario("Another producer uses the transactional id, or a transaction timed out: EndTxn fails.", declared=ONCE)
def transaction_is_fenced(stage: Stage) -> None:
    """Fail EndTxn with PRODUCER_FENCED; the transaction stays open until its id is initialized again."""
    with stage.server.fail_next("EndTxn", "PRODUCER_FENCED") as fault:
        stage.meet(fault)


@scenario("The transaction coordinator moves between the last record of a transaction and EndTxn.", declared=ONCE)
def transaction_coordinator_moves(stage: Stage) -> None:
    with stage.server.fail_next("EndTxn", MOVED) as fault:
        stage.meet(fault)
    with stage.server.fail_next("EndTxn", MOVED, times=None) as fault:
        stage.meet(fault)
        stage.pause(FOR_A_WHILE_S)


# ---------------------------------------------------------------- responses


def _errors(api: str, lasting: tuple[str, ...], single: tuple[str, ...], stage: Stage) -> None:
    for code in (*lasting, *single):
        _settle(api, stage)
        with stage.server.fail_next(api, code) as fault:
            _provoke(api, stage)
            stage.meet(fault, within_s=5.0)
    for code in lasting:
        _settle(api, stage)
        with stage.server.fail_next(api, code, times=None) as fault:
            _provoke(api, stage)
            stage.meet(fault, within_s=5.0)
            stage.pause(FOR_A_WHILE_S / len(lasting))


OF_REBALANCES = ("JoinGroup", "SyncGroup", "OffsetFetch", "LeaveGroup")
"""Requests that members of a stable group do not send."""


def _settle(api: str, stage: Stage) -> None:
    if api in OF_REBALANCES:
        stage.wait(stage.is_at_rest, stage.plan.within_s)


def _provoke(api: str, stage: Stage) -> None:
    if api == "OffsetFetch":
        stage.forget_member(stage.first)
    elif api == "LeaveGroup":
        stage.end(stage.first)
        stage.start(stage.first)
    elif api in OF_REBALANCES:
        try:
            stage.server.begin_rebalance(GROUP_ID)
        except LookupError:
            return  # rebalances already
    elif api == "FindCoordinator":
        stage.server.drop_connections()


_UNAVAILABLE = (MOVED, LOADING, AWAY)
_OF_LEADERS = ("NOT_LEADER_OR_FOLLOWER", "SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH")

_ERRORS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], Collection[Protocol]], ...] = (
    ("JoinGroup", _UNAVAILABLE, ("REBALANCE_IN_PROGRESS",), OF_CLASSIC),
    ("SyncGroup", _UNAVAILABLE, ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"), OF_CLASSIC),
    ("Heartbeat", _UNAVAILABLE, ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"), OF_CLASSIC),
    ("LeaveGroup", (), _UNAVAILABLE, OF_CLASSIC),
    ("ConsumerGroupHeartbeat", _UNAVAILABLE, ("FENCED_MEMBER_EPOCH",), OF_CONSUMER),
    ("OffsetCommit", (*_UNAVAILABLE, "REQUEST_TIMED_OUT"), ("REBALANCE_IN_PROGRESS",), OF_PARTITIONS),
    ("OffsetFetch", (LOADING, MOVED, "UNSTABLE_OFFSET_COMMIT"), (), OF_PARTITIONS),
    ("ShareGroupHeartbeat", _UNAVAILABLE, ("FENCED_MEMBER_EPOCH",), OF_RECORDS),
    ("ShareFetch", _OF_LEADERS, (), OF_RECORDS),
    ("ShareAcknowledge", _OF_LEADERS, (), OF_RECORDS),
    ("FindCoordinator", (AWAY, LOADING), (), ALL_PROTOCOLS),
)
"""By API, the errors that Kafka may return to a healthy member: repeatedly, or once, since the member reacts."""
SCENARIOS += [
    Scenario(
        f"errors-of-{api}",
        f"A broker that lost a session or its leadership answers {api} with an error, once or repeatedly."
        if lasting is _OF_LEADERS
        else f"A coordinator that loads, moves or is unavailable answers {api} with an error, once or for a while.",
        partial(_errors, api, lasting, single),
        protocols,
    )
    for api, lasting, single, protocols in _ERRORS
]


def _heartbeat(stage: Stage) -> str:
    return {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat", "share": "ShareGroupHeartbeat"}[
        stage.plan.protocol
    ]


def _about_records(stage: Stage) -> tuple[str, str]:
    return ("ShareFetch", "ShareAcknowledge") if stage.plan.protocol == "share" else ("Fetch", "OffsetCommit")


@scenario("A connection breaks after a commit was written, before its response arrives.")
def lost_answers_to_commits(stage: Stage) -> None:
    api = "ShareAcknowledge" if stage.plan.protocol == "share" else "OffsetCommit"
    with stage.server.disconnect_next(api, times=3, after=True) as fault:
        stage.meet(fault, 3)


@scenario("A connection breaks after a join or heartbeat took effect, before its response arrives.")
def lost_answers_to_members(stage: Stage) -> None:
    for api in ("JoinGroup", "SyncGroup") if stage.plan.protocol == "classic" else (_heartbeat(stage),):
        _settle(api, stage)
        with stage.server.disconnect_next(api, after=True) as fault:
            _provoke(api, stage)
            stage.meet(fault)


@scenario("A broker is busy: every response is slow.")
def slow_broker(stage: Stage) -> None:
    delays = [stage.server.delay(api, SLOW_MS) for api in (*_about_records(stage), _heartbeat(stage))]
    stage.pause(3 * SLOW_MS / 1_000)
    for delay in delays:
        delay.remove()


@scenario("A broker pauses for longer than the session timeout, and then continues.")
def stalled_broker(stage: Stage) -> None:
    holds = [stage.server.hold(api) for api in ("Produce", *_about_records(stage), _heartbeat(stage))]
    stage.pause(FOR_A_WHILE_S)
    stage.forget_member(stage.first)
    for hold in holds:
        hold.remove()


# ---------------------------------------------------------------- brokers


@scenario("A broker is restarted, and another one coordinates the group.")
def coordinator_moves(stage: Stage) -> None:
    for _ in range(2):
        stage.server.move_coordinator(GROUP_ID)
        stage.pause(1.0)


def _moves_during(api: str, stage: Stage) -> None:
    _settle(api, stage)
    with stage.server.hold(api, times=1) as held:
        _provoke(api, stage)
        if stage.meet(held):
            stage.server.move_coordinator(GROUP_ID)


SCENARIOS += [
    Scenario(
        f"coordinator-moves-during-{api}",
        f"The coordinator moves between a {api} and its response.",
        partial(_moves_during, api),
        protocols,
    )
    for api, protocols in (
        ("JoinGroup", ("classic",)),
        ("SyncGroup", ("classic",)),
        ("ConsumerGroupHeartbeat", ("consumer",)),
        ("ShareGroupHeartbeat", OF_RECORDS),
        ("OffsetCommit", OF_PARTITIONS),
    )
]


@scenario("The coordinator moves while an instance stops, so the instance must find the new one to leave.")
def coordinator_moves_during_leave(stage: Stage) -> None:
    stage.server.move_coordinator(GROUP_ID)
    stage.end(stage.first)
    stage.start(stage.first)


@scenario("A broker is restarted, and others lead its partitions.")
def leaders_move(stage: Stage) -> None:
    for index in range(stage.partition_count):
        stage.server.move_leader(TOPIC, index)
    stage.pause(1.0)


@scenario("A broker crashes and restarts.")
def broker_dies(stage: Stage) -> None:
    node = stage.server.coordinator(GROUP_ID)
    stage.server.crash(node=node)
    stage.pause(FOR_A_WHILE_S)
    stage.server.restart(node=node)


@scenario("A new version of Kafka is rolled out: one broker after the other is restarted.")
def brokers_are_restarted(stage: Stage) -> None:
    for node in stage.server.nodes:
        stage.server.crash(node=node)
        stage.pause(1.0)
        stage.server.restart(node=node)
        stage.wait(stage.is_at_rest, stage.plan.within_s)


@scenario("A whole cluster is unavailable for a while: a power failure, or a network partition.")
def all_brokers_die(stage: Stage) -> None:
    stage.server.crash()
    stage.pause(FOR_A_WHILE_S)
    stage.server.restart()


@scenario("All connections break at once: a load balancer or firewall restarts.")
def connections_break(stage: Stage) -> None:
    stage.server.drop_connections()


LOGIN_LIFE_MS = 2_000


@scenario(
    "Log-ins expire (connections.max.reauth.ms): clients that do not authenticate again are disconnected.",
    needs_login=True,
    settings={"connections.max.reauth.ms": LOGIN_LIFE_MS},
)
def login_expires(stage: Stage) -> None:
    stage.pause(4 * LOGIN_LIFE_MS / 1_000)


# ---------------------------------------------------------------- topics


@scenario("A topic gets more partitions.", protocols=NOT_CLASSIC)
def partitions_are_added(stage: Stage) -> None:
    stage.server.create_partitions(TOPIC, stage.partition_count + 1)
    stage.counts.append(0)
    stage.pause(1.0)


@scenario(
    "A topic is deleted and created again: same name, new offsets.",
    protocols=OF_PARTITIONS,
    declared=AGAIN,
)
def topic_is_made_again(stage: Stage) -> None:
    """Delete the topic and its offsets; create it again when clients have given up."""
    stage.delete_topic()
    stage.pause(TILL_CLIENTS_GIVE_UP_S)
    stage.create_topic()
    stage.pause(FOR_A_WHILE_S)


@scenario("A producer writes an unreadable record.")
def poison_record(stage: Stage) -> None:
    for index in range(stage.partition_count):
        stage.produce(index, value="\ufffd is no number")
    stage.pause(1.0)
