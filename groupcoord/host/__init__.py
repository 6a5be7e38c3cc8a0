"""Asyncio host: sockets around a :class:`~groupcoord.broker.broker.Broker`, and its composition from settings."""

from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.configs.definitions import GroupConfigFileError, GroupConfigs
from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import Topic, TopicError, TopicFileError, TopicRegistry
from groupcoord.broker.transactions.log import NoProducerIdError, ProducerIds, ProducerIdsFileError, TransactionLogError
from groupcoord.host.server import Server

__all__ = [
    "Broker",
    "Connection",
    "GroupConfigFileError",
    "GroupConfigs",
    "NoProducerIdError",
    "ProducerIds",
    "ProducerIdsFileError",
    "Server",
    "Topic",
    "TopicError",
    "TopicFileError",
    "TopicRegistry",
    "TransactionLogError",
    "make_broker",
]
