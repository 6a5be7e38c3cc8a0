"""``groupcoord serve --cluster URL``: the log that this node shares with others, and what all of them must know."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from groupcoord.analysis.errors import first_line
from groupcoord.cli.replica_logs import SCHEMES, is_of_replicas, slot_log_at, without_secrets
from groupcoord.cli.serve_opening import USAGE_ERROR, StartError
from groupcoord.clock import Clock
from groupcoord.cluster.documents import SlotDocuments
from groupcoord.cluster.slot_log import SlotLog, SlotLogError
from groupcoord.core.messages import Node
from groupcoord.host.cluster_node import ClusterNode
from groupcoord.host.node_servers import Sockets
from groupcoord.host.opening import Storage


class SharedLog:
    """A log that several nodes share, by its URL.

    Args:
        url: of the engine; behind a ``#`` may be the log's name in it.
        node_id: of this node.

    Raises:
        StartError: there is no engine for such a URL, or the name is none.

    Attributes:
        place: which it is, in words without secrets.
        documents: what all nodes must know.
    """

    def __init__(self, url: str, node_id: int) -> None:
        if not is_of_replicas(url):
            raise StartError(f"--cluster takes {'…, '.join(SCHEMES)}…; there is no other engine", USAGE_ERROR)
        self._url, self._node_id = url, node_id
        self.place = without_secrets(url)
        try:
            self._slot_log()
        except ValueError as error:
            raise StartError(f"--cluster: {error}", USAGE_ERROR) from None
        self.documents = SlotDocuments(self._silent_slot_log)

    def _slot_log(self) -> AbstractAsyncContextManager[SlotLog]:
        return slot_log_at(self._url)

    def _silent_slot_log(self) -> AbstractAsyncContextManager[SlotLog]:
        """Return the engine for what runs beside the node, which says what is not safe there."""
        slot_log = slot_log_at(self._url)
        slot_log.warns = False
        return slot_log

    def open(self) -> None:
        """Read what all nodes know.

        Raises:
            StartError: the engine can't be asked.
        """
        try:
            self.documents.open()
        except (SlotLogError, TimeoutError) as error:
            raise StartError(f"{self.place}: {first_line(error)}") from None

    def close(self) -> None:
        """Close that."""
        self.documents.close()

    def node(self, storage: Storage, clock: Clock, node: Node, sockets: Sockets) -> ClusterNode:
        """Return this node.

        Args:
            storage, clock, sockets: see :class:`~groupcoord.host.cluster_node.ClusterNode`.
            node: with the address that clients are told.
        """
        own = node._replace(node_id=self._node_id)
        return ClusterNode(storage, self.documents, clock, own, sockets, self._slot_log)
