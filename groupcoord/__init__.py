"""Kafka's group coordinator as a library: a synchronous core without I/O; hosts bring clock, log and transport."""

from groupcoord.clock import Clock, ManualClock, SystemClock
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.authorization import Operation, Resource, ResourceType
from groupcoord.core.effects import Reply
from groupcoord.core.partitions import PartitionStatus
from groupcoord.core.states import GroupState
from groupcoord.core.topics import TopicResolver
from groupcoord.errors import ConfigError, ErrorCode, GroupcoordError, InvariantError, StoreContractError
from groupcoord.log_store import LogRecord, LogStore, LogStoreError, MemoryLogStore, Ticket

__version__ = "0.1.0"

__all__ = [
    "Clock",
    "Config",
    "ConfigError",
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
    "PartitionStatus",
    "Reply",
    "Resource",
    "ResourceType",
    "StoreContractError",
    "SystemClock",
    "Ticket",
    "TopicResolver",
]
