"""What comes as a group of its own, with instances that are restarted one after the other if that is wanted."""

from __future__ import annotations

from attrs import frozen

from groupcoord.sim.actors.fault import Fault


@frozen(kw_only=True)
class Application(Fault):
    """Some instances of a program come, as a group that has no consumers besides, and go at the end.

    Attributes:
        group: its name.
        instances: how many there are, each a member.
        topics: what it reads.
        restart_from_ms: when the first instance is restarted, milliseconds since the run began; None: never.
        restart_every_ms: how long after one instance the next one is restarted, until all have been.
        down_ms: how long an instance is gone.
        is_graceful: it leaves the group before; else it is killed.
    """

    group: str
    instances: int
    topics: tuple[str, ...]
    restart_from_ms: int | None = None
    restart_every_ms: int = 30_000
    down_ms: int = 5_000
    is_graceful: bool = True

    @property
    def group_id(self) -> str | None:
        """Its own group, which has no consumers."""
        return self.group

    def restart_ms(self, index: int) -> int | None:
        """Return when an instance is restarted, milliseconds since the run began; None: not before all end."""
        if self.restart_from_ms is None:
            return None
        restart_ms = self.restart_from_ms + index * self.restart_every_ms
        return restart_ms if restart_ms < self.end_ms else None
