"""The topics of a server: those that a test asks for, checked, and those that there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from attrs import frozen

from groupcoord.broker.broker import Broker
from groupcoord.broker.topics.registry import Topic, check_topic_name
from groupcoord.config import Config
from groupcoord.errors import UnknownNameError
from groupcoord.testing.asserting.words import did_you_mean
from groupcoord.wire.broker_messages import CreatableTopic

__tracebackhide__ = True

Topics = Mapping[str, int] | Iterable[str]
"""Topics with their numbers of partitions, or their names alone."""


@frozen
class TopicDescription:
    """A topic and what it holds.

    Attributes:
        name: what it is called.
        partition_count: how many partitions it has.
        start_offsets: of each partition, the offset of its oldest record.
        end_offsets: of each partition, the offset that its next record will get.
        settings: the settings that it has of its own, under Kafka's keys.
    """

    name: str
    partition_count: int
    start_offsets: tuple[int, ...]
    end_offsets: tuple[int, ...]
    settings: Mapping[str, str] = MappingProxyType({})

    @property
    def record_count(self) -> int:
        """How many offsets lie between the starts and the ends, those of transaction markers included."""
        return sum(self.end_offsets) - sum(self.start_offsets)


def checked_topics(topics: Topics | None, config: Config) -> dict[str, int]:
    """Return topics with their numbers of partitions: names alone get ``num.partitions``.

    Raises:
        TypeError: these are neither numbers by name nor names.
        ValueError: a number of partitions is below 1.
        TopicError: a topic can't be called that.
    """
    if topics is None:
        return {}
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError(f"topics must be names, or numbers of partitions by name: [{topics!r}], or {{{topics!r}: 3}}")
    counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, config.num_partitions)
    for name, count in counts.items():
        if not isinstance(name, str):
            raise TypeError(f"a topic's name must be text, not {name!r}")
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"the number of partitions of topic {name!r} must be an integer, not {count!r}")
        if count < 1:
            raise ValueError(f"topic {name!r} must have at least one partition, not {count}")
        check_topic_name(name)
    return counts


def creatable(counts: Mapping[str, int]) -> tuple[CreatableTopic, ...]:
    """Return topics as a request names them that creates them."""
    return tuple(CreatableTopic(name, count) for name, count in counts.items())


def find_topic(broker: Broker, name: str) -> Topic:
    """Return the topic of this name.

    Raises:
        UnknownNameError: there is none, or it is Kafka's own.
    """
    topic = broker.topics.get(name)
    if topic is not None and not topic.is_internal:
        return topic
    if topic is not None:
        raise UnknownNameError(f"{name!r} is Kafka's own topic: ask for what is committed, or for groups")
    names = sorted(topic.name for topic in broker.topics if not topic.is_internal)
    raise UnknownNameError(
        f"there is no topic {name!r}{did_you_mean(name, names)} (topics: {', '.join(names) or 'none'})"
    )


def describe_topics(broker: Broker) -> dict[str, TopicDescription]:
    """Return the topics that there are, by name, but for Kafka's own."""
    return {topic.name: _describe(broker, topic) for topic in broker.topics if not topic.is_internal}


def _describe(broker: Broker, topic: Topic) -> TopicDescription:
    logs = [broker.data.whole.log(topic, index) for index in range(topic.partition_count)]
    return TopicDescription(
        topic.name,
        topic.partition_count,
        tuple(0 if log is None else log.start_offset for log in logs),
        tuple(0 if log is None else log.end_offset for log in logs),
        MappingProxyType(dict(topic.configs)),
    )
