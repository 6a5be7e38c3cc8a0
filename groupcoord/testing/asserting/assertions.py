"""Assertions, waits and queries of ``ServerThread``, blocking and on an event loop."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Protocol, TypeVar

from groupcoord.broker.broker import Broker
from groupcoord.broker.topics.create_topics import answer_create_partitions, answer_create_topics, answer_delete_topics
from groupcoord.broker.topics.registry import TopicError
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.testing.asserting.expectations import (
    LOOK_AGAIN_S,
    WAIT_S,
    Attempts,
    Committed,
    Condition,
    Expected,
    Owned,
    Owners,
    Produced,
    Reading,
    Stability,
    Wanted,
    checked_offsets,
    checked_owners,
    refuse_to_block,
    with_story,
)
from groupcoord.testing.asserting.groups import (
    CommittedOffset,
    GroupDescription,
    MemberDescription,
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
    creatable,
    describe_topics,
    read_records,
    to_records,
)
from groupcoord.testing.asserting.requests import Requests
from groupcoord.wire.broker_messages import (
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    TopicReference,
)

__tracebackhide__ = True  # pytest's reports end at the user's line

T = TypeVar("T")


class Assertions(ABC):
    """The part of :class:`~groupcoord.testing.ServerThread` that looks at groups, offsets, records and requests.

    All of it asks the server itself: no client is needed, and nothing of it is in :attr:`requests`.
    """

    def __init__(self) -> None:
        self._appender = Appender()

    @abstractmethod
    def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function in the server's thread with its broker, and return what it returns."""

    # ------------------------------------------------------------ what came

    @property
    @abstractmethod
    def requests(self) -> Requests:
        """What has come, decoded, with the answers."""

    # ------------------------------------------------------------ groups and offsets

    def wait_until_stable(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group is Stable: each member was told its partitions, or its next heartbeat will.

        Args:
            group_id: the group; it need not be there yet.
            members: how many members it must have; 0 waits until all have left; None: any number but none.
            timeout_s: how long to wait, in seconds of real time.

        Returns:
            The group as it is then.

        Raises:
            TimeoutError: it did not become stable; the message says how it stood.
        """
        return self._wait(Stability(group_id, members), timeout_s, "wait_until_stable")

    def wait_until_reading(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group is Stable and each member has fetched from each partition that it owns.

        From then on a consumer with ``auto.offset.reset=latest`` gets what is produced: it has looked up the end of
        the partition before. In a Stable group it may still be about to.

        Fetch names no member. Consumers that read the same partitions in several groups should have client ids of
        their own.

        Args:
            group_id: the group; it need not exist yet.
            members: how many members it must have; None: any number but none.
            timeout_s: how long to wait, in seconds of real time.

        Returns:
            The group as it is then.

        Raises:
            TimeoutError: a member has not fetched; the message names each, and its partitions.
        """
        return self._wait(Reading(group_id, members), timeout_s, "wait_until_reading")

    def wait_until(self, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait until a condition holds that is about this server.

        Args:
            condition: is called again and again, in the server's thread, until what it returns is true:
                ``lambda: server.committed("billing") == {("orders", 0): 3}``. Nothing else happens in the server
                meanwhile, so it must not wait for a client.
            timeout_s: how long to wait, in seconds of real time.

        Raises:
            TimeoutError: it did not come to hold; the message says how the groups stood.
        """
        self._wait(Condition(condition), timeout_s, "wait_until")

    def _wait(self, wanted: Wanted[T], timeout_s: float, word: str) -> T:
        if timeout_s > 0:
            refuse_to_block(word, f"server.asyncio.{word}")
        attempts = Attempts(timeout_s)
        while True:
            found, reason = self.run(wanted.look)
            if found is not None:
                return found
            attempts.count(wanted, reason)
            time.sleep(LOOK_AGAIN_S)

    def assert_committed(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], timeout_s: float = WAIT_S
    ) -> None:
        """Assert that a group has committed these offsets and no others, or comes to it in time.

        Args:
            group_id: the group.
            offsets: ``{("orders", 0): 42}``.
            timeout_s: how long to wait for that, in seconds of real time; 0 looks once.

        Raises:
            AssertionError: it hasn't; the message has each difference, how the group stands, and what was asked of it.
        """
        self._assert(Committed(group_id, checked_offsets(offsets)), timeout_s, "assert_committed")

    def assert_owned(self, group_id: str, owners: Owners, timeout_s: float = WAIT_S) -> None:
        """Assert who owns which partitions in a group, or comes to own them in time.

        Args:
            group_id: the group.
            owners: partitions by who shall own them, named by client id, instance id or member id:
                ``{"worker-1": [("orders", 0)], "worker-2": [("orders", 1)]}``. Nobody else may own any.
                Or partitions alone, each of which one member shall own, and no others: ``[("orders", 0)]``.
            timeout_s: how long to wait for that, in seconds of real time; 0 looks once.

        Raises:
            AssertionError: it isn't so; the message has each difference, how the group stands, and what was asked of
                it.
        """
        self._assert(Owned(group_id, checked_owners(owners)), timeout_s, "assert_owned")

    def assert_produced(
        self,
        topic: str,
        values: Iterable[ProducerRecord | str | bytes | None],
        *,
        partition: int | None = None,
        isolation_level: IsolationLevel = "read_committed",
        timeout_s: float = WAIT_S,
    ) -> None:
        """Assert that a topic holds these records and no others, or comes to hold them in time.

        Args:
            topic: a topic that exists.
            values: the records' values, or :class:`ProducerRecord`, of which what isn't given may be anything; times
                don't count. Their order counts where all are in one partition.
            partition: look at this one alone.
            isolation_level: ``read_uncommitted`` looks at what belongs to transactions that are open or aborted, too.
            timeout_s: how long to wait for that, in seconds of real time; 0 looks once.

        Raises:
            AssertionError: it doesn't; the message has each record that is missing, or too many.
            LookupError: there is no such topic, or partition.
        """
        self._assert(Produced(topic, to_records(values), partition, isolation_level), timeout_s, "assert_produced")

    def _assert(self, expected: Expected, timeout_s: float, word: str) -> None:
        try:
            self._wait(expected, timeout_s, word)
        except TimeoutError as error:
            message = f"{error}"
        else:
            return
        tell = partial(with_story, requests=self.requests, expected=expected, message=message)
        raise AssertionError(self.run(tell))

    def group(self, group_id: str) -> GroupDescription | None:
        """Return a group of any kind; None if there is none."""
        return self.run(partial(describe_group, group_id=group_id))

    @property
    def groups(self) -> tuple[GroupDescription, ...]:
        """The groups that there are, by name."""
        return self.run(describe_groups)

    def members(self, group_id: str) -> tuple[MemberDescription, ...]:
        """Return the members of a group; none if there is no such group."""
        group = self.group(group_id)
        return () if group is None else group.members

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed: ``{("orders", 0): 42}``; none if there is no such group."""
        return {
            TopicPartition(committed.topic, committed.partition): committed.offset
            for committed in self.committed_offsets(group_id)
        }

    def committed_offsets(self, group_id: str) -> tuple[CommittedOffset, ...]:
        """Return the same with metadata and leader epochs, by topic and partition."""
        return self.run(partial(committed_offsets, group_id=group_id))

    # ------------------------------------------------------------ topics and records

    @property
    def topics(self) -> dict[str, TopicDescription]:
        """The topics that there are, by name, but for Kafka's own."""
        return self.run(describe_topics)

    def create_topics(self, topics: Topics) -> None:
        """Create topics: numbers of partitions by name, or names, which get ``num.partitions`` each.

        Raises:
            TypeError, ValueError: these are no topics; the message says what is wrong.
            TopicError: one is there already, or can't be called that.
        """
        self.run(partial(_create_topics, topics=topics))

    def create_partitions(self, topic: str, count: int) -> None:
        """Let a topic have more partitions.

        Args:
            topic: a topic that exists.
            count: how many it has then.

        Raises:
            TopicError: there is no such topic, or it has as many.
        """
        self.run(partial(_create_partitions, wanted=CreatePartitionsTopic(topic, count)))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, what it holds, and what groups have committed in it.

        Raises:
            TopicError: there is no such topic.
        """
        self.run(partial(_delete_topic, topic=topic))

    def produce(
        self,
        topic: str,
        values: Iterable[ProducerRecord | str | bytes | None],
        *,
        partition: int | None = None,
    ) -> tuple[ConsumerRecord, ...]:
        """Append records to a topic, as a producer would.

        Args:
            topic: a topic that exists.
            values: the records' values, or :class:`ProducerRecord` for those with keys, headers or times.
            partition: where those go that name none; None: by their keys as the Java producer decides, and
                those without a key to one partition after the other.

        Returns:
            The records as they stand in the topic, in the order given.

        Raises:
            LookupError: there is no such topic, or partition.
            TypeError: a value is neither text nor bytes.
            RecordsRefusedError: the topic does not take them.
        """
        records = to_records(values, partition)
        return self.run(partial(self._appender.append, topic_name=topic, records=records))

    def records(
        self, topic: str, partition: int | None = None, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[ConsumerRecord]:
        """Return the records of a topic, one partition after the other.

        Args:
            topic: a topic that exists.
            partition: only this one.
            isolation_level: ``read_committed`` leaves out what belongs to transactions that are open or aborted.

        Raises:
            LookupError: there is no such topic, or partition; or topics hold no records (``records.enable=false``).
            ValueError: there is no such isolation level.
        """
        return self.run(partial(read_records, topic_name=topic, partition=partition, isolation_level=isolation_level))


def _create_partitions(broker: Broker, wanted: CreatePartitionsTopic) -> None:
    answer = answer_create_partitions(CreatePartitions((wanted,)), broker.topics, broker.nodes.leadership).results[0]
    if answer.error_code is not ErrorCode.NONE:
        raise TopicError(answer.error_code, answer.error_message)
    broker.nodes.topics_changed([wanted.name])


def _delete_topic(broker: Broker, topic: str) -> None:
    answer, gone = answer_delete_topics(DeleteTopics((TopicReference(topic, ZERO_UUID),)), broker.topics)
    result = answer.responses[0]
    if result.error_code is not ErrorCode.NONE:
        raise TopicError(result.error_code, result.error_message)
    for each in gone:
        broker.nodes.topic_deleted(each)
        broker.data.delete(each)


def _create_topics(broker: Broker, topics: Topics) -> None:
    wanted = CreateTopics(creatable(checked_topics(topics, broker.config)))
    answer = answer_create_topics(wanted, broker.topics, broker.nodes.leadership, broker.config)
    created = [topic.name for topic in answer.topics if topic.error_code is ErrorCode.NONE]
    if created:
        broker.nodes.topics_created(created)
    for topic in answer.topics:
        if topic.error_code is not ErrorCode.NONE:
            raise TopicError(topic.error_code, topic.error_message)


class Submitting(Protocol):
    """Takes functions that are called in the server's thread: a :class:`~groupcoord.testing.ServerThread`."""

    def submit(self, function: Callable[[Broker], T]) -> Future[T]:
        """Have a function called with the broker."""

    @property
    def requests(self) -> Requests:
        """What has come."""


class AsyncServer:
    """What of a server takes time, for tests on an event loop: ``await server.asyncio.wait_until_stable("billing")``.

    All else that a server can be asked is answered at once, and may be called from a coroutine as it is.

    Args:
        server: the server, which runs in a thread of its own.
    """

    def __init__(self, server: Submitting) -> None:
        self._server = server

    async def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function in the server's thread with its broker, and return what it returns.

        Raises:
            RuntimeError: the server does not run.
        """
        try:
            return await asyncio.wrap_future(self._server.submit(function))
        except Exception as error:
            raise error.with_traceback(callers_frames(error)) from error.__cause__

    async def wait_until_stable(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group is Stable; see :meth:`Assertions.wait_until_stable`.

        Raises:
            TimeoutError: it did not become stable; the message says how it stood.
        """
        return await self._wait(Stability(group_id, members), timeout_s)

    async def wait_until_reading(
        self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until each member of a group has fetched from its partitions; see :meth:`Assertions.wait_until_reading`.

        Raises:
            TimeoutError: a member has not fetched; the message names each, and its partitions.
        """
        return await self._wait(Reading(group_id, members), timeout_s)

    async def wait_until(self, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait until a condition holds that is about this server; see :meth:`Assertions.wait_until`.

        Raises:
            TimeoutError: it did not come to hold; the message says how the groups stood.
        """
        await self._wait(Condition(condition), timeout_s)

    async def assert_committed(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], timeout_s: float = WAIT_S
    ) -> None:
        """Assert that a group commits these offsets and no others; see :meth:`Assertions.assert_committed`.

        Raises:
            AssertionError: it has not.
        """
        await self._assert(Committed(group_id, checked_offsets(offsets)), timeout_s)

    async def assert_owned(self, group_id: str, owners: Owners, timeout_s: float = WAIT_S) -> None:
        """Assert who comes to own which partitions in a group; see :meth:`Assertions.assert_owned`.

        Raises:
            AssertionError: it isn't so.
        """
        await self._assert(Owned(group_id, checked_owners(owners)), timeout_s)

    async def assert_produced(
        self,
        topic: str,
        values: Iterable[ProducerRecord | str | bytes | None],
        *,
        partition: int | None = None,
        isolation_level: IsolationLevel = "read_committed",
        timeout_s: float = WAIT_S,
    ) -> None:
        """Assert that a topic comes to hold these records and no others; see :meth:`Assertions.assert_produced`.

        Raises:
            AssertionError: it does not.
            LookupError: there is no such topic, or partition.
        """
        await self._assert(Produced(topic, to_records(values), partition, isolation_level), timeout_s)

    async def _assert(self, expected: Expected, timeout_s: float) -> None:
        try:
            await self._wait(expected, timeout_s)
        except TimeoutError as error:
            message = f"{error}"
        else:
            return
        tell = partial(with_story, requests=self._server.requests, expected=expected, message=message)
        raise AssertionError(await self.run(tell))

    async def _wait(self, wanted: Wanted[T], timeout_s: float) -> T:
        attempts = Attempts(timeout_s)
        while True:
            found, reason = await self.run(wanted.look)
            if found is not None:
                return found
            attempts.count(wanted, reason)
            await asyncio.sleep(LOOK_AGAIN_S)


def callers_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error of another thread from the first frame on that is the caller's own code.

    Frames of this package and of the standard library's futures say nothing about a mistake of a caller. An error that
    is no mistake in an argument keeps all frames.
    """
    if not isinstance(error, GroupcoordError | ValueError | TypeError | LookupError | RuntimeError | TimeoutError):
        return error.__traceback__
    traceback = error.__traceback__
    while traceback is not None and _is_inside(traceback.tb_frame.f_globals.get("__name__", "")):
        traceback = traceback.tb_next
    return traceback


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("groupcoord", "concurrent", "asyncio", "threading")
