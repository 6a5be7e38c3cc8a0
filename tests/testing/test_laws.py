"""Laws that users can call know Kafka's exceptions."""

from __future__ import annotations

from groupcoord import Config, GroupCoordinator, GroupState, ManualClock
from groupcoord.laws import check_size
from groupcoord.messages import JoinGroup, JoinGroupResponse, JoinProtocol, SyncGroup


def join(instance_id: str, member_id: str = "", metadata: bytes = b"") -> JoinGroup:
    """Return the join of a static member."""
    protocols = (JoinProtocol("range", metadata),)
    return JoinGroup("g", member_id, protocols=protocols, group_instance_id=instance_id, rebalance_timeout_ms=20_000)


def test_static_members_that_are_away_do_not_count() -> None:
    """Two static members fill a group; while one is away a third one joins, and the first one stays a member."""
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
