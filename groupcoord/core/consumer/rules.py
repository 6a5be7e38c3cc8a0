"""What the rules of consumer groups look at besides the group: settings, topics, assignors, regular expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from groupcoord.config import Config
from groupcoord.core.consumer.assignors import Assignor, RangeAssignor, UniformAssignor
from groupcoord.core.consumer.metadata_hash import metadata_hash, topic_hash
from groupcoord.core.consumer.refusal import RefusedError
from groupcoord.core.consumer.topics import Topic
from groupcoord.core.topics import RegexResolver, TopicResolver
from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.group_settings import SettingsOfConsumerGroup

BUILT_IN: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor())
"""Kafka's own assignors."""


@define
class Rules:
    """The surroundings of all consumer groups of one coordinator.

    Attributes:
        config: settings of the broker.
        topics: the topics of the cluster.
        assignors: by name; the first is the default.
        regexes: matches regular expressions against the topics.
        settings_of: says what holds for the members of a group, by its id.
        topics_version: grows when topics are created; expressions are matched again then.
    """

    config: Config
    topics: TopicResolver
    assignors: Mapping[str, Assignor]
    regexes: RegexResolver
    settings_of: SettingsOfConsumerGroup
    topics_version: int = 0
    _hashes: dict[str, tuple[Topic, int]] = field(factory=dict)

    @classmethod
    def of(
        cls,
        config: Config,
        topics: TopicResolver,
        assignors: Iterable[Assignor],
        regexes: RegexResolver,
        settings_of: SettingsOfConsumerGroup,
    ) -> Rules:
        """Make the rules with the assignors that are named in ``group.consumer.assignors``.

        Args:
            config: settings of the broker.
            topics: the topics of the cluster.
            assignors: others than Kafka's own.
            regexes: matches regular expressions.
            settings_of: says what holds for the members of a group.

        Raises:
            ConfigError: there is no assignor of a name.
        """
        known: dict[str, Assignor] = {assignor.name: assignor for assignor in (*BUILT_IN, *assignors)}
        named = config.group_consumer_assignors
        missing = [name for name in named if name not in known]
        if missing:
            raise ConfigError(f"setting 'group.consumer.assignors': there is no assignor {missing[0]!r}")
        return cls(config, topics, {name: known[name] for name in named}, regexes, settings_of)

    @property
    def default_assignor(self) -> str:
        """The assignor of a group whose members ask for none."""
        return next(iter(self.assignors))

    def existing_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of these topics that exist and have an id, by name."""
        found = {}
        for name in names:
            topic_id, partition_count = self.topics.topic_id(name), self.topics.partition_count(name)
            if topic_id is not None and topic_id.int and partition_count is not None:
                found[name] = Topic(name, topic_id, partition_count)
        return found

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return what stands for these topics as they are now."""
        return metadata_hash({name: self._hash(topic) for name, topic in self.existing_topics(names).items()})

    def _hash(self, topic: Topic) -> int:
        known = self._hashes.get(topic.name)
        if known is None or known[0] != topic:
            known = self._hashes[topic.name] = (topic, topic_hash(topic))
        return known[1]

    def check_regex(self, regex: str) -> None:
        """Check that an expression can be matched.

        Raises:
            RefusedError: INVALID_REGULAR_EXPRESSION.
        """
        problem = self.regexes.problem(regex)
        if problem is not None:
            raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)
