"""Hypothesis strategy for conversations between clients and a coordinator, with the resulting log.

Use it for code that reads such traffic or logs, or answers it: analysers, proxies, other coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from groupcoord.config import Config
from groupcoord.core.messages import (
    CompleteTransaction,
    DeleteGroups,
    GroupToFetch,
    OffsetDelete,
    OffsetFetch,
    Request,
    Response,
    TopicToDelete,
)
from groupcoord.log_store import LogRecord
from groupcoord.testing.machine.consumers import PARTITIONS, PRODUCER_EPOCH, TOPIC, Consumer, Sent, in_transaction
from groupcoord.testing.machine.modern_members import CONSUMERS
from groupcoord.testing.machine.world import World

STEPS_MAX = 20
CONSUMERS_MAX = 6

ABOUT_GROUPS: dict[str, Callable[[str], Request]] = {
    "fetch": lambda group_id: OffsetFetch((GroupToFetch(group_id, None),)),
    "delete offsets": lambda group_id: OffsetDelete(group_id, (TopicToDelete(TOPIC, tuple(range(PARTITIONS))),)),
    "delete group": lambda group_id: DeleteGroups((group_id,)),
}
"""Requests of administrators."""
NEED_AN_EMPTY_GROUP = ("delete offsets", "delete group")

EXPIRED_AFTER_MS = 150_000
OUTCOMES = ("committed", "aborted", "open")
FIRST_PRODUCER_ID = 1_000
LEAVING_ROUNDS_MAX = 10
SETTLING_ROUNDS = 5
"""Rounds after which consumers mostly share the partitions and have committed."""


class Exchange(NamedTuple):
    """Request and response.

    Attributes:
        sent_ms: milliseconds since the Unix epoch.
        request: the request.
        answered_ms: time of the response, or None.
        response: the response, or None.
    """

    sent_ms: int
    request: Request
    answered_ms: int | None
    response: Response | None


@frozen
class History:
    """Conversation between clients and a coordinator.

    Attributes:
        exchanges: all requests in the order of their sending.
        logs: records by log partition, without empty partitions.
    """

    exchanges: tuple[Exchange, ...]
    logs: dict[int, tuple[LogRecord, ...]]


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    group_ids: Collection[str] = ("alpha", "beta"),
    protocols: Collection[str] = ("classic", "consumer"),
    static_members: bool = True,
    deaths: bool = True,
    deletions: bool = True,
    transactions: bool = True,
    max_consumers: int = CONSUMERS_MAX,
    max_steps: int = STEPS_MAX,
) -> History:
    """Return histories of groups: consumers start, share the topic ``orders``, commit, leave and die.

    Offsets are also fetched, committed in transactions, deleted and expired. A coordinator on a virtual clock played
    each history, so it conforms to the protocol; the simplest one is empty. A classic group that a consumer of KIP-848
    joins is converted, and converted back after the last one has left. Share groups (KIP-932) and streams groups
    (KIP-1071) reject members of other protocols; theirs also read the topic ``audit``.

    Args:
        group_ids: the groups to choose from.
        protocols: the values of ``group.protocol`` to choose from: ``classic``, ``consumer`` and ``streams``, and
            ``share`` for members of share groups.
        static_members: some consumers have instance ids (KIP-345), but no members of share groups.
        deaths: some consumers die, so that their sessions expire.
        deletions: administrators delete offsets and groups, and offsets of empty groups expire after a minute
            (``offsets.retention.minutes``), so logs have tombstones.
        transactions: consumers commit offsets in transactions that are committed, aborted or left open.
        max_consumers: maximum number of consumers.
        max_steps: maximum number of steps, each of which may have several requests.

    Raises:
        InvalidArgument: no groups exist or protocols, or a number is negative.
    """
    if isinstance(group_ids, str) or not group_ids:
        raise InvalidArgument(f"group_ids={group_ids!r} must be a collection of at least one id")
    if isinstance(protocols, str) or not protocols or not CONSUMERS.keys() >= set(protocols):
        raise InvalidArgument(f"protocols={protocols!r} must be a collection of at least one of {', '.join(CONSUMERS)}")
    for name, value in (("max_consumers", max_consumers), ("max_steps", max_steps)):
        if not isinstance(value, int) or value < 0:
            raise InvalidArgument(f"{name}={value!r} must be a whole number, and not negative")
    world = _RecordedWorld(expires=deletions)
    kinds = ["come", "go on", "leave", "fetch"] + ["die"] * deaths + ["transaction"] * transactions
    kinds += ["delete offsets", "delete group", "expire"] * deletions
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=max_steps)):
        ready = world.fleet.ready()
        came = len(world.fleet.consumers)
        if (kind == "come" or not came) and came < max_consumers:
            group_id, protocol = draw(st.sampled_from(sorted(group_ids))), draw(st.sampled_from(sorted(protocols)))
            for number in range(came, min(draw(st.integers(1, 3)) + came, max_consumers)):
                instance_id = f"i{number}" if static_members and draw(st.booleans()) else None
                world.fleet.consumers.append(CONSUMERS[protocol](f"c{number}", group_id, instance_id))
        elif kind == "leave" and ready:
            world.leave(draw(st.sampled_from(ready)))
        elif kind == "die" and ready:
            draw(st.sampled_from(ready)).is_alive = False
        elif kind == "transaction" and ready:
            world.commit_in_transaction(draw(st.sampled_from(ready)), draw(st.sampled_from(OUTCOMES)))
        elif kind == "expire":
            world.expire_offsets(group_ids)
        elif kind in ABOUT_GROUPS:
            known = {consumer.group_id for consumer in world.fleet.consumers} or group_ids
            world.administer(kind, draw(st.sampled_from(sorted(known))), settles=draw(st.booleans()))
        if kind != "die":
            rounds, interval_ms = draw(st.integers(0, 5)), draw(st.sampled_from([0, 1_000, 3_000]))
            world.live_for(rounds, interval_ms, commits=draw(st.booleans()))
    return world.history()


class _RecordedWorld(World):
    def __init__(self, *, expires: bool) -> None:
        self._exchanges: dict[int, Exchange] = {}
        config = Config(offsets_topic_num_partitions=2)
        if expires:
            config = evolve(config, offsets_retention_minutes=1, offsets_retention_check_interval_ms=30_000)
        self.begin(config)

    def send(self, request: Request, token: int) -> None:
        self._exchanges[token] = Exchange(self.clock.now_ms(), request, None, None)
        super().send(request, token)

    def on_answer(self, sent: Sent, response: Response | None) -> None:
        if response is not None:
            answered = self._exchanges[sent.token]._replace(answered_ms=self.clock.now_ms(), response=response)
            self._exchanges[sent.token] = answered

    def live_for(self, rounds: int, interval_ms: int, *, commits: bool) -> None:
        for _ in range(rounds):
            self.all_go_on(commits=commits)
            self.sleep(interval_ms)

    def commit_in_transaction(self, consumer: Consumer, outcome: str) -> None:
        self.live_for(SETTLING_ROUNDS, 1_000, commits=False)
        commit = consumer.commit()
        if commit is None:
            return
        producer_id = FIRST_PRODUCER_ID + self.fleet.consumers.index(consumer)
        self.submit(in_transaction(commit, producer_id, consumer.name))
        if outcome != "open":
            partition = self.coordinator.partition_of(consumer.group_id)
            self.submit(CompleteTransaction(partition, producer_id, PRODUCER_EPOCH, outcome == "committed"))

    def administer(self, kind: str, group_id: str, *, settles: bool) -> None:
        """Send an administrator's request; ``settles`` lets the group commit and empty first."""
        if settles:
            self.live_for(SETTLING_ROUNDS, 1_000, commits=True)
            if kind in NEED_AN_EMPTY_GROUP:
                self.have_all_leave([group_id])
        self.submit(ABOUT_GROUPS[kind](group_id))

    def expire_offsets(self, group_ids: Collection[str]) -> None:
        self.live_for(SETTLING_ROUNDS, 1_000, commits=True)
        if self.have_all_leave(group_ids):
            self.sleep(EXPIRED_AFTER_MS)

    def have_all_leave(self, group_ids: Collection[str]) -> bool:
        """Stop the consumers of groups with a leave; return False if one has a request in flight and cannot."""
        for _ in range(LEAVING_ROUNDS_MAX):
            for consumer in self.fleet.ready():
                if consumer.group_id in group_ids:
                    self.leave(consumer)
            if not any(self.fleet.living(group_id) for group_id in group_ids):
                return True
            self.live_for(1, 3_000, commits=False)
        return False

    def history(self) -> History:
        logs = {index: tuple(self.store.read(index)) for index in range(self.config.offsets_topic_num_partitions)}
        return History(tuple(self._exchanges.values()), {index: log for index, log in logs.items() if log})
