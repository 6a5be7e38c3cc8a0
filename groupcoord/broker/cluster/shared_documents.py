"""Documents that the nodes of a cluster share: topics, configs, quotas, features, ACLs and credentials.

Each node writes them itself. A write that another node has preceded is refused, and the request is handled again with
what the other one has written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any, Protocol

from groupcoord.broker.answering import Handler
from groupcoord.broker.connection import Connection
from groupcoord.broker.json_file import DataFileError
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import Work
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import CreatePartitions, CreateTopics, DeleteTopics
from groupcoord.wire.cluster_messages import UpdateFeatures
from groupcoord.wire.config_messages import AlterClientQuotas, AlterConfigs, IncrementalAlterConfigs
from groupcoord.wire.security_messages import AlterUserScramCredentials, CreateAcls, DeleteAcls

logger = logging.getLogger("groupcoord.host")

WRITING_REQUESTS = (
    *(CreateTopics, CreatePartitions, DeleteTopics, IncrementalAlterConfigs, AlterConfigs, UpdateFeatures),
    *(AlterClientQuotas, CreateAcls, DeleteAcls, AlterUserScramCredentials),
)
"""The requests that write shared documents."""


class SharedDocument(Protocol):
    """What is read from one document."""

    def reload(self) -> None:
        """Read the document again if another node has written it.

        Raises:
            DataFileError: it can't be read.
        """


class SharedDocuments:
    """The documents of a node that shares them with others.

    Args:
        topics: the topics that exist.
        others: what is read from other documents.
    """

    def __init__(self, topics: TopicRegistry, others: Iterable[SharedDocument]) -> None:
        self._topics = topics
        self._documents: tuple[SharedDocument, ...] = (topics, *others)

    def reload(self) -> None:
        """Read what other nodes have written. A document that can't be read is logged, and stays as it was."""
        for document in self._documents:
            try:
                document.reload()
            except DataFileError as error:
                logger.error("what another node has written can't be read: %s", error)

    def retry_conflicts(self, table: dict[type, Handler], reload: Callable[[], None]) -> None:
        """Have requests that write handled again when another node was quicker.

        Args:
            table: the handler of each request type; those of requests that write are replaced.
            reload: reads what the other node has written, and applies it.
        """
        for request_type in WRITING_REQUESTS:
            table[request_type] = self._retried(table[request_type], reload)

    def _retried(self, handler: Handler, reload: Callable[[], None]) -> Handler:
        def change(connection: Connection, request: Any) -> Work[WireResponse | None]:
            while True:
                refusals = self._topics.file.refusals
                try:
                    found: Any = handler(connection, request)
                    response: WireResponse | None = (yield from found) if isinstance(found, GeneratorType) else found
                except OSError:
                    if self._topics.file.refusals == refusals:
                        raise
                if self._topics.file.refusals == refusals:
                    return response
                reload()

        return change
