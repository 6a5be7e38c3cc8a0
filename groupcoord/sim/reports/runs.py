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
from groupcoord.sim.kernel import LineSink
from groupcoord.sim.reports.measures import DONE, MEASURES, UNOWNED, ConsumerGroup, Distribution, Measure
from groupcoord.sim.scenarios.faults import WorldOptions
from groupcoord.sim.world import START_MS, Outcome, World

COMPARED_MAX = 6
"""Maximum number of groups compared in a report."""

OptionsOf = Callable[[int], WorldOptions]
"""Function that returns the options of a seed's world."""


@frozen
class GroupFigures:
    """Figures of a group in one seed, by the keys of ``MEASURES``."""

    group_id: str
    values: dict[str, tuple[int, ...]]
    causes: dict[str, int]


ROWS_MAX, SPANS_MAX = 48, 4_000
"""Limits of a timeline: partitions, and owners of each."""


@frozen
class Timeline:
    """Timeline of a group in one seed; times are milliseconds since the start of the run.

    Attributes:
        measured_from_ms: start of the measurement.
        rebalances: start and end of each.
        rows: partitions with their owners' spans (consumer, start, end), as many as fit into a picture.
    """

    group_id: str
    duration_ms: int
    measured_from_ms: int
    rebalances: tuple[tuple[int, int], ...]
    rows: tuple[tuple[str, tuple[tuple[str, int, int], ...]], ...]
    partition_count: int

    def happenings(self) -> Iterator[int]:
        """Yield the times of events since the start of the measurement, except those that the end of the run causes."""
        for start_ms, end_ms in self.rebalances:
            if end_ms > self.measured_from_ms:
                yield from (max(start_ms, self.measured_from_ms), end_ms)
        for _, spans in self.rows:
            for _, *moments in spans:
                yield from (at_ms for at_ms in moments if self.measured_from_ms < at_ms < self.duration_ms)


def timelines_of(world: World) -> Iterator[Timeline]:
    duration_ms = world.scheduler.time_ms - START_MS
    for group in world.groups:
        seen = group.observations
        spans: dict[str, list[tuple[str, int, int]]] = {f"{p.topic}-{p.partition}": [] for p in sorted(seen.partitions)}
        for partition, consumer, start_ms, end_ms in seen.owned:
            name = f"{partition.topic}-{partition.partition}"
            spans[name].append((consumer, start_ms - START_MS, end_ms - START_MS))
        rows = tuple((name, tuple(found[:SPANS_MAX])) for name, found in list(spans.items())[:ROWS_MAX])
        rebalances = tuple((start - START_MS, end - START_MS) for start, end in seen.rebalances)
        measured_from_ms = world.options.measure_from_ms
        yield Timeline(group.options.group_id, duration_ms, measured_from_ms, rebalances, rows, len(spans))


@frozen
class Run:
    """Result of one seed.

    Attributes:
        seed: the seed.
        outcome: its outcome, or None if it failed.
        groups: figures, empty if it failed.
        operations: counts of operations, empty if it failed.
        failure: the broken law or the exception.
        tail: last lines of the trace of a failed run.
        timelines: timelines of the groups, if requested.
    """

    seed: int
    outcome: Outcome | None
    groups: tuple[GroupFigures, ...] = ()
    operations: dict[ClientOperation, int] = field(factory=dict)
    failure: str | None = None
    tail: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()


def run_seed(seed: int, options: WorldOptions, sink: LineSink | None = None, *, keeps_timeline: bool = False) -> Run:
    """Run the world of a seed. A failure is part of the result."""
    world = World(seed, options, sink)
    try:
        outcome = world.run()
    except Exception as error:  # any broken invariant is a result of the simulator
        return Run(seed, None, failure=f"{type(error).__name__}: {error}", tail=tuple(world.trace.tail)[-40:])
    timelines = tuple(timelines_of(world)) if keeps_timeline else ()
    return Run(seed, outcome, tuple(_figures_of(world)), dict(world.stage.operations), timelines=timelines)


def _figures_of(world: World) -> Iterator[GroupFigures]:
    for group in world.groups:
        group_id, seen = group.options.group_id, group.observations
        requests = group.requests_sent - world.requests_before.get(group_id, 0)
        records = world.laws.log.group_records[group_id] - world.records_before.get(group_id, 0)
        consumers = ConsumerGroup(seen.figures, list(seen.partitions.values()), requests, records)
        values = {each.key: tuple(each.of_consumers(consumers)) for each in MEASURES if each.of_consumers}
        yield GroupFigures(group_id, values, dict(sorted(seen.figures.rebalance_causes.items())))
    for group_id, application in world.stage.applications.items():
        tasks = application.finish(world.scheduler.time_ms)
        yield GroupFigures(group_id, {each.key: tuple(each.of_tasks(tasks)) for each in MEASURES if each.of_tasks}, {})
    for group_id, shared in world.stage.shares.items():
        values = {each.key: tuple(each.of_shares(shared)) for each in MEASURES if each.of_shares}
        yield GroupFigures(group_id, values, {})


def run_seeds(seeds: Sequence[int], options_of: OptionsOf, jobs: int = 1) -> Iterator[Run]:
    """Run seeds, in ``jobs`` processes if above 1; yield results in the order of the seeds.

    The first one keeps its timelines. With processes, ``options_of`` is called in this process, and its results are
    pickled.
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
    """End this process when its parent ends for any reason, but not at Ctrl-C."""
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
    """Results of all seeds.

    Attributes:
        name: name of the scenario.
        runs: by seed.
        variant: name of the variant in a comparison.
    """

    name: str
    runs: list[Run] = field(factory=list)
    variant: str = ""

    @property
    def failed(self) -> list[Run]:
        """Runs that failed."""
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
        """Return the groups in the order of the scenario."""
        return list(dict.fromkeys(group.group_id for run in self.runs for group in run.groups))

    def compared_ids(self) -> list[str]:
        """Return the groups that a report compares; none if there is one, or too many."""
        group_ids = self.group_ids()
        return group_ids if 2 <= len(group_ids) <= COMPARED_MAX else []

    def causes(self) -> dict[str, int]:
        """Return the number of rebalances by cause, most frequent first."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            for group in run.groups:
                counts.update(group.causes)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def operations(self) -> dict[ClientOperation, int]:
        """Return the counts of operations; of each operation, the most frequent outcome first."""
        counts: Counter[ClientOperation] = Counter()
        for run in self.runs:
            counts.update(run.operations)
        return dict(sorted(counts.items(), key=lambda item: (item[0].client, item[0].name, -item[1], item[0].outcome)))

    def distributions(self, group_id: str | None = None) -> dict[str, Distribution]:
        """Return the distribution of every measure, also of those without values."""
        return {measure.key: Distribution.of(self.values(measure.key, group_id)) for measure in MEASURES}

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
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
    """Return the report of runs; ``on_run`` is called with each run."""
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
"""Student's t for a two-sided 95 % interval, for 1 to 30 degrees of freedom; beyond, about 1.96."""


@frozen
class Difference:
    """Difference of a measure between a variant and a base one.

    Attributes:
        measure: the measure.
        seeds: number of seeds with values in both.
        mean: mean of the differences of the seeds' means; above 0: higher than in the base one.
        least, most: bounds of its 95 % confidence interval; None for fewer than two seeds.
    """

    measure: Measure
    seeds: int
    mean: float
    least: float | None
    most: float | None

    @property
    def is_clear(self) -> bool:
        """True if the interval does not contain 0."""
        return self.least is not None and self.most is not None and (self.least > 0 or self.most < 0)

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON values."""
        bounds = [None if bound is None else round(bound, 3) for bound in (self.least, self.most)]
        return {"seeds": self.seeds, "mean": round(self.mean, 3), "confidence_interval_95": bounds}


@frozen
class Verdict:
    """Best variant: the one with the least time without owner, or until records are done.

    Attributes:
        other: the first variant, or the second best if the first one is the best.
        difference: difference of the best from the other one.
        equals: further variants without a clear difference from the best.
    """

    best: FleetReport
    other: FleetReport
    difference: Difference
    equals: tuple[FleetReport, ...]


@frozen
class Comparison:
    """Reports of variants with the same seeds; the others are compared with the first one."""

    reports: tuple[FleetReport, ...]

    def differences(self, report: FleetReport) -> list[Difference]:
        """Return the differences of a variant from the first one, for measures with values in both."""
        found = (difference_of(measure, report, self.reports[0]) for measure in MEASURES)
        return [difference for difference in found if difference is not None]

    def verdict(self) -> Verdict | None:
        """Return the best variant, or None if no seed has values of both it and the other."""
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
        """Return all reports and differences as JSON values."""
        first, *others = self.reports
        differences = {
            report.variant: {each.measure.key: each.to_json() for each in self.differences(report)} for report in others
        }
        variants = {report.variant: report.to_json() for report in self.reports}
        return {"compared_with": first.variant, "variants": variants, "differences": differences}


def difference_of(measure: Measure, report: FleetReport, base: FleetReport) -> Difference | None:
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
    freedom = len(differences) - 1
    if not freedom:
        return None, None
    t = _T_95[freedom - 1] if freedom <= len(_T_95) else 1.96 + 2.4 / freedom
    mean, half = fmean(differences), t * stdev(differences) / sqrt(len(differences))
    return mean - half, mean + half
