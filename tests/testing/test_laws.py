"""Laws that users can call know Kafka's exceptions."""

from __future__ import annotations

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator, GroupState, ManualClock
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.laws import LawBrokenError, check_size
from groupcoord.messages import JoinGroup, JoinGroupResponse, JoinProtocol, SyncGroup


def join(instance_id: str, member_id: str = "", metadata: bytes = b"") -> JoinGroup:
    protocols = (JoinProtocol("range", metadata),)
    return JoinGroup("g", member_id, protocols=protocols, group_instance_id=instance_id, rebalance_timeout_ms=20_000)


def test_static_members_that_are_away_do_not_count() -> None:
    clock = ManualClock()
    coordinator = GroupCoordinator(config=Config(group_max_size=2), clock=clock)
    coordinator.load_all()
    for instance_id in ("away", "here"):
        coordinator.submit(join(instance_id), instance_id)
    for _ in range(2):
        clock.advance(3_000)
        coordinator.tick()
    joined = {token: answer for token, answer in coordinator.take_replies() if isinstance(answer, JoinGroupResponse)}
    for answer in joined.values():
        coordinator.submit(SyncGroup("g", answer.generation_id, answer.member_id))
    here = joined["here"].member_id

    coordinator.submit(join("here", here, b"something new"))
    coordinator.submit(join("third"))
    clock.advance(20_000)
    coordinator.tick()

    (partition,) = [p for p in map(coordinator.partition, range(50)) if p is not None and p.groups]
    group = partition.groups["g"]
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert len(group.members) == 3
    check_size(coordinator)


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])
def test_nobody_joins_a_full_group(monkeypatch: pytest.MonkeyPatch, is_static: bool) -> None:
    """With a coordinator that accepts all, a third waiting join in a group of two breaks the law, static or not."""
    monkeypatch.setattr(GroupMetadata, "join_error", lambda self, member_id, max_size: ErrorCode.NONE)
    coordinator = GroupCoordinator(config=Config(group_max_size=2), clock=ManualClock())
    coordinator.load_all()
    joins = [join(name) for name in ("first", "second", "third")]
    if not is_static:
        joins = [evolve(each, group_instance_id=None, requires_known_member_id=False) for each in joins]

    for each in joins[:2]:
        coordinator.submit(each)
    check_size(coordinator)
    coordinator.submit(joins[2])

    with pytest.raises(LawBrokenError, match="counts 3 members; 2 may join"):
        check_size(coordinator)
