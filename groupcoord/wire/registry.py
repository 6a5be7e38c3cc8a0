"""The APIs that are served. A new one is a file beside this, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from groupcoord.wire import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from groupcoord.wire.api import Api, VersionRange

_MODULES = (
    produce,
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
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    describe_configs,
    alter_configs,
    create_partitions,
    delete_groups,
    incremental_alter_configs,
    offset_delete,
    describe_producers,
    describe_transactions,
    list_transactions,
    consumer_group_heartbeat,
    consumer_group_describe,
)

APIS: Mapping[int, Api] = MappingProxyType({module.API.key: module.API for module in _MODULES})
"""Every API by its key."""

API_VERSIONS: Mapping[int, VersionRange] = MappingProxyType({api.key: api.listed_versions for api in APIS.values()})
"""The versions of every API that is read and written here, by its key: what an answer to ApiVersions lists where all of
them are served."""
