"""What a streams group knows that a restart forgets, besides its timers."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field, frozen

from groupcoord.core.messages import TaskOffset
from groupcoord.core.streams.assignors import MemberTasks
from groupcoord.core.streams.topology import ConfiguredTopology


@define
class MemberOffsets:
    """How far a member has come, as it told last.

    Attributes:
        offsets: with the state of its tasks.
        end_offsets: where these end.
    """

    offsets: tuple[TaskOffset, ...] = ()
    end_offsets: tuple[TaskOffset, ...] = ()


@frozen
class UsedTarget:
    """The target that was used last.

    It stays as long as its epoch does: a member that leaves and comes back under it has its tasks again, although the
    log has forgotten them (Kafka 4.4, which prepares warm-up tasks with it).

    Attributes:
        epoch: for which it was made.
        tasks: by member id.
    """

    epoch: int
    tasks: Mapping[str, MemberTasks]


@define
class StreamsMemory:
    """What is forgotten in a restart, and not taken back when a heartbeat is refused.

    What a heartbeat has found out of topics and targets is forgotten when the log refuses what it writes, as in Kafka.

    Attributes:
        configured: what the topology came to in the cluster; None if nobody has looked.
        endpoint_epoch: counts changes of members' endpoints, and of what lies behind them.
        task_offsets: by member id.
        shutdown_by: the member that asked first for all of the application to stop; None if nobody has.
        used_target: the target that was used last.
    """

    configured: ConfiguredTopology | None = None
    endpoint_epoch: int = 0
    task_offsets: dict[str, MemberOffsets] = field(factory=dict)
    shutdown_by: str | None = None
    used_target: UsedTarget | None = None
    _settled: tuple[ConfiguredTopology | None, UsedTarget | None] = (None, None)

    def settle(self) -> None:
        """Nothing of what was found out hangs on a write any more."""
        self._settled = self.configured, self.used_target

    def revert(self) -> None:
        """Forget what was found out with a write that the log has refused."""
        self.configured, self.used_target = self._settled

    def note_offsets(
        self,
        member_id: str,
        offsets: tuple[TaskOffset, ...] | None,
        end_offsets: tuple[TaskOffset, ...] | None,
    ) -> None:
        """Keep what a member tells of its tasks; None: as it told last."""
        if offsets is None and end_offsets is None:
            return
        known = self.task_offsets.setdefault(member_id, MemberOffsets())
        known.offsets = known.offsets if offsets is None else offsets
        known.end_offsets = known.end_offsets if end_offsets is None else end_offsets

    def target_of(
        self, member_id: str, epoch: int, targets: Mapping[str, MemberTasks], *, keeps_used: bool
    ) -> MemberTasks:
        """Return what a member is to have in the end.

        Args:
            member_id: the member.
            epoch: of the target.
            targets: the target as the log has it.
            keeps_used: the target that was used at this epoch is used again.
        """
        if not keeps_used:
            return targets.get(member_id, MemberTasks())
        return self.use_target(epoch, targets).tasks.get(member_id, MemberTasks())

    def use_target(self, epoch: int, targets: Mapping[str, MemberTasks]) -> UsedTarget:
        """Return the target that is used at an epoch: the first that was, be its write refused or not."""
        if self.used_target is None or self.used_target.epoch != epoch:
            self.used_target = UsedTarget(epoch, dict(targets.items()))
        return self.used_target

    def replace_member(self, old_member_id: str, member_id: str) -> None:
        """A static member goes on under another id."""
        if self.used_target is not None and old_member_id in self.used_target.tasks:
            tasks = dict(self.used_target.tasks)
            tasks[member_id] = tasks.pop(old_member_id)
            self.used_target = UsedTarget(self.used_target.epoch, tasks)
