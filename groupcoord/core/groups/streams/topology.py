"""Topology of a streams group as configured by the cluster's topics: tasks, and internal topics to create (KIP-1071).

Sources: ``InternalTopicManager``, ``RepartitionTopics``, ``CopartitionedTopicsEnforcer``, ``ChangelogTopics`` and
``AutoTopicCreationManager`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from heapq import heapify, heappop, heappush

from attrs import field

from groupcoord.core.fast_construct import define, frozen, plain_members
from groupcoord.core.groups.streams.records import StreamsGroupTopologyRecord, Subtopology, TopicInfo
from groupcoord.core.host_queries import InternalTopic, InternalTopicsCreated
from groupcoord.core.javacompat import hash_map_order, string_sort_key
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.errors import ErrorCode

NAMED_TOPICS = 3
"""Maximum number of topic names in a message; the others are counted."""

TASKS_MAX = 20_000
"""Maximum number of tasks of a topology, which are assigned in one step."""

BROKERS_DEFAULT = -1
"""Replication factor that stands for the broker's setting."""


@plain_members
class TopicProblemKind(IntEnum):
    """Problem with the topics of a topology, by its number in responses."""

    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3


@frozen
class TopicProblem:
    """Reason why there are no tasks, with a message that names topics."""

    kind: TopicProblemKind
    detail: str


@frozen
class ConfiguredSubtopology:
    """Subtopology with its number of tasks."""

    subtopology: Subtopology
    task_count: int

    @property
    def is_stateful(self) -> bool:
        return bool(self.subtopology.state_changelog_topics)


@frozen
class ConfiguredTopology:
    """Topology with the partitions of the cluster's topics.

    Attributes:
        subtopologies: by id, in Kafka's order of ids; None with a problem other than missing internal topics.
        partition_counts: partition counts of internal topics.
        problem: the reason for no tasks, or None.
        missing: internal topics to create, by name.
    """

    NEVER_CHANGES = True

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None = None
    partition_counts: Mapping[str, int] = field(factory=dict)
    problem: TopicProblem | None = None
    missing: Mapping[str, InternalTopic] = field(factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.problem is None


def configure(topology: StreamsGroupTopologyRecord, existing: Mapping[str, int]) -> ConfiguredTopology:
    """Return the topology configured by the partition counts of existing topics.

    Raises:
        RefusedError: STREAMS_INVALID_TOPOLOGY if partition counts can't be derived, or there are too many tasks;
            UNKNOWN_SERVER_ERROR if two subtopologies have the same id, or an index leads nowhere.
    """
    by_id = {subtopology.subtopology_id: subtopology for subtopology in topology.subtopologies}
    if len(by_id) < len(topology.subtopologies):
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    # Kafka's order decides between several writers of a topic, and between several problems.
    subtopologies = [by_id[subtopology_id] for subtopology_id in hash_map_order(by_id)]
    # Before the check of source topics: a broken topology fails in any case.
    copartitioned = [group for subtopology in subtopologies for group in _copartitioned(subtopology)]
    problem = _missing_source_topics(subtopologies, existing)
    if problem is not None:
        return ConfiguredTopology(topology.epoch, problem=problem)
    decision = _Decision(subtopologies, existing)
    decision.follow_writers()
    for names in copartitioned:
        problem = problem or decision.copartition(names)
    if problem is None:
        configured = {
            subtopology.subtopology_id: ConfiguredSubtopology(subtopology, decision.task_count(subtopology))
            for subtopology in sorted(
                subtopologies, key=lambda subtopology: string_sort_key(subtopology.subtopology_id)
            )
        }
        internal = decision.internal_topics(configured)
        problem = decision.wrong_internal_topics(internal)
    if problem is not None:
        return ConfiguredTopology(topology.epoch, problem=problem)
    missing = {name: topic for name, topic in internal.items() if name not in existing}
    if missing:
        detail = f"Internal topics are missing: {names_of_few(list(missing))}"
        problem = TopicProblem(TopicProblemKind.MISSING_INTERNAL_TOPICS, detail)
    # Tasks are assigned in one step, so a peer must not choose their number.
    elif sum(subtopology.task_count for subtopology in configured.values()) > TASKS_MAX:
        raise RefusedError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"There are more than {TASKS_MAX} tasks.")
    counts = {name: topic.partition_count for name, topic in internal.items()}
    return ConfiguredTopology(topology.epoch, configured, counts, problem, missing)


def _copartitioned(subtopology: Subtopology) -> list[tuple[str, ...]]:
    """Return the copartition groups as topic names."""
    repartition_names = [topic.name for topic in subtopology.repartition_source_topics]
    groups = []
    for group in subtopology.copartition_groups:
        names: list[str] = []
        for indexes, listed in (
            (group.source_topics, subtopology.source_topics),
            (group.source_topic_regex, subtopology.source_topic_regex),
            (group.repartition_source_topics, repartition_names),
        ):
            if any(not 0 <= index < len(listed) for index in indexes):
                raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
            names += (listed[index] for index in indexes)
        groups.append(tuple(dict.fromkeys(names)))
    return groups


def _missing_source_topics(subtopologies: Iterable[Subtopology], existing: Mapping[str, int]) -> TopicProblem | None:
    missing = sorted(
        {name for subtopology in subtopologies for name in subtopology.source_topics if name not in existing},
        key=string_sort_key,
    )
    if not missing:
        return None
    return TopicProblem(TopicProblemKind.MISSING_SOURCE_TOPICS, f"Source topics {names_of_few(missing)} are missing.")


def names_of_few(names: Sequence[str]) -> str:
    text = ", ".join(names[:NAMED_TOPICS])
    return text if len(names) <= NAMED_TOPICS else f"{text} and {len(names) - NAMED_TOPICS} additional topics"


class _Decision:
    """Partition counts of topics: existing ones as they are, some fixed by the topology, the rest derived."""

    def __init__(self, subtopologies: Sequence[Subtopology], existing: Mapping[str, int]) -> None:
        self._subtopologies = subtopologies
        self._existing = existing
        repartition = [
            topic
            for subtopology in sorted(subtopologies, key=lambda part: string_sort_key(part.subtopology_id))
            for topic in subtopology.repartition_source_topics
        ]
        self._repartition = {topic.name: topic for topic in repartition}
        self._fixed = {topic.name: topic.partitions for topic in repartition if topic.partitions}
        self._decided = dict(self._fixed)

    def _count(self, name: str) -> int | None:
        return self._existing.get(name, self._decided.get(name))

    # ------------------------------------------------------------ repartition topics

    def follow_writers(self) -> None:
        """Give each repartition topic without a fixed count the largest one that its first writer reads.

        Raises:
            RefusedError: STREAMS_INVALID_TOPOLOGY if writers depend on each other, or a topic has none.
        """
        readers: dict[str, list[int]] = defaultdict(list)
        for place, subtopology in enumerate(self._subtopologies):
            for topic in subtopology.repartition_source_topics:
                readers[topic.name].append(place)
        # Kafka walks all subtopologies repeatedly; one without known inputs has its turn when they are known.
        turns = [(0, place) for place, one in enumerate(self._subtopologies) if self._largest_read(one) is not None]
        # Each subtopology has its turn once, so that a long chain is walked in one go.
        waiting = {place for place, one in enumerate(self._subtopologies) if one.repartition_sink_topics}
        heapify(turns)
        while turns:
            walk, place = heappop(turns)
            if place not in waiting:
                continue
            waiting.discard(place)
            count = self._largest_read(self._subtopologies[place])
            assert count is not None
            for name in self._subtopologies[place].repartition_sink_topics:
                if self._decided.setdefault(name, count) == count:
                    for reader in readers.pop(name, ()):
                        heappush(turns, (walk if reader > place else walk + 1, reader))
        sinks = (name for one in self._subtopologies for name in one.repartition_sink_topics)
        if any(name not in self._decided for name in sinks):
            raise RefusedError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY, "Failed to compute number of partitions for all repartition topics."
            )
        for name in self._repartition:
            if name not in self._decided:
                raise RefusedError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Nothing writes to repartition topic {name}.")

    def _largest_read(self, subtopology: Subtopology) -> int | None:
        counts = [self._decided.get(topic.name) for topic in subtopology.repartition_source_topics]
        counts += [self._existing.get(name) for name in subtopology.source_topics]
        return max((count for count in counts if count is not None), default=None)

    @cached_property
    def _count_of_fixed(self) -> int | TopicProblem:
        """Common partition count of the topics with a fixed one, or the problem if they differ."""
        # As in Kafka all fixed topics of the topology count, not only those of the group.
        counts = {name: self._existing.get(name, count) for name, count in self._fixed.items()}
        count, *different = dict.fromkeys(counts.values())
        if different:
            return _wrongly_partitioned(f"Repartition topics have different counts: {_listed(counts)}.")
        return count

    def copartition(self, names: tuple[str, ...]) -> TopicProblem | None:
        """Give the topics of a copartition group equal partition counts, or return the problem."""
        if not names:
            return None
        others = {name: self._existing[name] for name in names if name not in self._repartition}
        repartition = [name for name in names if name in self._repartition]
        if others:
            # Existing topics decide: their partitions are not changed.
            count, *different = dict.fromkeys(others.values())
            if different:
                return _wrongly_partitioned(f"Topics are not copartitioned: {_listed(others)}.")
            for name in repartition:
                if name in self._fixed and self._count(name) != count:
                    return _wrongly_partitioned(
                        f"Repartition topic {name} has {self._count(name)} partitions, but [{count}] were expected."
                    )
        elif self._fixed:
            if isinstance(self._count_of_fixed, TopicProblem):
                return self._count_of_fixed
            count = self._count_of_fixed
        else:
            count = max(self._count(name) or 0 for name in repartition)
        self._decided.update(dict.fromkeys(repartition, count))
        return None

    # ------------------------------------------------------------ tasks and internal topics

    def task_count(self, subtopology: Subtopology) -> int:
        names = subtopology.read_topics
        if not names:
            raise RefusedError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"No source topics found for subtopology {subtopology.subtopology_id}.",
            )
        return max(self._count(name) or 0 for name in names)

    def internal_topics(self, configured: Mapping[str, ConfiguredSubtopology]) -> dict[str, InternalTopic]:
        found = {name: _internal_topic(topic, self._decided[name]) for name, topic in self._repartition.items()}
        for subtopology in configured.values():
            # A changelog has one partition for each task.
            for topic in subtopology.subtopology.state_changelog_topics:
                found[topic.name] = _internal_topic(topic, subtopology.task_count)
        return {name: found[name] for name in sorted(found, key=string_sort_key)}

    def wrong_internal_topics(self, internal: Mapping[str, InternalTopic]) -> TopicProblem | None:
        for name, topic in internal.items():
            expected = self._fixed.get(name, topic.partition_count)
            found = self._existing.get(name, expected)
            if found != expected:
                return _wrongly_partitioned(
                    f"Existing internal topic {name} has [{found}] partitions, but [{expected}] were expected."
                )
        return None


def _internal_topic(topic: TopicInfo, partition_count: int) -> InternalTopic:
    replication_factor = topic.replication_factor or BROKERS_DEFAULT
    return InternalTopic(
        topic.name,
        partition_count,
        replication_factor,
        tuple((setting.key, setting.value) for setting in topic.topic_configs),
    )


def _wrongly_partitioned(detail: str) -> TopicProblem:
    return TopicProblem(TopicProblemKind.INCORRECTLY_PARTITIONED_TOPICS, detail)


def _listed(counts: Mapping[str, int]) -> str:
    return names_of_few([f"{name}: {count}" for name, count in counts.items()])


INTERVALS = 2
"""Heartbeat intervals until a requested topic is requested again, and a failure no longer reported."""


@define
class _Asked:
    """Requested topic: the end of the pause before it is requested again, and the reason of a failure."""

    until_ms: int
    reason: str | None = None


@define(eq=False)
class InternalTopics:
    """Requested internal topics, so that members with the same missing topic cause one request."""

    NOT_COUNTED = ("_asked", "_swept_count")

    _asked: dict[str, _Asked] = field(factory=dict)
    _swept_count: int = 0

    def ask(
        self, topics: Iterable[InternalTopic], permissions: Permissions | None, heartbeat_interval_ms: int, now_ms: int
    ) -> tuple[tuple[InternalTopic, ...], str]:
        """Return the topics to create now, and a text about unauthorized or failed ones."""
        missing = sorted(topics, key=lambda topic: topic.name)
        self._forget_old([topic.name for topic in missing], now_ms)
        refused = [] if permissions is None else _may_not_create(missing, permissions)
        if refused:
            # Without the permission for one topic Kafka creates none.
            return (), f"; Unauthorized to CREATE on topics {names_of_few(refused)}."
        new = tuple(topic for topic in missing if topic.name not in self._asked)
        for topic in new:
            self._asked[topic.name] = _Asked(now_ms + INTERVALS * heartbeat_interval_ms)
        failed = [
            f"{topic.name} ({reason})"
            for topic in missing
            if (asked := self._asked[topic.name]) and (reason := asked.reason) is not None
        ]
        return new, f"; Creation failed: {names_of_few(failed)}." if failed else ""

    def _forget_old(self, names: Iterable[str], now_ms: int) -> None:
        """Remove outdated entries of these topics, or of all when their number has doubled."""
        is_large = len(self._asked) > 2 * self._swept_count
        for name in list(self._asked) if is_large else names:
            if name in self._asked and self._asked[name].until_ms <= now_ms:
                del self._asked[name]
        if is_large:
            self._swept_count = len(self._asked)

    def created(self, answer: InternalTopicsCreated, heartbeat_interval_ms: int, now_ms: int) -> None:
        until_ms = now_ms + INTERVALS * heartbeat_interval_ms
        for topic in answer.question.topics:
            self._asked.pop(topic.name, None)
            if topic.name in answer.errors:
                self._asked[topic.name] = _Asked(until_ms, answer.errors[topic.name])


def _may_not_create(topics: Iterable[InternalTopic], permissions: Permissions) -> list[str]:
    if permissions.on_cluster(Operation.CREATE):
        # CREATE on the cluster allows all topics.
        return []
    return [topic.name for topic in topics if not permissions.on_topic(topic.name, Operation.CREATE)]
