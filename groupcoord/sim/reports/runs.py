"""Runs of many seeds, their figures, and comparisons of variants seed by seed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import inf, sqrt
from multiprocessing import connection, parent_process
from statistics import fmean, stdev
from threading import Thread
from typing import Any

from attrs import define, field, frozen

from groupcoord.sim.actors.environment import ClientOperation
from groupcoord.sim.kernel.scheduler import LineSink
from groupcoord.sim.reports.measures import DONE, MEASURES, UNOWNED, ConsumerGroup, Distribution, Measure
from groupcoord.sim.reports.timeline import Timeline, timelines_of
from groupcoord.sim.scenarios.faults import WorldOptions
from groupcoord.sim.world import Outcome, World

COMPARED_MAX = 6
"""Up to so many groups are set beside each other."""

OptionsOf = Callable[[int], WorldOptions]
"""The world of a seed."""


@frozen
class GroupFigures:
    """What one group went through in one seed; values by the keys of ``MEASURES``."""

    group_id: str
    values: dict[str, tuple[int, ...]]
    causes: dict[str, int]


@frozen
class Run:
    """One seed.

    Attributes:
        seed: which.
        outcome: how it ended; None if it failed.
        groups: its figures, none if it failed.
        operations: how often clients did what, none if it failed.
        failure: what went wrong: a law that does not hold, or an exception.
        tail: the last lines of the trace of a run that failed.
        timelines: what happened to each group over time, if that was asked for.
    """

    seed: int
    outcome: Outcome | None
    groups: tuple[GroupFigures, ...] = ()
    operations: dict[ClientOperation, int] = field(factory=dict)
    failure: str | None = None
    tail: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()


def run_seed(seed: int, options: WorldOptions, sink: LineSink | None = None, *, keeps_timeline: bool = False) -> Run:
    """Let the world of a seed run. Whatever goes wrong in it is part of the result."""
    world = World(seed, options, sink)
    try:
        outcome = world.run()
    except Exception as error:  # a broken invariant anywhere is what the simulator looks for
        return Run(seed, None, failure=f"{type(error).__name__}: {error}", tail=tuple(world.trace.tail[-40:]))
    timelines = tuple(timelines_of(world)) if keeps_timeline else ()
    return Run(seed, outcome, tuple(_figures_of(world)), dict(world.stage.operations), timelines=timelines)


def _figures_of(world: World) -> Iterator[GroupFigures]:
    for group in world.groups:
        group_id, seen = group.options.group_id, group.observations
        requests = group.requests_sent - world.requests_before.get(group_id, 0)
        records = world.laws.log.group_records[group_id] - world.records_before.get(group_id, 0)
        consumers = ConsumerGroup(seen, list(seen.figures().values()), requests, records)
        values = {each.key: tuple(each.of_consumers(consumers)) for each in MEASURES if each.of_consumers}
        yield GroupFigures(group_id, values, dict(sorted(seen.rebalance_causes.items())))
    for group_id, application in world.stage.applications.items():
        tasks = application.finish(world.scheduler.time_ms)
        yield GroupFigures(group_id, {each.key: tuple(each.of_tasks(tasks)) for each in MEASURES if each.of_tasks}, {})
    for group_id, shared in world.stage.shares.items():
        values = {each.key: tuple(each.of_shares(shared)) for each in MEASURES if each.of_shares}
        yield GroupFigures(group_id, values, {})


def run_seeds(seeds: Sequence[int], options_of: OptionsOf, jobs: int = 1) -> Iterator[Run]:
    """Run seeds, in processes of their own if ``jobs`` is above 1; results come in the order of the seeds.

    The first one keeps its time lines.

    With processes, ``options_of`` must be something that can be pickled, or the world of each seed is made here.
    """
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(seed, options_of(seed), keeps_timeline=seed == seeds[0])
        return
    with ProcessPoolExecutor(jobs, initializer=_end_with_parent) as pool:
        run = partial(_run_one, seeds[0])
        yield from pool.map(run, seeds, (options_of(seed) for seed in seeds))


def _run_one(first_seed: int, seed: int, options: WorldOptions) -> Run:
    return run_seed(seed, options, keeps_timeline=seed == first_seed)


def _end_with_parent() -> None:
    """Let this process end when its parent does, however that came about, and not by itself at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=end, daemon=True).start()


@define
class FleetReport:
    """What came of all seeds.

    Attributes:
        name: the scenario's.
        runs: by seed.
        variant: which of several it is, when they are compared.
    """

    name: str
    runs: list[Run] = field(factory=list)
    variant: str = ""

    @property
    def failed(self) -> list[Run]:
        """The seeds that broke a law."""
        return [run for run in self.runs if run.failure is not None]

    def values(self, key: str, group_id: str | None = None) -> list[int]:
        """Return all values of a measure, of one group or of all."""
        return [
            value
            for run in self.runs
            for group in run.groups
            if group_id in (None, group.group_id)
            for value in group.values.get(key, ())
        ]

    def group_ids(self) -> list[str]:
        """Return the groups, in the order of the scenario."""
        return list(dict.fromkeys(group.group_id for run in self.runs for group in run.groups))

    def compared_ids(self) -> list[str]:
        """Return the groups that a report sets beside each other; none if there is one, or if there are too many."""
        group_ids = self.group_ids()
        return group_ids if 2 <= len(group_ids) <= COMPARED_MAX else []

    def causes(self) -> dict[str, int]:
        """Return how many rebalances each cause has started, most frequent first."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            for group in run.groups:
                counts.update(group.causes)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def operations(self) -> dict[ClientOperation, int]:
        """Return how often clients did what; of each thing, the most frequent outcome first."""
        counts: Counter[ClientOperation] = Counter()
        for run in self.runs:
            counts.update(run.operations)
        return dict(sorted(counts.items(), key=lambda item: (item[0].client, item[0].name, -item[1], item[0].outcome)))

    def distributions(self, group_id: str | None = None) -> dict[str, Distribution]:
        """Return the distribution of every measure, also of those without values."""
        return {measure.key: Distribution.of(self.values(measure.key, group_id)) for measure in MEASURES}

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON's values."""
        clients: dict[str, dict[str, dict[str, int]]] = {}
        for operation, count in self.operations().items():
            clients.setdefault(operation.client, {}).setdefault(operation.name, {})[operation.outcome] = count
        outcomes = [run.outcome for run in self.runs if run.outcome is not None]
        return {
            "scenario": self.name,
            "seeds": len(self.runs),
            "failed": [{"seed": run.seed, "failure": run.failure} for run in self.failed],
            "virtual_ms": sum(outcome.duration_ms for outcome in outcomes),
            "heartbeats": sum(outcome.heartbeats for outcome in outcomes),
            "commits": sum(outcome.commits for outcome in outcomes),
            "rebalance_causes": self.causes(),
            "clients": clients,
            "all": _json_of(self.distributions()),
            "groups": {group_id: _json_of(self.distributions(group_id)) for group_id in self.group_ids()},
            "by_seed": {
                str(run.seed): {
                    group.group_id: {key: list(found) for key, found in group.values.items()} for group in run.groups
                }
                for run in self.runs
            },
            "digests": {str(outcome.seed): outcome.digest for outcome in outcomes},
        }


def _json_of(distributions: dict[str, Distribution]) -> dict[str, Any]:
    return {key: distribution.to_json() for key, distribution in distributions.items()}


def collect(name: str, runs: Iterable[Run], on_run: Callable[[Run], None], variant: str = "") -> FleetReport:
    """Return the report of runs; ``on_run`` is told of each."""
    report = FleetReport(name, variant=variant)
    for run in runs:
        report.runs.append(run)
        on_run(run)
    return report


_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for 95 % of both sides, for 1 to 30 degrees of freedom; beyond, 1.96 and a little more."""


@frozen
class Difference:
    """By how much a measure is another in one variant than in the first.

    Attributes:
        measure: which.
        seeds: in how many seeds both have values.
        mean: of the differences of the seeds' means; above 0: it is more than in the first variant.
        least, most: the bounds of its 95 % confidence interval; None for fewer than two seeds.
    """

    measure: Measure
    seeds: int
    mean: float
    least: float | None
    most: float | None

    @property
    def is_clear(self) -> bool:
        """The interval has 0 outside."""
        return self.least is not None and self.most is not None and (self.least > 0 or self.most < 0)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's values."""
        bounds = [None if bound is None else round(bound, 3) for bound in (self.least, self.most)]
        return {"seeds": self.seeds, "mean": round(self.mean, 3), "confidence_interval_95": bounds}


@frozen
class Verdict:
    """Which variant costs least: by how long partitions are without owner, or records take until they are done.

    Attributes:
        best: the variant with the least.
        other: what it is compared with: the first variant, or the next best if the first one is the best.
        difference: of the best from the other one.
        equals: the variants whose difference from the best isn't clear, the other one left out.
    """

    best: FleetReport
    other: FleetReport
    difference: Difference
    equals: tuple[FleetReport, ...]


@frozen
class Comparison:
    """Reports of variants that ran with the same seeds; the first one is what the others are compared with."""

    reports: tuple[FleetReport, ...]

    def differences(self, report: FleetReport) -> list[Difference]:
        """Return the differences of a variant from the first one, of the measures that both have values of."""
        found = (difference_of(measure, report, self.reports[0]) for measure in MEASURES)
        return [difference for difference in found if difference is not None]

    def verdict(self) -> Verdict | None:
        """Return which variant costs least; None if no seed tells it of two of them."""
        has_owners = any(report.values(UNOWNED.key) for report in self.reports)
        measure = UNOWNED if has_owners else DONE
        means = [fmean(_means(report.runs, measure.key).values() or (inf,)) for report in self.reports]
        ranked = [self.reports[place] for place in sorted(range(len(means)), key=means.__getitem__)]
        best, *others = ranked
        other = others[0] if best is self.reports[0] else self.reports[0]
        found = {report.variant: difference_of(measure, best, report) for report in others}
        difference = found[other.variant]
        if difference is None:
            return None
        unclear = {variant for variant, each in found.items() if each is not None and not each.is_clear}
        equals = tuple(report for report in others if report is not other and report.variant in unclear)
        return Verdict(best, other, difference, equals)

    def to_json(self) -> dict[str, Any]:
        """Return all reports, and the differences, as JSON's values."""
        first, *others = self.reports
        differences = {
            report.variant: {each.measure.key: each.to_json() for each in self.differences(report)} for report in others
        }
        variants = {report.variant: report.to_json() for report in self.reports}
        return {"compared_with": first.variant, "variants": variants, "differences": differences}


def difference_of(measure: Measure, report: FleetReport, base: FleetReport) -> Difference | None:
    """Return by how much a measure is another than in ``base``; None if no seed has values of both."""
    before = _means(base.runs, measure.key)
    own = _means(report.runs, measure.key)
    differences = [own[seed] - before[seed] for seed in sorted(own.keys() & before.keys())]
    if not differences:
        return None
    least, most = _interval(differences)
    return Difference(measure, len(differences), fmean(differences), least, most)


def _means(runs: Sequence[Run], key: str) -> dict[int, float]:
    values = {run.seed: [value for group in run.groups for value in group.values.get(key, ())] for run in runs}
    return {seed: fmean(found) for seed, found in values.items() if found}


def _interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % confidence interval of their mean (Student's t, paired)."""
    freedom = len(differences) - 1
    if not freedom:
        return None, None
    t = _T_95[freedom - 1] if freedom <= len(_T_95) else 1.96 + 2.4 / freedom
    mean, half = fmean(differences), t * stdev(differences) / sqrt(len(differences))
    return mean - half, mean + half
