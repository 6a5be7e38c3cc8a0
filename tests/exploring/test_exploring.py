"""Every history up to a bound: how many states there are, that none is missed, and what is found."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.forking.fingerprints import newest_epoch
from groupcoord.laws import require
from groupcoord.log_store import MemoryLogStore
from groupcoord.testing.exploring import exploration
from groupcoord.testing.exploring.exploration import explore
from groupcoord.testing.exploring.scope import NAMED, HistoryError, Process, Scope, Step, Trace, steps_of
from groupcoord.testing.exploring.stage import LOG_PARTITION, Stage, play
from groupcoord.testing.exploring.turns import Labels, Turns, View, consumer_of, form_of
from tests.plants import plant
from tests.tables import as_one_test

ALL_WORDS = ("commit", "leave", "die", "time", "refuse", "crash", "move")
QUIET_WORDS = ("commit", "leave", "die", "time", "move")


def one(protocol: str, instance_id: str | None = None, words: tuple[str, ...] = ALL_WORDS) -> Scope:
    """Return a scope with one process and a log that answers at once."""
    return Scope((Process("c1", protocol, instance_id),), log_is_late="refuse" in words, words=words)


TWO = Scope((Process("c1"), Process("c2")), log_is_late=True)
MIXED = Scope((Process("c1"), Process("c2", "consumer")), log_is_late=True)

GOLDEN: list[tuple[str, Scope, list[int]]] = [
    ("static", one("classic", "i1", QUIET_WORDS), [1, 1, 5, 10, 16, 22, 33, 41, 42, 30, 17, 9, 7, 4, 1, 0]),
    ("dynamic", one("classic", None, QUIET_WORDS), [1, 1, 4, 9, 13, 29, 50, 80, 128, 185]),
    ("two", TWO, [1, 1, 8, 30, 70, 168, 369]),
    ("consumer", one("consumer"), [1, 1, 5, 12, 32, 69, 143]),
    ("mixed", MIXED, [1, 2, 14, 48, 123]),
    ("share", one("share"), [1, 1, 5, 14, 33, 71]),
    ("streams", one("streams"), [1, 1, 5, 13, 36, 80, 157, 290]),
]
"""How many new states there are after each number of steps: another number tells of another behaviour."""


@as_one_test
@pytest.mark.parametrize(("name", "scope", "new_states"), GOLDEN, ids=[name for name, *_ in GOLDEN])
def test_golden_numbers(name: str, scope: Scope, new_states: list[int]) -> None:
    """The states that there are at each level are as many as ever, and no law is broken in any."""
    found = explore(scope, max_depth=len(new_states) - 1)

    assert found.new_states == new_states
    assert found.violations == []
    assert found.is_closed == (new_states[-1] == 0)


@as_one_test
@pytest.mark.parametrize("kind", ["two", "mixed", "share", "streams"])
def test_a_log_that_is_known_need_not_be_loaded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many states are found if every coordinator that starts loads its log, whether that is known or not."""
    ((_, scope, new_states),) = [golden for golden in GOLDEN if golden[0] == kind]
    monkeypatch.setattr(Turns, "_log_to_start_on", lambda *_: None)

    assert explore(scope, max_depth=len(new_states) - 1).new_states == new_states


@as_one_test
@pytest.mark.parametrize("kind", ["dynamic", "mixed"])
def test_jobs_find_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many states are found by several processes as by one, and the same histories that break a law."""
    monkeypatch.setattr(exploration, "STATES_TO_SHARE", 10)
    ((_, scope, new_states),) = [golden for golden in GOLDEN if golden[0] == kind]

    found = [explore(scope, laws=[nobody_commits], max_depth=len(new_states) - 1, jobs=jobs) for jobs in (1, 2, 3)]

    assert found[1].new_states == found[2].new_states == found[0].new_states
    assert found[1].violations == found[2].violations == found[0].violations != []


def nobody_commits(stage: Stage) -> None:
    """Law that is broken when there is an offset."""
    partition = stage.coordinator.partition(LOG_PARTITION)
    require(partition is None or not partition.offset_count(), "somebody has committed")


def played(scope: Scope, steps: tuple[Step, ...]) -> tuple[Stage, list[str]]:
    """Return a stage on which steps were played, and the ids that members were given."""
    stage, issued = Stage(scope), []
    stage.new_member_id = lambda prefix: issued.append(Stage.new_member_id(stage, prefix)) or issued[-1]  # type: ignore
    stage.boot()
    stage.coordinator.load_all()
    for step in steps:
        stage.do(step)
    return stage, issued


def key_of(stage: Stage, issued: list[str]) -> object:
    """Return what stands for all of a stage."""
    labels = Labels(dict.fromkeys(issued), 0)
    found = stage.coordinator.fingerprint(labels)
    partition = stage.coordinator.partition(LOG_PARTITION)
    assert partition is not None
    epoch = newest_epoch(partition, stage.scope.group_id)
    for token in stage.fleet.outstanding:
        labels.token(token)
    view = View(tuple(labels.ids), tuple(labels.tokens), epoch)
    clients = []
    for name in stage.processes:
        consumer = stage.consumers.get(name)
        tokens = [token for token, sent in stage.fleet.outstanding.items() if sent.consumer is consumer]
        is_there = consumer is not None and consumer.is_alive
        clients.append(form_of(consumer, tokens[0] if tokens else None, view) if consumer and is_there else None)
    return found, tuple(clients)


def possible(stage: Stage) -> list[Step]:
    """Return every step that makes sense."""
    lines = ["time", "move", *(f"crash {written}" for written in range(len(stage.store.waiting()) + 1))]
    lines += ["ack", "refuse"] if stage.store.waiting() else []
    for name in stage.processes:
        consumer = stage.consumers.get(name)
        if consumer is None or not consumer.is_alive:
            lines.append(f"start {name}")
            continue
        lines.append(f"die {name}")
        if not consumer.is_waiting:
            is_in = consumer.phase != "joining" and consumer.member_id
            lines += [f"go {name}", f"commit {name}", *([f"leave {name}"] if is_in else [])]
    return list(steps_of(lines))


@as_one_test
@pytest.mark.parametrize(("scope", "depth"), [(one("classic"), 4), (MIXED, 3)], ids=["classic", "mixed"])
def test_no_state_is_missed(scope: Scope, depth: int) -> None:
    """As many states are found as by playing every history from its beginning, with nothing remembered of another."""
    levels, seen = [[()]], {key_of(*played(scope, ()))}
    for _ in range(depth):
        following: list[tuple[Step, ...]] = []
        for steps in levels[-1]:
            for step in possible(played(scope, steps)[0]):
                key = key_of(*played(scope, (*steps, step)))
                if key not in seen:
                    seen.add(key)
                    following.append((*steps, step))
        levels.append(following)

    assert explore(scope, max_depth=depth).new_states == [len(level) for level in levels]


def test_memory_that_is_known_beside_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step breaks a law also where it leads to what memory was before, and the log alone is another one."""
    plant(monkeypatch, "KAFKA-5247")
    scope = Scope((Process("s1", instance_id="i1"),), words=("commit", "txn"))

    (violation,) = explore(scope, max_depth=6).violations

    assert violation.broken.law == "check_fetch_is_the_log"
    assert [step.word for step in violation.trace.steps][-3:] == ["txn", "commit", "marker"]


def test_who_is_told_while_a_known_log_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses at the unloading of a log partition count, also if the state of its log was seen before."""
    plant(monkeypatch, "KAFKA-20634")
    scope = Scope((Process("s1", instance_id="i1"),), log_is_late=True, words=("commit", "move"))

    laws = {violation.broken.law for violation in explore(scope, max_depth=7).violations}

    assert "check_acknowledged_commits" in laws


def test_steps_that_are_given_as_they_stand() -> None:
    """Steps without a consumer may have operands: an interrupted load serves nothing, and the next one everything."""
    scope = Scope((Process("c1"),), words=("move",), also=("commit", "read_breaks 0", "topic grow orders 9"))
    found = explore(scope, max_depth=4)

    assert found.new_states[1] == 4
    assert found.violations == []
    assert Scope.of(scope.table()) == scope
    with pytest.raises(HistoryError, match="unknown word 'jump'"):
        Scope.of({"also": ["jump"]})


def test_one_broken_law_can_be_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """With that option, the search ends at the first broken law."""
    plant(monkeypatch, "KAFKA-10284")
    scope = one("classic", "i1", QUIET_WORDS)

    whole, short = (explore(scope, max_depth=6, stops_when_broken=stops) for stops in (False, True))

    assert short.violations == whole.violations
    assert short.levels[-1].transitions < whole.levels[-1].transitions


def test_who_took_which_step() -> None:
    """A history names the process of each step, although those that are alike have changed places on the way."""

    scope = Scope((Process("c1"), Process("c2")), words=("commit", "die"))
    (violation,) = explore(scope, laws=[nobody_commits], max_depth=6).violations
    broken = play(violation.trace, laws=[nobody_commits]).broken

    assert broken is not None
    assert (broken.law, broken.step) == ("nobody_commits", len(violation.trace.steps) - 1) == ("nobody_commits", 3)


def test_users_explore_their_own_log_store() -> None:
    """A store that loses acknowledged records breaks a law, in the shortest history."""

    class Forgetful(MemoryLogStore):
        def _write(self, partition: int, records: Any) -> int:
            base_offset = super()._write(partition, records)
            self._logs[partition] = self._logs[partition][:1]
            return base_offset

    (violation,) = explore(one("classic", "i1", QUIET_WORDS), make_log_store=Forgetful, max_depth=3).violations

    assert violation.broken.law == "check_replay"


def test_an_epoch_that_there_cannot_be_stays_apart() -> None:
    """A client of an epoch before the group's first is not taken for one of the first."""
    process, view = Process("c1"), View(("c1-1",), (), 1)
    for away in range(-4, 5):
        form = (-1, "stable", 0, away, frozenset({1}), (), 1)
        consumer = consumer_of(process, "g", form, view, lambda prefix: f"{prefix}-new")

        assert form_of(consumer, None, view) == form


def test_the_scopes_that_have_names() -> None:
    """Each can be serialized and parsed, has successors, and breaks no law within four steps."""
    for name, scope in NAMED.items():
        assert Scope.of(scope.table()) == scope
        found = explore(scope, max_depth=4)

        assert found.new_states[:2] != [1, 0]
        assert found.violations == [], name


def test_enough_is_enough() -> None:
    """A search ends within a level at the maximum of states, and reports it."""
    found = explore(one("classic"), max_states=1)

    assert not found.is_closed
    assert not found.levels[-1].is_whole


FOUND = {
    "leaves, is silent, and the conversion is refused": [
        *("start c1", "go c1", "time", "ack", "start c2", "leave c1", "time", "refuse"),
    ],
}
"""Histories that broke a law when they were found."""


@as_one_test
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_mended(name: str) -> None:
    """No law is broken any more in histories that were found by looking at all of them."""
    assert play(Trace(MIXED, steps_of(FOUND[name]))).broken is None
