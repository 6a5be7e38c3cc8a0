"""Kafka's group coordinator as a library: a synchronous core without I/O; hosts bring clock, log and transport.

Names are imported on first access, because each run of pytest imports this package for its plugin.
"""

from __future__ import annotations

from groupcoord.lazy import attach

TYPE_CHECKING = False  # the import of typing takes longer than all else
if TYPE_CHECKING:
    from groupcoord.clock import Clock as Clock, ManualClock as ManualClock, SystemClock as SystemClock
    from groupcoord.config import Config as Config
    from groupcoord.coordinator import GroupCoordinator as GroupCoordinator
    from groupcoord.coordinator.loading import LoadError as LoadError
    from groupcoord.core.groups.classic.group import GroupState as GroupState
    from groupcoord.core.groups.consumer.group import ConsumerGroupState as ConsumerGroupState
    from groupcoord.core.messages import Reply as Reply
    from groupcoord.core.router.authorization import (
        Operation as Operation,
        Resource as Resource,
        ResourceType as ResourceType,
    )
    from groupcoord.core.router.partition_table import PartitionStatus as PartitionStatus
    from groupcoord.core.topics import TopicResolver as TopicResolver
    from groupcoord.errors import (
        ConfigError as ConfigError,
        ErrorCode as ErrorCode,
        GroupcoordError as GroupcoordError,
        InvariantError as InvariantError,
        OwnershipLostError as OwnershipLostError,
        StoreContractError as StoreContractError,
        UnansweredError as UnansweredError,
    )
    from groupcoord.log_store import (
        LogRecord as LogRecord,
        LogStore as LogStore,
        LogStoreError as LogStoreError,
        MemoryLogStore as MemoryLogStore,
        Ticket as Ticket,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".clock": "Clock ManualClock SystemClock",
            ".config": "Config",
            ".coordinator": "GroupCoordinator",
            ".coordinator.loading": "LoadError",
            ".core.groups.classic.group": "GroupState",
            ".core.groups.consumer.group": "ConsumerGroupState",
            ".core.messages": "Reply",
            ".core.router.authorization": "Operation Resource ResourceType",
            ".core.router.partition_table": "PartitionStatus",
            ".core.topics": "TopicResolver",
            ".errors": (
                "ConfigError ErrorCode GroupcoordError InvariantError "
                "OwnershipLostError StoreContractError UnansweredError"
            ),
            ".log_store": "LogRecord LogStore LogStoreError MemoryLogStore Ticket",
        },
    )

__version__ = "0.1.0"
