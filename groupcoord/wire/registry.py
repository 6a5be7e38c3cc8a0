"""The APIs that are served. A new one is a file beside this, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from groupcoord.wire import (
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    sync_group,
)
from groupcoord.wire.api import Api, VersionRange

_MODULES = (
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    api_versions,
    create_topics,
    delete_topics,
    create_partitions,
    delete_groups,
)

APIS: Mapping[int, Api] = MappingProxyType({module.API.key: module.API for module in _MODULES})
"""Every API by its key."""

API_VERSIONS: Mapping[int, VersionRange] = MappingProxyType({api.key: api.versions for api in APIS.values()})
"""The versions of every API that is answered, by its key: what an answer to ApiVersions lists."""
