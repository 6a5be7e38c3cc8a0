"""Coordinators for embedding programs, without I/O, with loading of log partitions, ownership and threads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from groupcoord.coordinator.group_coordinator import GroupCoordinator, random_member_id
from groupcoord.coordinator.loading import LoadError
from groupcoord.core.router.partition_table import PartitionStatus

if TYPE_CHECKING:
    from groupcoord.core.groups.classic.group import GroupState
    from groupcoord.core.groups.consumer.group import ConsumerGroupState

__all__ = ["ConsumerGroupState", "GroupCoordinator", "GroupState", "LoadError", "PartitionStatus", "random_member_id"]

_STATES = {"ConsumerGroupState": "consumer.group", "GroupState": "classic.group"}
"""Exported names by module below ``groupcoord.core.groups``."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _STATES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"groupcoord.core.groups.{_STATES[name]}"), name)
