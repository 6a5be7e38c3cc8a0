"""What is planned to happen in a run. It is known before the run begins, so everybody can know when nothing will."""

from __future__ import annotations

from attrs import frozen

from groupcoord.sim.actors.population import Population
from groupcoord.sim.actors.stage import Stage


@frozen(kw_only=True)
class Fault:
    """Something that goes wrong for a while, or a client that comes for a while.

    Attributes:
        start_ms, end_ms: from and until when, milliseconds since the run began. What ends at once has both the same.
    """

    start_ms: int
    end_ms: int

    @property
    def group_id(self) -> str | None:
        """The only group that it affects; None: it may affect all."""
        return None

    def affects(self, group_id: str) -> bool:
        """Tell whether it may affect a group."""
        return self.group_id is None or self.group_id == group_id

    def begin(self, stage: Stage, population: Population) -> None:
        """Let it begin."""

    def end(self, stage: Stage, population: Population) -> None:
        """Let it end."""
