"""Rules of consumer groups that members rarely meet: each takes a second member, a restart or some time to show."""

from __future__ import annotations

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
)
from groupcoord.testing.topics import Topics
from tests.core.own_assignors import Deal


class World:
    """A coordinator of consumer groups, with topics and a log that outlives it."""

    def __init__(self, *assignors: Deal, interval_ms: int = 0) -> None:
        self.topics = Topics(orders=2, other=2)
        self.clock = ManualClock(1_000_000)
        self.store = MemoryLogStore()
        self.coordinator = GroupCoordinator(
            config=Config(
                offsets_topic_num_partitions=1,
                group_consumer_assignment_interval_ms=interval_ms,
                group_consumer_assignors=tuple(assignor.name for assignor in assignors) or ("uniform", "range"),
            ),
            clock=self.clock,
            log_store=self.store,
            topics=self.topics,
            assignors=assignors,
            regexes=self.topics,
        )
        self.coordinator.load_all()

    def beat(
        self, member_id: str, epoch: int = 0, *names: str, regex: str | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        """Join, or send a heartbeat; without any topic what was subscribed to stays."""
        answer = self.coordinator.call(
            ConsumerGroupHeartbeat(
                "g",
                member_id,
                epoch,
                rebalance_timeout_ms=60_000 if epoch == 0 else -1,
                subscribed_topic_names=names or (() if regex else None),
                subscribed_topic_regex=regex,
                topic_partitions=() if epoch == 0 else None,
            )
        )
        self.coordinator.tick()  # answers questions about expressions
        return answer


def test_an_expression_that_is_in_use_is_not_checked_again() -> None:
    """Where expressions are no longer understood, others may use one that a loaded group uses, and no new one."""
    before = World()
    assert before.beat("a", regex="or.*").error_code is ErrorCode.NONE
    after = World()
    after.coordinator = GroupCoordinator(
        config=Config(offsets_topic_num_partitions=1), clock=before.clock, log_store=before.store, topics=before.topics
    )
    after.coordinator.load_all()
    assert after.beat("b", regex="or.*").error_code is ErrorCode.NONE
    assert after.beat("c", regex="ot.*").error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
