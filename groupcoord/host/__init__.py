"""Sockets on asyncio around a :class:`~groupcoord.broker.Broker`: :class:`Server`, and what it is usually made with."""

from groupcoord.broker.broker import Broker
from groupcoord.broker.configs.groups import GroupConfigFileError, GroupConfigs
from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import Topic, TopicError, TopicFileError, TopicRegistry
from groupcoord.broker.transactions.log import FileTransactionLog, MemoryTransactionLog, TransactionLogError
from groupcoord.host.server import Server

__all__ = [
    "Broker",
    "Connection",
    "FileTransactionLog",
    "GroupConfigFileError",
    "GroupConfigs",
    "MemoryTransactionLog",
    "Server",
    "Topic",
    "TopicError",
    "TopicFileError",
    "TopicRegistry",
    "TransactionLogError",
]
