"""What the rules of consumer groups look at besides the group: settings, topics, assignors, regular expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from groupcoord.config import Config
from groupcoord.config.group_settings import SettingsOfConsumerGroup
from groupcoord.core.consumer.assignors import Assignor, PartitionAssignorError
from groupcoord.core.consumer.metadata_hash import metadata_hash, topic_hash
from groupcoord.core.consumer.refusal import RefusedError
from groupcoord.core.consumer.topics import Topic
from groupcoord.core.topics import RegexResolver, TopicResolver
from groupcoord.errors import ErrorCode


@define
class GroupEnvironment:
    """The surroundings of all consumer groups of one coordinator.

    Attributes:
        config: settings of the broker.
        topics: the topics of the cluster.
        assignors: by name; the first is the default.
        regexes: matches regular expressions against the topics.
        settings_of: says what holds for the members of a group, by its id.
        topics_version: grows when topics are created; expressions are matched again then.
        default_assignor: that of a group whose members ask for none.
    """

    config: Config
    topics: TopicResolver
    assignors: Mapping[str, Assignor]
    regexes: RegexResolver
    settings_of: SettingsOfConsumerGroup
    topics_version: int = 0
    default_assignor: str = field(init=False)
    _known: dict[str, Topic] = field(factory=dict)  # as they were when somebody last looked
    _hashes: dict[str, tuple[Topic, int]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.default_assignor = next(iter(self.assignors))

    def assignor(self, name: str) -> Assignor:
        """Return an assignor by the name under which members ask for it.

        Raises:
            PartitionAssignorError: there is none any more, and members asked for it before the last restart.
        """
        assignor = self.assignors.get(name)
        if assignor is None:
            raise PartitionAssignorError(f"there is no assignor {name!r}")
        return assignor

    def existing_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of these topics that exist and have an id, by name."""
        found = {}
        for name in names:
            topic_id, partition_count = self.topics.topic_id(name), self.topics.partition_count(name)
            if topic_id is not None and topic_id.int and partition_count is not None:
                topic = self._known.get(name)
                if topic is None or topic.topic_id != topic_id or topic.partition_count != partition_count:
                    topic = self._known[name] = Topic(name, topic_id, partition_count)
                found[name] = topic
        return found

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return what stands for these topics as they are now."""
        return metadata_hash({name: self._hash(topic) for name, topic in self.existing_topics(names).items()})

    def _hash(self, topic: Topic) -> int:
        known = self._hashes.get(topic.name)
        if known is None or known[0] is not topic:
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
