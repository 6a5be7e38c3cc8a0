"""What a node that is a process of its own leaves to the other processes of its cluster, and does for them.

Nodes of one process share everything but their clients. Processes share the files in which there is what all must know
(topics, settings, quotas, levels of features, ACLs, credentials): one of them, the controller, writes these, and the
others read them anew when they are told. What only the node that leads a partition can do, it is asked for: a marker at
the end of a transaction, whether a producer may write in one, states of share groups and what these give up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any, NamedTuple, Protocol

from groupcoord.broker.answering import Handler
from groupcoord.broker.connection import Connection, RequestHandler
from groupcoord.broker.json_file import DataFileError, JsonFile
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.broker.work import Answer, Work
from groupcoord.core.front.authorization import Principal
from groupcoord.wire import WireResponse
from groupcoord.wire.acl_messages import CreateAcls, DeleteAcls
from groupcoord.wire.broker_messages import CreatePartitions, CreateTopics, DeleteTopics
from groupcoord.wire.config_messages import AlterConfigs, IncrementalAlterConfigs
from groupcoord.wire.feature_messages import UpdateFeatures
from groupcoord.wire.login_messages import AlterUserScramCredentials
from groupcoord.wire.quota_messages import AlterClientQuotas

logger = logging.getLogger("groupcoord.host")

FOR_THE_CONTROLLER = (
    *(CreateTopics, CreatePartitions, DeleteTopics, IncrementalAlterConfigs, AlterConfigs, UpdateFeatures),
    *(AlterClientQuotas, CreateAcls, DeleteAcls, AlterUserScramCredentials),
)
"""What changes the files that all nodes read: any node takes it, and the controller answers it."""

TakeAnswer = Callable[[Any], None]
"""Takes an answer; None: who was asked is gone, and may have done it or not."""


class Asker(NamedTuple):
    """For whom a node asks another one.

    Attributes:
        node_id: the node that asks.
        principal: of its client.
        client_host: where that is, in Kafka's form.
        is_client: False: the node asks for itself, and may do everything.
    """

    node_id: int
    principal: Principal = None
    client_host: str = ""
    is_client: bool = False


class Question(NamedTuple):
    """What a node asks another one: a request as of a client, or one of those between nodes."""

    request: Any
    asker: Asker


class Look(NamedTuple):
    """What all must know may have changed: look at the files."""


class ChangedTopic(NamedTuple):
    """A topic that another process has changed: as it was, None if it is new; as it is, None if it is gone."""

    before: Topic | None
    now: Topic | None


class Neighbours(Protocol):
    """The other nodes of a cluster of processes, as one of them reaches them.

    Attributes:
        node_id: of this node.
        controller_id: of the node that writes the files.
    """

    node_id: int
    controller_id: int

    def ask(self, node_id: int, question: Question, take: TakeAnswer) -> None:
        """Ask another node; the answer may come at once, or later."""

    def tell_all(self, request: Any) -> None:
        """Tell all other nodes something that is not answered."""


class AskedConnection(Connection):
    """Stands for the connection of what another node asks, once.

    Args:
        broker: who answers.
        asker: for whom the node asks.
        take: takes the answer.
    """

    __slots__ = ("_take", "asker")

    def __init__(self, broker: RequestHandler, asker: Asker, take: TakeAnswer) -> None:
        super().__init__(broker, asker.client_host, asker.principal, 0)
        self.asker = asker
        self._take: TakeAnswer | None = take

    @property
    def is_trusted(self) -> bool:
        """See :class:`~groupcoord.broker.connection.Connection`."""
        return not self.asker.is_client

    def answer(self, response: WireResponse | None) -> None:
        """Give the answer to who asked."""
        self.tell(response)

    def tell(self, found: Any) -> None:
        """Do as :meth:`answer` with what no client gets."""
        take, self._take = self._take, None
        if take is not None:
            take(found)

    def skip_answer(self) -> None:
        """See :class:`~groupcoord.broker.connection.Connection`."""
        self.answer(None)

    def refuse(self, reason: str) -> None:
        """See :class:`~groupcoord.broker.connection.Connection`."""
        logger.warning("a request of node %d is not answered: %s", self.asker.node_id, reason)
        self.end(reason)
        self.answer(None)


def answer_neighbour(broker: RequestHandler, question: Question, take: TakeAnswer) -> None:
    """Have a broker answer what another node asks."""
    connection = AskedConnection(broker, question.asker, take)
    try:
        broker.handle(connection, question.request)
    except Exception:
        logger.exception("a request of node %d could not be handled", question.asker.node_id)
        connection.answer(None)


def ask_and_wait(neighbours: Neighbours, node_id: int, question: Question) -> Work[Any]:
    """Ask another node; return its answer, or None: it is gone, and may have done it or not."""
    answer = Answer()
    neighbours.ask(node_id, question, answer.answer)
    if not answer.is_done:
        yield answer
    return answer.response


class SharedFile(Protocol):
    """What all nodes must know of one kind."""

    file: JsonFile

    def reload(self) -> None:
        """Read the file again if another process has written it."""


class Following:
    """What a node knows that all must know: the controller says when it has changed that, the others look then.

    Without a controller every node changes it, and does so again if another one was quicker.

    Args:
        topics: those that there are.
        files: everything else that is read from files.
        neighbours: the other nodes; None: there is no controller.
    """

    def __init__(self, topics: TopicRegistry, files: Iterable[SharedFile], neighbours: Neighbours | None) -> None:
        self._neighbours = neighbours
        self._topics = topics
        self._files = (topics, *files)
        self.is_controller = neighbours is not None and neighbours.node_id == neighbours.controller_id
        if neighbours is not None and self.is_controller:
            for shared in self._files:
                shared.file.on_written = lambda: neighbours.tell_all(Look())

    def look(self) -> list[ChangedTopic]:
        """Read what the controller has changed, and return the topics that are among it."""
        before = {topic.topic_id: topic for topic in self._topics}
        for shared in self._files:
            try:
                shared.reload()
            except DataFileError as error:
                logger.error("what the controller has written can't be read: %s", error)
        after = {topic.topic_id: topic for topic in self._topics}
        pairs = (ChangedTopic(before.get(topic_id), after.get(topic_id)) for topic_id in {**before, **after})
        return [pair for pair in pairs if pair.before != pair.now]

    def arrange(self, table: dict[type, Handler], follow: Callable[[], None]) -> None:
        """Have what changes the files answered by whoever may write them.

        Args:
            table: who answers which request.
            follow: looks at what has changed.
        """
        if self._neighbours is None:
            for request_type in FOR_THE_CONTROLLER:
                table[request_type] = self._tried_again(table[request_type], follow)
        elif not self.is_controller:
            self._leave_to_controller(self._neighbours, table, follow)

    def _tried_again(self, handler: Handler, follow: Callable[[], None]) -> Handler:
        """Return a handler that begins anew, with what there is now, where another node has written before."""

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
                follow()

        return change

    def _leave_to_controller(
        self, neighbours: Neighbours, table: dict[type, Handler], follow: Callable[[], None]
    ) -> None:
        """Have the controller answer; its answer goes to the client when this node knows, too."""

        def leave(connection: Connection, request: Any) -> Work[WireResponse | None]:
            asker = Asker(neighbours.node_id, connection.principal, connection.client_host, is_client=True)
            response: WireResponse | None
            response = yield from ask_and_wait(neighbours, neighbours.controller_id, Question(request, asker))
            follow()
            if response is None:
                connection.refuse(f"node {neighbours.controller_id}, the controller, is gone")
            return response

        for request_type in FOR_THE_CONTROLLER:
            table[request_type] = leave
