"""Asyncio host: sockets around a :class:`~groupcoord.broker.broker.Broker`, and its composition from settings."""

from groupcoord.broker.broker import Broker as Broker, make_broker as make_broker
from groupcoord.broker.configs.definitions import (
    GroupConfigFileError as GroupConfigFileError,
    GroupConfigs as GroupConfigs,
)
from groupcoord.broker.connection import Connection as Connection
from groupcoord.broker.topics.registry import (
    Topic as Topic,
    TopicError as TopicError,
    TopicFileError as TopicFileError,
    TopicRegistry as TopicRegistry,
)
from groupcoord.broker.transactions.log import (
    NoProducerIdError as NoProducerIdError,
    ProducerIds as ProducerIds,
    ProducerIdsFileError as ProducerIdsFileError,
    TransactionLogError as TransactionLogError,
)
from groupcoord.host.server import Server as Server
