"""Regular expressions of a consumer group: when they are matched again, and a load without a resolver for them."""

from __future__ import annotations

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.topics import Topics

MATCHED_MS = 1_700_000_000_000


def test_a_loaded_group_keeps_its_expressions_without_a_resolver() -> None:
    topics, clock, log_store = Topics(orders=2, other=2), ManualClock(MATCHED_MS), MemoryLogStore()
    config = Config(offsets_topic_num_partitions=1)

    def join(coordinator: GroupCoordinator, member_id: str, regex: str) -> ErrorCode:
        answer = coordinator.call(Kip848Consumer("", "g", member_id=member_id, topics=(), regex=regex).join_request())
        coordinator.tick()  # takes the answer of the resolver
        return answer.error_code

    before = GroupCoordinator(config=config, clock=clock, log_store=log_store, topics=topics, regexes=topics)
    before.load_all()
    assert join(before, "a", "or.*") is ErrorCode.NONE
    after = GroupCoordinator(config=config, clock=clock, log_store=log_store, topics=topics)
    after.load_all()
    assert join(after, "b", "or.*") is ErrorCode.NONE
    assert join(after, "c", "ot.*") is ErrorCode.INVALID_REGULAR_EXPRESSION
