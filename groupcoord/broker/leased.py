"""A broker that may answer about groups as long as it is sure to own its log partitions, and no longer."""

from __future__ import annotations

from typing import Any

from groupcoord.broker.broker import Broker
from groupcoord.broker.work import Token
from groupcoord.core.router.authorization import Principal


class LeasedBroker(Broker):
    """A node whose answers about groups hold as long as its lease does.

    Attributes:
        has_told: something was answered about groups while the lease lasted, and may not be sent yet.
    """

    has_told = False

    def _submit(self, request: Any, token: Token, principal: Principal) -> None:
        self.has_told = self.has_told or not self.coordinator.is_lease_over
        super()._submit(request, token, principal)

    def deliver_replies(self) -> None:
        """See :class:`~groupcoord.broker.broker.Broker`."""
        before, may_tell = len(self.dirty), not self.coordinator.is_lease_over
        super().deliver_replies()
        self.has_told = self.has_told or (may_tell and len(self.dirty) > before)
