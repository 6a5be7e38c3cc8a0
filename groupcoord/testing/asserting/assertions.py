"""Assertions, waits and queries of ``ServerThread``, blocking and on an event loop."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from groupcoord.broker.broker import Broker
from groupcoord.broker.topics.create_topics import TopicRequests
from groupcoord.broker.topics.registry import TopicError
from groupcoord.broker.work import do_whole
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.testing.asserting.expectations import (
    LOOK_AGAIN_S,
    WAIT_S,
    Attempts,
    Committed,
    Condition,
    Owned,
    Owners,
    Produced,
    Reading,
    Stable,
    Wanted,
    checked_offsets,
    checked_owners,
    refuse_to_block,
)
from groupcoord.testing.asserting.groups import (
    CommittedOffset,
    GroupDescription,
    MemberDescription,
    Unmet,
    committed_offsets,
    describe_group,
    describe_groups,
)
from groupcoord.testing.asserting.records import (
    Appender,
    ConsumerRecord,
    IsolationLevel,
    ProducerRecord,
    TopicDescription,
    Topics,
    checked_topics,
    describe_topics,
    read_records,
    to_records,
)
from groupcoord.testing.asserting.requests import Requests
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    TopicReference,
)

__tracebackhide__ = True  # pytest's reports end at the user's line

P = ParamSpec("P")
T = TypeVar("T")


class Assertions(ABC):
    """Assertions and queries of :class:`~groupcoord.testing.ServerThread`: groups, offsets, records and requests.

    They query the server itself without a client, and do not appear in :attr:`requests`.
    """

    def __init__(self) -> None:
        self._appender = Appender()

    @abstractmethod
    def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the broker in the server's thread and return its result."""

    @abstractmethod
    def submit(self, function: Callable[[Broker], T]) -> Future[T]:
        """Call a function with the broker in the server's thread; return a future of its result."""

    # ------------------------------------------------------------ received requests

    @property
    @abstractmethod
    def requests(self) -> Requests:
        """Received requests with their responses."""

    # ------------------------------------------------------------ groups and offsets

    def wait_until_stable(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group is Stable: each member has its assignment, or receives it with its next heartbeat.

        Args:
            group_id: the group, which need not exist yet.
            members: required number of members; 0 waits until all have left; None for at least one.
            timeout_s: seconds of real time.

        Returns:
            The stable group.

        Raises:
            TimeoutError: the group did not become stable; the message has its state.
        """
        return self._wait(Stable(group_id, members), timeout_s, "wait_until_stable")

    def wait_until_reading(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group is Stable and each member has fetched from each partition that it owns.

        Only then has a consumer with ``auto.offset.reset=latest`` looked up the end of its partitions, so it receives
        later records. A Fetch names no member: consumers of several groups that read the same partitions need different
        client ids.

        Args:
            group_id: the group, which need not exist yet.
            members: required number of members; None for at least one.
            timeout_s: seconds of real time.

        Returns:
            The reading group.

        Raises:
            TimeoutError: a member has not fetched; the message has each such member and its partitions.
        """
        return self._wait(Reading(group_id, members), timeout_s, "wait_until_reading")

    def wait_until(self, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait until a condition on this server holds.

        Args:
            condition: called repeatedly in the server's thread until its result is true: ``lambda:
                server.committed("billing") == {("orders", 0): 3}``. It blocks the server, so it must not wait for a
                client.
            timeout_s: seconds of real time.

        Raises:
            TimeoutError: the condition did not hold in time; the message has the groups.
        """
        return self._wait(Condition(condition), timeout_s, "wait_until")

    def _wait(self, wanted: Wanted[T], timeout_s: float, word: str) -> T:
        if timeout_s > 0:
            refuse_to_block(word, f"server.asyncio.{word}")
        attempts = Attempts(timeout_s)
        while isinstance(found := self.run(wanted.look), Unmet):
            if make_error := attempts.end(wanted, found):
                raise self.run(make_error)
            time.sleep(LOOK_AGAIN_S)
        return found

    def assert_committed(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], timeout_s: float = WAIT_S
    ) -> None:
        """Assert that a group has committed exactly these offsets, within the timeout.

        Args:
            group_id: the group.
            offsets: ``{("orders", 0): 42}``.
            timeout_s: seconds of real time; 0 checks once.

        Raises:
            AssertionError: the offsets differ; the message has each difference, the group and its last requests.
        """
        return self._wait(Committed(group_id, checked_offsets(offsets)), timeout_s, "assert_committed")

    def assert_owned(self, group_id: str, owners: Owners, timeout_s: float = WAIT_S) -> None:
        """Assert the owners of the partitions of a group, within the timeout.

        Args:
            group_id: the group.
            owners: partitions by client id, instance id or member id: ``{"worker-1": [("orders", 0)], "worker-2":
                [("orders", 1)]}``; other members own none. Or a list of partitions, each with exactly one owner:
                ``[("orders", 0)]``.
            timeout_s: seconds of real time; 0 checks once.

        Raises:
            AssertionError: the owners differ; the message has each difference, the group and its last requests.
        """
        return self._wait(Owned(group_id, checked_owners(owners)), timeout_s, "assert_owned")

    def assert_produced(
        self,
        topic: str,
        values: Iterable[ProducerRecord | str | bytes | None],
        *,
        partition: int | None = None,
        isolation_level: IsolationLevel = "read_committed",
        timeout_s: float = WAIT_S,
    ) -> None:
        """Assert that a topic holds exactly these records, within the timeout.

        Args:
            topic: an existing topic.
            values: values, or :class:`ProducerRecord`; omitted fields match anything, and timestamps are ignored. The
                order counts if all records are in one partition.
            partition: check only this partition.
            isolation_level: ``read_uncommitted`` includes records of open and aborted transactions.
            timeout_s: seconds of real time; 0 checks once.

        Raises:
            AssertionError: the records differ; the message has each missing and each surplus record.
            LookupError: the topic or partition does not exist.
        """
        return self._wait(Produced(topic, to_records(values), partition, isolation_level), timeout_s, "assert_produced")

    def group(self, group_id: str) -> GroupDescription | None:
        """Return a group of any type; None if it does not exist."""
        return self.run(partial(describe_group, group_id=group_id))

    @property
    def groups(self) -> tuple[GroupDescription, ...]:
        """All groups, sorted by id."""
        return self.run(describe_groups)

    def members(self, group_id: str) -> tuple[MemberDescription, ...]:
        """Return the members of a group; empty if it does not exist."""
        group = self.group(group_id)
        return () if group is None else group.members

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group, ``{("orders", 0): 42}``; empty if it does not exist."""
        return {
            TopicPartition(committed.topic, committed.partition): committed.offset
            for committed in self.committed_offsets(group_id)
        }

    def committed_offsets(self, group_id: str) -> tuple[CommittedOffset, ...]:
        """Return the committed offsets with metadata and leader epochs, by topic and partition."""
        return self.run(partial(committed_offsets, group_id=group_id))

    # ------------------------------------------------------------ topics and records

    @property
    def topics(self) -> dict[str, TopicDescription]:
        """Topics by name, without Kafka's internal ones."""
        return self.run(describe_topics)

    def create_topics(self, topics: Topics) -> None:
        """Create topics by name with partition counts, or with ``num.partitions`` each.

        Raises:
            TypeError, ValueError: the argument is invalid.
            TopicError: a topic exists already, or its name is invalid.
        """
        counts = checked_topics(topics, self.run(lambda broker: broker.config))
        request = CreateTopics(tuple(CreatableTopic(name, count) for name, count in counts.items()))
        self._change_topics(lambda requests: do_whole(requests.create(request)).topics)

    def create_partitions(self, topic: str, count: int) -> None:
        """Increase the partition count of a topic.

        Args:
            topic: an existing topic.
            count: the new number of partitions.

        Raises:
            TopicError: the topic does not exist, or has as many partitions.
        """
        request = CreatePartitions((CreatePartitionsTopic(topic, count),))
        self._change_topics(lambda requests: do_whole(requests.create_partitions(request)).results)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records and committed offsets.

        Raises:
            TopicError: the topic does not exist.
        """
        request = DeleteTopics((TopicReference(topic, ZERO_UUID),))
        self._change_topics(lambda requests: do_whole(requests.delete(request)).responses)

    def _change_topics(self, change: Callable[[TopicRequests], Iterable[Any]]) -> None:
        def check(broker: Broker) -> None:
            for result in change(broker.topic_requests):
                if result.error_code is not ErrorCode.NONE:
                    raise TopicError(result.error_code, result.error_message)

        self.run(check)

    def produce(
        self,
        topic: str,
        values: Iterable[ProducerRecord | str | bytes | None],
        *,
        partition: int | None = None,
    ) -> tuple[ConsumerRecord, ...]:
        """Append records to a topic, as a producer does.

        Args:
            topic: an existing topic.
            values: values, or :class:`ProducerRecord` for keys, headers or timestamps.
            partition: partition of records that name none; None selects it by key like the Java producer, and in turn
                for records without a key.

        Returns:
            The appended records, in the given order.

        Raises:
            LookupError: the topic or partition does not exist.
            TypeError: a value is neither text nor bytes.
            RecordsRefusedError: the topic refuses the records.
        """
        records = to_records(values, partition)
        return self.run(partial(self._appender.append, topic_name=topic, records=records))

    def records(
        self, topic: str, partition: int | None = None, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[ConsumerRecord]:
        """Return the records of a topic, partition by partition.

        Args:
            topic: an existing topic.
            partition: only this partition.
            isolation_level: ``read_committed`` omits records of open and aborted transactions.

        Raises:
            LookupError: the topic or partition does not exist, or topics hold no records (``records.enable=false``).
            ValueError: the isolation level is unknown.
        """
        return self.run(partial(read_records, topic_name=topic, partition=partition, isolation_level=isolation_level))


def _awaitable(
    method: Callable[Concatenate[Assertions, P], T],
) -> Callable[Concatenate[AsyncServer, P], Coroutine[Any, Any, T]]:
    """Return a wait or assertion with the ``_wait`` of :class:`AsyncServer`."""

    @wraps(method)
    async def wait(server: AsyncServer, /, *arguments: P.args, **named: P.kwargs) -> T:
        awaited: Any = method(cast(Any, server), *arguments, **named)
        result: T = await awaited
        return result

    return wait


class AsyncServer:
    """Awaitable waits and assertions of a server: ``await server.asyncio.wait_until_stable("billing")``.

    Other methods of the server return at once and can be called from a coroutine.

    Args:
        server: the server, which runs in another thread.
    """

    def __init__(self, server: Assertions) -> None:
        self._server = server

    async def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the broker in the server's thread and return its result.

        Raises:
            RuntimeError: the server does not run.
        """
        try:
            return await asyncio.wrap_future(self._server.submit(function))
        except Exception as error:
            raise error.with_traceback(callers_frames(error)) from error.__cause__

    wait_until_stable = _awaitable(Assertions.wait_until_stable)
    wait_until_reading = _awaitable(Assertions.wait_until_reading)
    wait_until = _awaitable(Assertions.wait_until)
    assert_committed = _awaitable(Assertions.assert_committed)
    assert_owned = _awaitable(Assertions.assert_owned)
    assert_produced = _awaitable(Assertions.assert_produced)

    async def _wait(self, wanted: Wanted[T], timeout_s: float, word: str) -> T:
        attempts = Attempts(timeout_s)
        while isinstance(found := await self.run(wanted.look), Unmet):
            if make_error := attempts.end(wanted, found):
                raise await self.run(make_error)
            await asyncio.sleep(LOOK_AGAIN_S)
        return found


def callers_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error of another thread, without this package's frames if the
    caller made a mistake.
    """
    if not isinstance(error, GroupcoordError | ValueError | TypeError | LookupError | RuntimeError | TimeoutError):
        return error.__traceback__
    traceback = error.__traceback__
    while traceback is not None and _is_inside(traceback.tb_frame.f_globals.get("__name__", "")):
        traceback = traceback.tb_next
    return traceback


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("groupcoord", "concurrent", "asyncio", "threading")
