"""Kafka's group coordinator as a library: a synchronous core without I/O; hosts bring clock, log and transport.

Names are imported on first access, because each run of pytest imports this package for its plugin.
"""

from __future__ import annotations

from importlib import import_module

# The import of typing takes longer than all else here; jedi skips "if False".
TYPE_CHECKING = False
if TYPE_CHECKING:
    from groupcoord.clock import Clock, ManualClock, SystemClock
    from groupcoord.config import Config
    from groupcoord.coordinator import GroupCoordinator
    from groupcoord.coordinator.loading import LoadError
    from groupcoord.core.groups.classic.group import GroupState
    from groupcoord.core.groups.consumer.group import ConsumerGroupState
    from groupcoord.core.messages import Reply
    from groupcoord.core.router.authorization import Operation, Resource, ResourceType
    from groupcoord.core.router.partition_table import PartitionStatus
    from groupcoord.core.topics import TopicResolver
    from groupcoord.errors import (
        ConfigError,
        ErrorCode,
        GroupcoordError,
        InvariantError,
        OwnershipLostError,
        StoreContractError,
        UnansweredError,
    )
    from groupcoord.log_store import LogRecord, LogStore, LogStoreError, MemoryLogStore, Ticket

__version__ = "0.1.0"

__all__ = [
    "Clock",
    "Config",
    "ConfigError",
    "ConsumerGroupState",
    "ErrorCode",
    "GroupCoordinator",
    "GroupState",
    "GroupcoordError",
    "InvariantError",
    "LoadError",
    "LogRecord",
    "LogStore",
    "LogStoreError",
    "ManualClock",
    "MemoryLogStore",
    "Operation",
    "OwnershipLostError",
    "PartitionStatus",
    "Reply",
    "Resource",
    "ResourceType",
    "StoreContractError",
    "SystemClock",
    "Ticket",
    "TopicResolver",
    "UnansweredError",
]

_MODULES = {
    "clock": ("Clock", "ManualClock", "SystemClock"),
    "config": ("Config",),
    "coordinator": ("GroupCoordinator",),
    "coordinator.loading": ("LoadError",),
    "core.groups.classic.group": ("GroupState",),
    "core.groups.consumer.group": ("ConsumerGroupState",),
    "core.messages": ("Reply",),
    "core.router.authorization": ("Operation", "Resource", "ResourceType"),
    "core.router.partition_table": ("PartitionStatus",),
    "core.topics": ("TopicResolver",),
    "log_store": ("LogRecord", "LogStore", "LogStoreError", "MemoryLogStore", "Ticket"),
}
"""Modules of the public names; the others are errors."""

if not TYPE_CHECKING:  # type checkers use the imports above

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = next((module for module, names in _MODULES.items() if name in names), "errors")
        value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
