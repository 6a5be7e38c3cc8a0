"""The coordinators that programs embed, without I/O of their own, and what surrounds them there: loading, threads."""

from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.coordinator.loading import LoadError
from groupcoord.coordinator.random_ids import random_member_id
from groupcoord.core.groups.classic.state import GroupState
from groupcoord.core.groups.consumer.group import ConsumerGroupState
from groupcoord.core.router.partition_table import PartitionStatus

__all__ = ["ConsumerGroupState", "GroupCoordinator", "GroupState", "LoadError", "PartitionStatus", "random_member_id"]
