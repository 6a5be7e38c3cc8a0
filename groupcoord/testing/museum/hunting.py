"""Searches for a planted bug: exploration, the state machine, random lives of a member, simulated fleets.

``python -m groupcoord.testing.museum.hunting TASK ID SHIPPING|PLANTED …`` runs one task and pickles its result.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from itertools import count
from random import Random
from time import process_time
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from attrs import evolve

from groupcoord.errors import ErrorCode, InvariantError
from groupcoord.laws import LawBrokenError, check_reaction, require
from groupcoord.member import (
    Assignment,
    AssignmentNeeded,
    Cluster,
    Member,
    MemberConfig,
    MemberState,
    MetadataNeeded,
    Output,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Send,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.messages import (
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    Node,
    SyncGroup,
    SyncGroupResponse,
)
from groupcoord.testing.museum.exhibit import Exhibit, Hunt, exhibit, plant

if TYPE_CHECKING:
    from groupcoord.testing.exploring.stage import Story


START_MS = 1_000_000
GROUP, TOPIC, PARTITIONS = "group", "topic", 4
NODE = Node(1, "broker", 9092)
USUAL = (
    *(ErrorCode.NONE,) * 8,
    *(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID),
    *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED),
)
OTHER = JoinedMember("other", None, encode_subscription(Subscription((TOPIC,))))


class MemberLife:
    """Member of a classic group with random responses."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        config = MemberConfig(
            group_id=GROUP,
            partition_assignment_strategy=random.choice([("range",), ("cooperative-sticky",), ("range", "sticky")]),
            enable_auto_commit=random.random() < 0.5,
            group_instance_id=random.choice([None, "instance"]),
            max_poll_interval_ms=random.choice([2_000, 60_000]),
            request_timeout_ms=random.choice([500, 30_000]),
        )
        waits = random.random() < 0.3
        self.now_ms = START_MS
        self.member = Member(config, now_ms=START_MS, random=lambda: 0.5, waits_for_listener=waits)
        self.sent: list[Send] = []
        self.events: list[Output] = []
        self.owned: set[TopicPartition] = set()
        self._generation_id = 0
        self._sent_when_failed: int | None = None
        self._seen = 0
        self._waiting: list[Send] = []
        self.member.subscribe([TOPIC], self.now_ms)

    def live(self, steps: int) -> None:
        """Run random steps, then recover and close."""
        member = self.member
        for _ in range(steps):
            self.step(is_kind=False)
        self.wait(100_000)
        for _ in range(steps):
            self.step(is_kind=True)
            if member.state is MemberState.FAILED:  # after invalid responses
                member.recover(self.now_ms)
            member.poll(self.now_ms, 10_000)
            if member.is_steady and member.state is MemberState.STABLE:
                break
        member.poll(self.now_ms, 0)
        member.listener_returned(self.now_ms)
        require(member.state is MemberState.STABLE, "all is well, and the member is {}", member.state)
        self.check()
        require(self.owned == set(member.assignment), "it sent {} and has {}", self.owned, member.assignment)
        member.close(self.now_ms, timeout_ms=1_000)
        member.listener_returned(self.now_ms)
        self.wait(1_000)
        require(member.state is MemberState.CLOSED, "it was closed, and is {}", member.state)
        self._follow()
        require(not self.owned, "it is closed, and has {}", self.owned)

    # ------------------------------------------------------------ what happens

    def step(self, *, is_kind: bool) -> None:
        """Run one step and check the laws; ``is_kind`` means no faults and a polling application."""
        random = self._random
        self._look()
        self._waiting = [send for send in self.sent if send.request_id in self.member.in_flight]
        choice = random.random()
        if self._waiting and choice < 0.55:
            send = random.choice(self._waiting)
            self.sent.remove(send)
            self._answer(send, ErrorCode.NONE if is_kind else random.choice(USUAL))
        elif choice < 0.75:
            self.wait(random.choice([1, 50, 500, 3_000]))
        elif is_kind or choice < 0.85:
            self.member.listener_returned(self.now_ms)
            self.member.poll(self.now_ms, random.choice([0, 100, 10_000]))
        else:
            self._disturb()
        self.check()

    def wait(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while True:
            self._look()
            deadline_ms = self.member.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.member.tick(self.now_ms)
        self.now_ms = end_ms
        self._look()

    def _look(self) -> None:
        while outputs := self.member.take_outputs():
            for output in outputs:
                if isinstance(output, Send):
                    self.sent.append(output)
                elif isinstance(output, MetadataNeeded):
                    self.member.update_metadata(Cluster.of({TOPIC: PARTITIONS}), self.now_ms)
                elif isinstance(output, AssignmentNeeded):
                    self.member.assignment_computed(output.compute(), self.now_ms)
                else:
                    self.events.append(output)

    def _answer(self, send: Send, code: ErrorCode) -> None:
        member, response = self.member, self._response(send.request, code)
        before = member.generation_id, member.member_id
        member.receive(send.request_id, response, self.now_ms)
        goes_on = member.state not in (MemberState.FAILED, MemberState.CLOSED)
        after = (member.generation_id, member.member_id) if goes_on else None
        check_reaction(send.request, response, before, after)

    def _response(self, request: Any, code: ErrorCode) -> Any:
        random = self._random
        match request:
            case FindCoordinator():
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE if code is not ErrorCode.NONE else code
                return FindCoordinatorResponse((FoundCoordinator(GROUP, NODE, error),))
            case JoinGroup():
                return self._joined(request, code)
            case SyncGroup():
                chosen = random.sample(range(PARTITIONS), random.randrange(PARTITIONS + 1))
                assignment = Assignment(tuple(TopicPartition(TOPIC, index) for index in chosen))
                return SyncGroupResponse(code, "consumer", request.protocol_name, encode_assignment(assignment))
        return request.refused(code)  # the others have nothing to say but an error, or NONE

    def _joined(self, request: JoinGroup, code: ErrorCode) -> JoinGroupResponse:
        random = self._random
        self._generation_id += 1
        member_id = request.member_id or f"member-{self._generation_id}"
        name, metadata = request.protocols[0]
        leads = random.random() < 0.5
        return JoinGroupResponse(
            code,
            member_id,
            self._generation_id if code is ErrorCode.NONE else -1,
            "consumer",
            name,
            member_id if leads else OTHER.member_id,
            random.random() < 0.1,
            (JoinedMember(member_id, None, metadata), OTHER) if leads else (),
        )

    def _disturb(self) -> None:
        member, random, now_ms = self.member, self._random, self.now_ms
        action = random.randrange(9)
        if action == 0:
            member.disconnected(now_ms)
        elif action == 1 and self._waiting:
            member.request_failed(random.choice(self._waiting).request_id, ErrorCode.NETWORK_EXCEPTION, now_ms)
        elif action == 2 and self._waiting:
            nonsense: list[Any] = [HeartbeatResponse(ErrorCode.NONE), SyncGroupResponse(ErrorCode.NONE), object()]
            member.receive(random.choice(self._waiting).request_id, random.choice(nonsense), now_ms)
        elif action == 3:
            member.update_metadata(Cluster.of({TOPIC: random.randrange(3, 6)}), now_ms)
        elif action == 4:
            member.commit_async(dict.fromkeys(member.assignment[:1], 1), now_ms)
        elif action == 5:
            member.commit_sync(dict.fromkeys(member.assignment[:1], 1), now_ms, 1_000)
        elif action == 6:
            member.fetch_offsets(member.assignment, now_ms, 1_000)
        elif action == 7:
            member.enforce_rebalance(now_ms)
        elif action == 8 and member.state is MemberState.FAILED:
            member.recover(now_ms)

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        self._look()
        member, waits = self.member, [send.request for send in self.member.in_flight.values()]
        for kinds in ((JoinGroup, SyncGroup), (FindCoordinator,)):
            same = [request for request in waits if isinstance(request, kinds)]
            require(len(same) <= 1, "it waits for {}", same)
        for send in self.sent:
            to_any = isinstance(send.request, FindCoordinator)
            require((send.to is None) == to_any, "lookups alone go to any broker, and not {}", send)
        if member.state is not MemberState.FAILED:
            self._sent_when_failed = None
        elif self._sent_when_failed is None:
            self._sent_when_failed = len(self.sent)
        is_silent = self._sent_when_failed is None or len(self.sent) <= self._sent_when_failed
        require(is_silent, "it has failed, and sends {}", self.sent[-1:])
        deadline_ms = member.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            member.tick(self.now_ms)
            self._look()
            later_ms = member.next_deadline_ms()
            is_done = later_ms is None or later_ms > self.now_ms
            require(is_done, "a tick at its deadline leaves something due at {}", later_ms)
        self._follow()

    def _follow(self) -> None:
        for event in self.events[self._seen :]:
            if isinstance(event, PartitionsAssigned):
                require(not self.owned & set(event.partitions), "{}, and it has {}", event, self.owned)
                self.owned |= set(event.partitions)
            elif isinstance(event, PartitionsRevoked | PartitionsLost):
                require(self.owned >= set(event.partitions), "{}, and it has {}", event, self.owned)
                self.owned -= set(event.partitions)
        self._seen = len(self.events)


LIVES_A_ROUND = 25
STEPS_A_LIFE = 60
STEPS_OF_A_MEMBER = 300

LAWS_BROKEN = (LawBrokenError, InvariantError)
OF_THE_PACKAGE = ("groupcoord.core", "groupcoord.coordinator", "groupcoord.member")
"""Packages from which any exception is a broken law."""


def _machine(number: int) -> None:
    from hypothesis import HealthCheck, Phase, seed, settings
    from hypothesis.stateful import run_state_machine_as_test

    from groupcoord.testing.machine.state_machine import CoordinatorMachine

    class Machine(CoordinatorMachine):
        """Separate class for each round, since the seed belongs to the class."""

    options = settings(
        max_examples=LIVES_A_ROUND,
        stateful_step_count=STEPS_A_LIFE,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    run_state_machine_as_test(seed(number)(Machine), settings=options)


def _swarm(number: int) -> None:
    from groupcoord.sim import World, swarm_options

    World(number, swarm_options(number)).run()


def _member(number: int) -> None:
    MemberLife(number).live(STEPS_OF_A_MEMBER)


OF_NOBODY = ("ack", "time", "refuse", "lose", "crash", "move", "sweep", "delete")
"""Words without a process that the search varies; other steps are used as they are."""

_ROUNDS: dict[str, tuple[Callable[[int], None], int]] = {
    "machine": (_machine, LIVES_A_ROUND),
    "member": (_member, 1),
    "swarm": (_swarm, 1),
}
"""Search methods: one round by its number, and its number of histories."""


def explore_scope(table: Mapping[str, Any], cpu_s: float) -> Hunt:
    """Explore all histories with the processes, settings and words of a history, shortest first."""
    from groupcoord.testing.exploring.exploration import explore
    from groupcoord.testing.exploring.scope import WORDS_TO_EXPLORE, Trace

    trace = Trace.of(table)
    names = {process.name for process in trace.scope.processes}
    words = dict.fromkeys(WORDS_TO_EXPLORE)
    also: dict[str, None] = {}
    for step in trace.steps:
        if names.intersection(step.operands) or (step.word in OF_NOBODY and not step.operands):
            words[step.word] = None
        else:
            also[str(step)] = None
    scope = evolve(trace.scope, words=tuple(words), also=tuple(also))
    begun = process_time()
    exploration = explore(scope, max_cpu_s=cpu_s, stops_when_broken=True)
    broken = exploration.violations[0].broken if exploration.violations else None
    found = None if broken is None else broken.message.splitlines()[0]
    return Hunt("explore", found, broken is not None, process_time() - begun, exploration.levels[-1].transitions)


def hunt(searcher: str, cpu_s: float) -> Hunt:
    """Search for a broken law in this process, round after round."""
    look, histories = _ROUNDS[searcher]
    begun = process_time()
    for number in count():
        try:
            look(number)
        except Exception as error:  # any failure is a find
            broken = next((found for found in _chain(error) if _is_law(found)), None)
            text = f"{type(broken or error).__name__}: {broken or error}".splitlines()[0]
            return Hunt(searcher, text, broken is not None, process_time() - begun, (number + 1) * histories)
        if process_time() - begun >= cpu_s:
            return Hunt(searcher, None, False, process_time() - begun, (number + 1) * histories)
    raise AssertionError("unreachable")


def _is_law(error: BaseException) -> bool:
    if isinstance(error, LAWS_BROKEN):
        return True
    frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].startswith(OF_THE_PACKAGE)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _chain(inner)
        error = error.__cause__ or error.__context__


def main() -> None:
    task, name, core, *options = sys.argv[1:]
    shown = exhibit(name)
    if core == "planted":
        assert shown.plant is not None
        plant(shown.plant)
    with redirect_stdout(sys.stderr):  # what Hypothesis prints must not mix with the result
        result = _hunt(shown, *options) if task == "hunt" else _play(shown)
    pickle.dump(result, sys.stdout.buffer)


def _hunt(shown: Exhibit, searcher: str, cpu_s: str) -> Hunt:
    if searcher == "explore":
        return explore_scope(shown.play or {"steps": []}, float(cpu_s))
    return hunt(searcher, float(cpu_s))


def _play(shown: Exhibit) -> Story:
    from groupcoord.testing.exploring.scope import Trace
    from groupcoord.testing.exploring.stage import draw_story

    assert shown.play is not None
    return draw_story(Trace.of(shown.play))


if __name__ == "__main__":
    main()
