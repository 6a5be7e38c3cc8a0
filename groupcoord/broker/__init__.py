"""Kafka broker around the coordinators, without I/O: topics, records, transactions, log-in, connections.

:func:`make_broker` builds a :class:`Broker`; :mod:`groupcoord.host` runs it on asyncio.
"""

from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.configs.definitions import GroupConfigFileError, GroupConfigs
from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import Topic, TopicError, TopicFileError, TopicRegistry
from groupcoord.broker.transactions.log import NoProducerIdError, ProducerIds, ProducerIdsFileError, TransactionLogError

__all__ = [
    "Broker",
    "Connection",
    "GroupConfigFileError",
    "GroupConfigs",
    "NoProducerIdError",
    "ProducerIds",
    "ProducerIdsFileError",
    "Topic",
    "TopicError",
    "TopicFileError",
    "TopicRegistry",
    "TransactionLogError",
    "make_broker",
]
