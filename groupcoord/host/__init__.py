"""A small broker around the coordinator: topics and what they hold, connections, and a server for real Kafka clients.

:class:`Broker` and :class:`Connection` do no I/O; :class:`Server` runs them on asyncio.
"""

from groupcoord.host.broker import Broker
from groupcoord.host.connection import Connection
from groupcoord.host.group_configs import GroupConfigFileError, GroupConfigs
from groupcoord.host.server import Server
from groupcoord.host.topics import Topic, TopicError, TopicFileError, TopicRegistry
from groupcoord.host.transaction_log import FileTransactionLog, MemoryTransactionLog, TransactionLogError

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
