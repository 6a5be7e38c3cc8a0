"""Coordinators for embedding programs, without I/O, with loading of log partitions, ownership and threads."""

from groupcoord.coordinator.group_coordinator import (
    GroupCoordinator as GroupCoordinator,
    random_member_id as random_member_id,
)
from groupcoord.coordinator.loading import LoadError as LoadError
from groupcoord.core.router.partition_table import PartitionStatus as PartitionStatus
