"""Turns: the result of each step in each coordinator state, computed once for all clients.

A state of the world is a coordinator with its log, and a form for each client. A coordinator's reaction to a request
does not depend on the other clients, so it is computed once and reused. Coordinator states are identified by
fingerprints in which ids and tokens are numbers: clients with one protocol are interchangeable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from attrs import define, field

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.administration import MS_PER_MINUTE
from groupcoord.core.log.records import Record
from groupcoord.core.messages import Response
from groupcoord.errors import ErrorCode
from groupcoord.forking.fingerprints import Names, newest_epoch
from groupcoord.laws import (
    check_acknowledged_commits,
    check_compaction_rebuilds,
    check_epochs_grow,
    check_every_step,
    check_fenced,
    check_fetch_is_the_log,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_restart_writes_the_same,
    check_snapshot_rebuilds,
    check_timers,
    check_writes_in_flight,
    error_codes,
    stranger,
)
from groupcoord.log_store import LogRecords, LogStore, MemoryLogStore
from groupcoord.testing.exploring.scope import FAR_MS, Process, Scope, Step
from groupcoord.testing.exploring.stage import LOG_PARTITION, BrokenLaw, Law, MakeCoordinator, Stage
from groupcoord.testing.machine.consumers import TOPIC, ClassicConsumer, Consumer, Sent, decode_share
from groupcoord.testing.machine.modern_members import Kip848Consumer, ShareMember, StreamsMember

NOBODYS = -1
"""Unknown member id, or no token."""

NOBODY = "nobody"

EPOCHS_MAX = 4
"""Distance of an epoch from the group's at which it counts as foreign."""

FOREIGN = 2**30
Form = tuple[Any, ...]


class View(NamedTuple):
    """Names that a coordinator has for clients: member ids and tokens of waiting requests in the order of its state,
    and the newest epoch.
    """

    ids: tuple[str, ...]
    tokens: tuple[int, ...]
    epoch: int


class Labels(Names):
    """Names as numbers, in the order in which ids and tokens appear."""

    far_ms = FAR_MS
    epochs_max = EPOCHS_MAX

    def __init__(self, issued: Mapping[str, None], age_max_ms: int) -> None:
        self.age_max_ms = age_max_ms
        self._issued = issued
        self.ids: dict[str, int] = {}
        self.tokens: dict[Any, int] = {}

    def text(self, text: str) -> Any:
        return self.ids.setdefault(text, len(self.ids)) if text in self._issued else text

    def token(self, token: Any) -> Any:
        while hasattr(token, "token"):
            token = token.token
        return self.tokens.setdefault(token, len(self.tokens))

    def assignment(self, data: bytes, epoch: int) -> Any:
        generation_id, owned = _share(data)
        return (None if generation_id is None else generation_id - epoch), owned


@lru_cache(maxsize=10_000)
def _share(data: bytes) -> tuple[int | None, Any]:
    generation_id, owned = decode_share(data)
    return generation_id, data if generation_id is None else tuple(sorted(owned))


Encode = Callable[[Any, View], Any]


def _epoch_to(epoch: int, view: View) -> Any:
    if epoch <= 0:
        return (epoch,)
    return max(min(epoch - (FOREIGN if epoch > FOREIGN // 2 else 0) - view.epoch, EPOCHS_MAX), -EPOCHS_MAX)


def _epoch_from(stands: Any, view: View) -> int:
    if isinstance(stands, tuple):
        return int(stands[0])
    epoch = int(stands + view.epoch)
    return epoch if epoch > 0 else epoch + FOREIGN


def _id_to(member_id: str, view: View) -> Any:
    if not member_id:
        return None
    return view.ids.index(member_id) if member_id in view.ids else NOBODYS


def _id_from(stands: Any, view: View) -> str:
    if stands is None:
        return ""
    return view.ids[stands] if stands != NOBODYS else NOBODY


def _as_it_is(value: Any, view: View) -> Any:
    return value


_PLAIN = (_as_it_is, _as_it_is)
_EPOCH = (_epoch_to, _epoch_from)
_ID = (_id_to, _id_from)
_IDS = (
    lambda ids, view: tuple([_id_to(member_id, view) for member_id in ids]),
    lambda stands, view: tuple([_id_from(each, view) for each in stands]),
)
_MAPPING = (
    lambda value, view: None if value is None else tuple(value.items()),
    lambda stands, view: None if stands is None else dict(stands),
)
_COUNT = (lambda value, view: value % 2, _as_it_is)
"""Committed offsets alternate: only a difference from the last one counts."""

_OF_MEMBERS: Mapping[str, tuple[Encode, Encode]] = {"phase": _PLAIN, "member_id": _ID, "epoch": _EPOCH}
ATTRIBUTES: Mapping[type, Mapping[str, tuple[Encode, Encode]]] = MappingProxyType(
    {
        ClassicConsumer: {
            "phase": _PLAIN,
            "member_id": _ID,
            "generation_id": _EPOCH,
            "owned": _PLAIN,
            "members": _IDS,
            "last_offset": _COUNT,
        },
        Kip848Consumer: {
            **_OF_MEMBERS,
            "owned": _MAPPING,
            "assigned": _MAPPING,
            "known": _MAPPING,
            "subscribed": _PLAIN,
            "last_offset": _COUNT,
        },
        ShareMember: {**_OF_MEMBERS, "partitions": _MAPPING, "subscribed": _PLAIN},
        StreamsMember: {**_OF_MEMBERS, "owned": _PLAIN, "known": _PLAIN, "news": _PLAIN},
    }
)


def form_of(consumer: Consumer, token: int | None, view: View) -> Form:
    waits = NOBODYS if token is None or token not in view.tokens else view.tokens.index(token)
    attributes = ATTRIBUTES[type(consumer)]
    return waits, *[encode(getattr(consumer, name), view) for name, (encode, _) in attributes.items()]


def consumer_of(
    process: Process, group_id: str, form: Form, view: View, new_id: Callable[[str], str] | None
) -> Consumer:
    waits, *values = form
    consumer = process.consumer(group_id, NOBODY)
    consumer.is_waiting = waits != NOBODYS
    for (name, (_, decode)), value in zip(ATTRIBUTES[type(consumer)].items(), values, strict=True):
        setattr(consumer, name, decode(value, view))
    if consumer.member_id == NOBODY and new_id is not None:
        consumer.member_id = new_id(process.name)
    return consumer


KEPT_MAX = 60_000
"""Maximum number of saved states; older ones are computed again from their predecessor."""


Log = tuple[Record, ...]


class Recipe(NamedTuple):
    """Step of a client in a coordinator state: numbers of the state and of the client's form, 0 without a client."""

    core: int
    step: Step
    form: int


@define(eq=False)
class Core:
    """Coordinator state with its log."""

    view: View
    recipe: Recipe | None
    in_flight: int
    saved: tuple[Any, ...] | None


@define(eq=False)
class Turn:
    """Result of a step.

    Attributes:
        form: number of the new form of the acting client; 0 if it is gone.
        answers: responses to other clients, by number of the token.
        is_lost: waiting requests are lost.
        fenced: tokens of clients that are fenced without a successor, and so must not be alive.
        is_quiet: other clients are unaffected: no responses, lost requests, or new names or epochs.
        others: new form by old form of other clients.
    """

    core: int
    form: int
    answers: Mapping[int, Response | None]
    is_lost: bool
    before: View
    after: View
    fenced: frozenset[int] = frozenset()
    is_quiet: bool = field(init=False)
    others: dict[int, int] = field(factory=dict)

    @is_quiet.default
    def _is_quiet(self) -> bool:
        before, after = self.before, self.after
        return (
            not (self.answers or self.is_lost)
            and after.epoch == before.epoch
            and after.ids[: len(before.ids)] == before.ids
            and after.tokens[: len(before.tokens)] == before.tokens
        )


class Start(NamedTuple):
    """State and names of a coordinator started on a log."""

    core: int
    view: View


class BrokenTurnError(Exception):
    """A step broke a law."""

    def __init__(self, broken: BrokenLaw) -> None:
        super().__init__(broken.message)
        self.broken = broken


class Turns:
    """Coordinator states, forms of clients, and results of steps.

    Attributes:
        keys: fingerprints of the states.
        numbers: numbers of the states by fingerprint.
        results: results of steps, by state, step and form of the acting client.
        forms: the forms with the index of their process; the first stands for none.
        seen: broken law or None, by coordinator state and form.
    """

    def __init__(
        self,
        scope: Scope,
        *,
        make_log_store: Callable[[], LogStore] | None = None,
        make_coordinator: MakeCoordinator = GroupCoordinator,
        laws: Iterable[Law] = (),
    ) -> None:
        self.scope = scope
        self.cores: list[Core] = []
        self.keys: list[bytes] = []
        self.seen: dict[tuple[int, int], BrokenLaw | None] = {}
        self.forms: list[Form] = [()]
        self.numbers: dict[bytes, int] = {}
        self.results: dict[Recipe, Turn | BrokenTurnError] = {}
        self.steps = 0
        self._stage = Stage(scope, make_log_store=make_log_store, make_coordinator=make_coordinator)
        self._laws = tuple(laws)
        self._issued: dict[str, None] = {}
        self._stage.new_member_id = self._new_member_id  # type: ignore[method-assign]
        self._stage.boot()
        blank = self._stage.coordinator.save()
        self._stage.boot = lambda: self._stage.coordinator.restore(blank)  # type: ignore[method-assign]
        self._stage.coordinator.load_all()
        self._age_max_ms = self._stage.config.offsets_retention_minutes * MS_PER_MINUTE if scope.expires else 0
        self._form_numbers: dict[Form, int] = {(): 0}
        self._kept: list[int] = []
        has_streams = any(process.protocol == "streams" for process in scope.processes)
        self._starting = ("crash",) if has_streams else ("crash", "move")
        self._starts: dict[tuple[str, Log], Start] = {}
        self._known_logs: set[Log] = set()  # checked by the laws of logs
        self._intern(None, Labels(self._issued, self._age_max_ms))

    def _new_member_id(self, prefix: str) -> str:
        member_id = Stage.new_member_id(self._stage, prefix)
        self._issued[member_id] = None
        return member_id

    # ------------------------------------------------------------ states

    def _save(self) -> tuple[Any, ...]:
        stage = self._stage
        store = stage.store
        outstanding = {token: sent.request for token, sent in stage.fleet.outstanding.items()}
        return (
            stage.coordinator.hand_over(),
            store.store,
            store._held,
            stage.clock.now_ms(),
            outstanding,
            stage._taken_back,
            stage.promised,
            deepcopy(stage.topics) if self.scope.changes_topics else None,
            (tuple(store.failures), stage._breaks_after),
            dict(stage._ids),
        )

    def _put(self, core: Core) -> None:
        stage = self._stage
        assert core.saved is not None
        coordinator, log, held, now_ms, outstanding, taken_back, promised, topics, to_come, ids = core.saved
        stage.clock._now_ms = now_ms
        dict.clear(stage._ids)
        dict.update(stage._ids, ids)
        stage.store.store = _copy_of(log)
        stage.store._held = [(ticket, LogRecords(records.values, records.timestamp_ms)) for ticket, records in held]
        stage.store.mend()
        stage.store.forget_reads()
        failures, stage._breaks_after = to_come
        stage.store.fail_next(*failures)
        if topics is not None:
            vars(stage.topics).update(vars(deepcopy(topics)))
        stage.coordinator.restore(coordinator)
        stage._taken_back, stage.promised = set(taken_back), promised.copy()
        stage.acknowledged.clear()
        stage.happenings.clear()
        fleet = stage.fleet
        fleet._owners.clear()
        fleet.outstanding.clear()
        for token, request in outstanding.items():
            fleet.outstanding[token] = Sent(token, request, None)
        fleet.consumers.clear()
        stage.consumers.clear()

    def _bring(self, number: int) -> Core:
        """Return a state with its saved contents, computed again if necessary."""
        core = self.cores[number]
        if core.saved is None:
            assert core.recipe is not None
            self._do(self._bring(core.recipe.core), core.recipe.step, core.recipe.form)
            labels = Labels(self._issued, self._age_max_ms)
            self._fingerprint(labels)
            core.view, core.saved = self._view(labels), self._save()
            self._keep(number)
        return core

    def _keep(self, number: int) -> None:
        self._kept.append(number)
        if len(self._kept) > KEPT_MAX:
            half = KEPT_MAX // 2
            for old in self._kept[:half]:
                if self.cores[old].recipe is not None:
                    self.cores[old].saved = None
            del self._kept[:half]

    def _fingerprint(self, labels: Labels) -> bytes:
        stage = self._stage
        found = stage.coordinator.fingerprint(labels)
        for token in stage.fleet.outstanding:
            labels.token(token)
        to_come = [error.error_code for error in stage.store.failures], stage._breaks_after
        if to_come != ([], None):
            found += repr(to_come).encode()
        if self.scope.changes_topics:
            found += repr((stage.topics.partition_counts, stage.topics.ids)).encode()
        if stage.promised._open:
            found += repr(sorted((key, sorted(keys)) for key, keys in stage.promised._open.items())).encode()
        if stage.coordinator.partition(LOG_PARTITION) is None:
            found += repr([entry.record for entry in stage.store.read(LOG_PARTITION)]).encode()
        return found

    def _view(self, labels: Labels) -> View:
        partition = self._stage.coordinator.partition(LOG_PARTITION)
        epoch = 0 if partition is None else newest_epoch(partition, self.scope.group_id)
        return View(tuple(labels.ids), tuple(labels.tokens), epoch)

    def _intern(self, recipe: Recipe | None, labels: Labels) -> int:
        """Return the number of the stage's state; a new one is checked."""
        check_hard_state_is_the_log(self._stage.coordinator)  # the fingerprint has the log only as memory knows it
        key = self._fingerprint(labels)
        number = self.numbers.get(key)
        if number is None:
            self._check()
            in_flight = len(self._stage.store.waiting())
            number = self.add(key, Core(self._view(labels), recipe, in_flight, self._save()))
            self._keep(number)
        return number

    def add(self, key: bytes, core: Core) -> int:
        number = self.numbers[key] = len(self.cores)
        self.cores.append(core)
        self.keys.append(key)
        return number

    def number_of(self, form: Form) -> int:
        number = self._form_numbers.get(form)
        if number is None:
            number = self._form_numbers[form] = len(self.forms)
            self.forms.append(form)
        return number

    # ------------------------------------------------------------ steps

    def _do(self, core: Core, step: Step, form: int) -> tuple[Consumer | None, dict[int, Sent]]:
        stage = self._stage
        self._put(core)
        fleet = stage.fleet
        sent = dict(fleet.outstanding)
        actor: Consumer | None = None
        if form:
            place, *own = self.forms[form]
            process = self.scope.processes[place]
            actor = self._consumer(place, tuple(own), core.view, self._new_member_id)
            stage.consumers[process.name] = actor
            fleet.consumers.append(actor)
            if actor.is_waiting:
                token = core.view.tokens[own[0]]
                fleet.outstanding[token].consumer = actor
                del sent[token]
        self.steps += 1
        stage.do(step)
        return actor, sent

    def _consumer(self, place: int, form: Form, view: View, new_id: Callable[[str], str] | None = None) -> Consumer:
        return consumer_of(self.scope.processes[place], self.scope.group_id, form, view, new_id)

    def turn(self, recipe: Recipe) -> Turn:
        found = self.results.get(recipe)
        if found is None:
            try:
                found = self._work_out(recipe)
            except BrokenTurnError as error:
                found = error
            except Exception as error:  # an exception of the core is a broken law, too
                found = BrokenTurnError(BrokenLaw.of(error, 0))
            self.results[recipe] = found
        if isinstance(found, BrokenTurnError):
            raise found
        return found

    def _log_to_start_on(self, core: Core, step: Step) -> Log | None:
        """Return the log that alone determines the state of a starting coordinator.

        None if no coordinator starts, or the state also depends on time, topics, an unknown store, or the number of
        appends (a streams group whose process continues).
        """
        assert core.saved is not None
        if step.word not in self._starting or self._age_max_ms or self.scope.changes_topics:
            return None
        _, log, held, _, _, _, promised, _, to_come, _ = core.saved
        in_log = _records_in(log)
        if in_log is None or promised._open or to_come != ((), None):
            return None
        written = int(step.operands[0]) if step.operands else 0
        return (*in_log, *[record for _, records in held[:written] for record in records.values])

    def _work_out(self, recipe: Recipe) -> Turn:
        stage, (number, step, form) = self._stage, recipe
        core = self._bring(number)
        before = core.view
        log = self._log_to_start_on(core, step)
        start = None if log is None else self._starts.get((step.word, log))
        if start is not None and step.word == "crash":  # sends no response
            return Turn(start.core, 0, {}, bool(before.tokens), before, start.view)
        _, sent = self._do(core, step if start is None else Step("unload"), form)
        after_step = stage.fleet.outstanding
        answers = {
            place: sent[token].answers[0]
            for place, token in enumerate(before.tokens)
            if token in sent and sent[token].answers
        }
        is_lost = any(not each.answers and token not in after_step for token, each in sent.items())
        fenced = frozenset(
            place for place, answer in answers.items() if self._is_fenced_wrongly(sent, before, place, answer)
        )
        if stage.acknowledged:
            check_acknowledged_commits(stage.store, [LOG_PARTITION], stage.acknowledged)
        if start is not None:
            return Turn(start.core, 0, answers, is_lost, before, start.view, fenced)
        labels = Labels(self._issued, self._age_max_ms)
        if len(stage.store.waiting()) < core.in_flight or not self.scope.log_is_late:
            if _records_in(stage.store.store) not in self._known_logs:
                self._check_that_numbers_grow()
            check_fetch_is_the_log(stage.coordinator, stage.group_ids)
        reached = self._intern(recipe, labels)
        after = self._view(labels)
        if log is not None:
            self._starts[step.word, log] = Start(reached, after)
        return Turn(reached, self._form_after(after), answers, is_lost, before, after, fenced)

    def _is_fenced_wrongly(self, sent: dict[int, Sent], view: View, place: int, answer: Response | None) -> bool:
        if answer is None or ErrorCode.FENCED_INSTANCE_ID not in error_codes(answer):
            return False
        partition = self._stage.coordinator.partition_of(self.scope.group_id)
        member_id = sent[view.tokens[place]].member_id
        try:
            check_fenced(self._stage.store, partition, self.scope.group_id, member_id)
        except AssertionError:
            return True
        return False

    def _form_after(self, view: View) -> int:
        for place, process in enumerate(self.scope.processes):
            consumer = self._stage.consumers.get(process.name)
            if consumer is not None and consumer.is_alive:
                return self._number(place, consumer, view)
        return 0

    def _number(self, place: int, consumer: Consumer, view: View) -> int:
        outstanding = self._stage.fleet.outstanding.items()
        token = next((token for token, sent in outstanding if sent.consumer is consumer), None)
        return self.number_of((place, *form_of(consumer, token, view)))

    def beside(self, turn: Turn, form: int) -> int:
        if not form or turn.is_quiet:
            return form
        number = turn.others.get(form)
        if number is None:
            number = turn.others[form] = self._beside(turn, form)
        return number

    def _beside(self, turn: Turn, form: int) -> int:
        place, *own = self.forms[form]
        waits, consumer = own[0], self._consumer(place, tuple(own), turn.before)
        token = None if waits == NOBODYS else turn.before.tokens[waits]
        if waits in turn.fenced:
            raise BrokenTurnError(BrokenLaw(0, "check_fenced", f"{consumer} is fenced without a successor"))
        if waits in turn.answers or (turn.is_lost and token is not None):
            token = None
            try:
                consumer.receive(turn.answers.get(waits))
            except Exception as error:
                raise BrokenTurnError(BrokenLaw.of(error, 0)) from error
        return self.number_of((place, *form_of(consumer, token, turn.after))) if consumer.is_alive else 0

    # ------------------------------------------------------------ laws

    def _check(self) -> None:
        stage = self._stage
        coordinator = stage.coordinator
        stage._note_taken_back()
        coordinator.check()
        check_every_step(coordinator, stage.fleet.outstanding, stage._taken_back)
        check_timers(coordinator)
        check_fetch_is_the_log(coordinator, stage.group_ids)
        log = _records_in(stage.store.store)
        is_known = log in self._known_logs
        if not is_known:
            check_snapshot_rebuilds(coordinator)
            check_compaction_rebuilds(coordinator, 0.5)
        if any(process.protocol != "classic" for process in self.scope.processes):
            check_writes_in_flight(coordinator)
            check_restart_writes_the_same(coordinator, [stranger(self.scope.group_id, (TOPIC,))])
        for law in self._laws:
            law(stage)
        if log is not None and not is_known:
            self._check_that_numbers_grow()
            self._known_logs.add(log)

    def _check_that_numbers_grow(self) -> None:
        check_generations_grow(self._stage.store, LOG_PARTITION)
        check_epochs_grow(self._stage.store, LOG_PARTITION)

    def check_seen(self, number: int, form: int) -> None:
        """Check a client's view of a coordinator: its partitions are not assigned to others."""
        key = number, form
        if key not in self.seen:
            self.seen[key] = self._broken_for(number, form)
        broken = self.seen[key]
        if broken is not None:
            raise BrokenTurnError(broken)

    def sees(self, form: int) -> bool:
        return form != 0 and self.scope.processes[self.forms[form][0]].protocol == "consumer"

    def _broken_for(self, number: int, form: int) -> BrokenLaw | None:
        place, *own = self.forms[form]
        if not self.sees(form):
            return None
        core = self._bring(number)
        consumer = self._consumer(place, tuple(own), core.view)
        if isinstance(consumer, Kip848Consumer) and consumer.epoch > 0:
            self._put(core)
            try:
                consumer.check(self._stage.coordinator)
            except Exception as error:
                return BrokenLaw.of(error, 0)
        return None


def _records_in(log_store: Any) -> Log | None:
    if type(log_store) is not MemoryLogStore:
        return None
    return tuple([entry.record for entry in log_store._logs.get(LOG_PARTITION, ())])


def _copy_of(log_store: Any) -> Any:
    if type(log_store) is not MemoryLogStore:
        return deepcopy(log_store)
    copy = MemoryLogStore()
    copy._logs = {partition: list(records) for partition, records in log_store._logs.items()}
    copy._end_offsets = dict(log_store._end_offsets)
    return copy
