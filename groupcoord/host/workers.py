"""One worker of a server of several processes: a node that leads the partitions that its number says.

Partition p of every topic belongs to worker p modulo their number: of ``__consumer_offsets`` with the groups in it, of
``__transaction_state`` with the transactions, of ``__share_group_state`` with the states of share groups, of topics
with their records. Clients find a worker as they find a broker. Each has a log directory of its own
(:mod:`groupcoord.host.worker_folders`), so nothing of a log is shared.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from groupcoord.broker.broker import Broker
from groupcoord.broker.cluster.leadership import Leadership, preferred_leader
from groupcoord.broker.cluster.neighbours import Neighbours
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.records.node_data import NodeData
from groupcoord.broker.topics.registry import Topic
from groupcoord.clock import Clock
from groupcoord.core.messages import Node
from groupcoord.host.links import Links
from groupcoord.host.node_servers import Sockets, advertise_all
from groupcoord.host.opening import Storage
from groupcoord.host.server import Server
from groupcoord.storage.log_settings import NO_LEADER_EPOCH


def worker_broker(storage: Storage, clock: Clock, nodes: Sequence[Node], number: int, neighbours: Neighbours) -> Broker:
    """Return the node that one of several processes is.

    Args:
        storage: what it keeps its data in.
        clock: where time comes from.
        nodes: all nodes, with the addresses that clients are told where there are no listeners with names.
        number: which of them this is, counted from 0.
        neighbours: the others.

    Raises:
        LoadError: not one of its log partitions can be read.
        GroupcoordError: what is kept of transactions can't be read.
    """
    node_id = nodes[number].node_id

    def first_epoch(topic: Topic, index: int) -> int | None:
        is_led = preferred_leader(leadership.node_ids, index) == node_id
        return storage.data.latest_epoch(topic, index) if is_led else NO_LEADER_EPOCH

    leadership = Leadership(nodes, first_epoch, shares_logs=False)
    return storage.broker(
        Broker,
        clock=clock,
        node=nodes[number],
        nodes=Nodes(leadership, storage.topics, neighbours=neighbours),
        data=NodeData(storage.data, leadership, node_id),
    )


class Worker:
    """A node among others that are processes of their own.

    Args:
        storage, clock, nodes, number: see :func:`worker_broker`.
        sockets: for each node, where it listens.
        links: the others.
        asked_on: a bound socket on which the others ask this one.

    Raises:
        LoadError: not one of its log partitions can be read.
        GroupcoordError: what is to be opened can't be used.

    Attributes:
        server: its sockets and its broker.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        nodes: Sequence[Node],
        number: int,
        sockets: Sequence[Sockets],
        links: Links,
        asked_on: socket.socket,
    ) -> None:
        self._storage = storage
        self._links = links
        self._asked_on = asked_on
        for shared in storage.security.shared_files():
            shared.reload()  # which was read before this process was there
        advertise_all(storage.security, nodes, [_addresses(own) for own in sockets])
        broker = worker_broker(storage, clock, nodes, number, links)
        self.server = Server(broker, socks=sockets[number], number=number)

    async def start(self) -> None:
        """Answer clients and the other workers.

        Raises:
            OSError: that can't be.
        """
        await self._links.start(self.server, self._asked_on)
        await self.server.start()

    async def stop(self) -> None:
        """Stop in order, and close what it keeps its data in."""
        self._links.close()
        await self.server.stop()
        self._storage.close()


def _addresses(own: Sockets) -> Mapping[str, tuple[str, int]]:
    return {name: sock.getsockname()[:2] for name, sock in own.items()}
