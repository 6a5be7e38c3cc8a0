"""A request of each API as a client would write it, with every field of every version set to something of its own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.wire.share_sample_requests import SHARE_BODIES, TOPIC_ID

OTHER_TOPIC_ID = UUID("722e7fa4-33ce-4317-afdd-52b4694ada85")

BODIES: dict[int, dict[str, Any]] = {
    **SHARE_BODIES,
    0: {
        "transactional_id": "transaction",
        "acks": -1,
        "timeout": 1500,
        "topic_data": [
            {
                "name": "orders",
                "topic_id": TOPIC_ID,
                "partition_data": [{"index": 3, "records": b"records"}, {"index": 0, "records": None}],
            },
            {"name": "bills", "topic_id": OTHER_TOPIC_ID, "partition_data": []},
        ],
    },
    1: {
        "cluster_id": "cluster",
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 50_000,
        "isolation_level": 1,
        "session_id": 77,
        "session_epoch": 3,
        "topics": [
            {
                "topic": "orders",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition": 4,
                        "current_leader_epoch": 9,
                        "fetch_offset": 2**40,
                        "last_fetched_epoch": 8,
                        "log_start_offset": 6,
                        "partition_max_bytes": 1000,
                        "replica_directory_id": OTHER_TOPIC_ID,
                        "high_watermark": 55,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [{"topic": "bills", "topic_id": OTHER_TOPIC_ID, "partitions": [1, 2]}],
        "rack_id": "rack",
    },
    2: {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [
            {
                "name": "orders",
                "partitions": [{"partition_index": 3, "current_leader_epoch": 7, "timestamp": -2}],
            }
        ],
        "timeout": 4000,
    },
    3: {
        "topics": [{"topic_id": UUID(int=0), "name": "orders"}, {"topic_id": UUID(int=0), "name": "bills"}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    },
    8: {
        "group_id": "group",
        "generation_id_or_member_epoch": 12,
        "member_id": "member",
        "group_instance_id": "instance",
        "retention_time": 86_400_000,
        "topics": [
            {
                "name": "orders",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition_index": 3,
                        "committed_offset": 2**40,
                        "committed_leader_epoch": 5,
                        "committed_metadata": "größe",
                    },
                    {
                        "partition_index": 4,
                        "committed_offset": 0,
                        "committed_leader_epoch": -1,
                        "committed_metadata": None,
                    },
                    {
                        "partition_index": 5,
                        "committed_offset": -1,
                        "committed_leader_epoch": 0,
                        "committed_metadata": "",
                    },
                ],
            },
            {"name": "bills", "topic_id": OTHER_TOPIC_ID, "partitions": []},
        ],
    },
    9: {
        "group_id": "group",
        "topics": [{"name": "orders", "partition_indexes": [3, 0]}, {"name": "bills", "partition_indexes": []}],
        "groups": [
            {
                "group_id": "group",
                "member_id": "member",
                "member_epoch": 6,
                "topics": [
                    {"name": "orders", "topic_id": TOPIC_ID, "partition_indexes": [3, 0]},
                    {"name": "bills", "topic_id": OTHER_TOPIC_ID, "partition_indexes": []},
                ],
            },
            {"group_id": "", "member_id": None, "member_epoch": -1, "topics": None},
        ],
        "require_stable": True,
    },
    10: {"key": "group", "key_type": 0, "coordinator_keys": ["group", "other"]},
    11: {
        "group_id": "group",
        "session_timeout": 10_000,
        "rebalance_timeout": -5,
        "member_id": "member",
        "group_instance_id": "instance",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x00\x01"}, {"name": "sticky", "metadata": b""}],
        "reason": "why not",
    },
    12: {"group_id": "group", "generation_id": 12, "member_id": "member", "group_instance_id": "instance"},
    13: {
        "group_id": "group",
        "member_id": "member",
        "members": [
            {"member_id": "member", "group_instance_id": None, "reason": "bye"},
            {"member_id": "", "group_instance_id": "instance", "reason": None},
        ],
    },
    14: {
        "group_id": "group",
        "generation_id": 12,
        "member_id": "member",
        "group_instance_id": "instance",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "member", "assignment": b"\x01"}, {"member_id": "other", "assignment": b""}],
    },
    15: {"groups": ["group", ""], "include_authorized_operations": True},
    16: {"states_filter": ["Stable"], "types_filter": ["classic", "consumer"]},
    17: {"mechanism": "SCRAM-SHA-256"},
    18: {"client_software_name": "some-client", "client_software_version": "1.2.3"},
    19: {
        "topics": [
            {
                "name": "orders",
                "num_partitions": -1,
                "replication_factor": 1,
                "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
                "configs": [{"name": "retention.ms", "value": "7"}, {"name": "cleanup.policy", "value": None}],
            }
        ],
        "timeout": 1234,
        "validate_only": True,
    },
    20: {
        "topics": [{"name": "orders", "topic_id": UUID(int=0)}, {"name": None, "topic_id": TOPIC_ID}],
        "topic_names": ["orders", "bills"],
        "timeout": 1234,
    },
    21: {
        "topics": [
            {
                "name": "orders",
                "partitions": [{"partition_index": 3, "offset": 2**40}, {"partition_index": 0, "offset": -1}],
            }
        ],
        "timeout": 1500,
    },
    23: {
        "replica_id": -2,
        "topics": [
            {
                "topic": "orders",
                "partitions": [{"partition": 3, "current_leader_epoch": 5, "leader_epoch": 4}],
            }
        ],
    },
    61: {"topics": [{"name": "orders", "partition_indexes": [3, 0]}]},
    66: {
        "state_filters": ["Ongoing"],
        "producer_id_filters": [2**40],
        "duration_filter": 1500,
        "transactional_id_pattern": "w.*",
    },
    22: {"transactional_id": "writer", "transaction_timeout": 60_000, "producer_id": 2**40, "producer_epoch": 3},
    24: {
        "transactions": [
            {
                "transactional_id": "writer",
                "producer_id": 2**40,
                "producer_epoch": 3,
                "verify_only": True,
                "topics": [{"name": "orders", "partitions": [0, 2]}, {"name": "bills", "partitions": []}],
            }
        ],
        "v3_and_below_transactional_id": "writer",
        "v3_and_below_producer_id": 2**40,
        "v3_and_below_producer_epoch": 3,
        "v3_and_below_topics": [{"name": "orders", "partitions": [0, 2]}, {"name": "bills", "partitions": []}],
    },
    25: {"transactional_id": "writer", "producer_id": 2**40, "producer_epoch": 3, "group_id": "group"},
    26: {"transactional_id": "writer", "producer_id": 2**40, "producer_epoch": 3, "committed": True},
    27: {
        "markers": [
            {
                "producer_id": 2**40,
                "producer_epoch": 3,
                "transaction_result": True,
                "topics": [{"name": "orders", "partition_indexes": [0, 2]}],
                "coordinator_epoch": 5,
                "transaction_version": 2,
            }
        ]
    },
    28: {
        "transactional_id": "writer",
        "group_id": "group",
        "producer_id": 2**40,
        "producer_epoch": 3,
        "generation_id": 12,
        "member_id": "member",
        "group_instance_id": "instance",
        "topics": [
            {
                "name": "orders",
                "partitions": [
                    {
                        "partition_index": 3,
                        "committed_offset": 2**40,
                        "committed_leader_epoch": 5,
                        "committed_metadata": "größe",
                    },
                    {
                        "partition_index": 4,
                        "committed_offset": 0,
                        "committed_leader_epoch": -1,
                        "committed_metadata": None,
                    },
                ],
            },
            {"name": "bills", "partitions": []},
        ],
    },
    32: {
        "resources": [
            {"resource_type": 32, "resource_name": "group", "configuration_keys": ["consumer.session.timeout.ms"]},
            {"resource_type": 2, "resource_name": "orders", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "", "configuration_keys": []},
        ],
        "include_synonyms": True,
        "include_documentation": True,
    },
    33: {
        "resources": [
            {
                "resource_type": 32,
                "resource_name": "group",
                "configs": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
            },
            {"resource_type": -1, "resource_name": "", "configs": []},
        ],
        "validate_only": True,
    },
    35: {"topics": [{"topic": "orders", "partitions": [3, 0]}, {"topic": "bills", "partitions": []}]},
    37: {
        "topics": [
            {"name": "orders", "count": 6, "assignments": [{"broker_ids": [1]}, {"broker_ids": [2]}]},
            {"name": "bills", "count": 7, "assignments": None},
        ],
        "timeout": 1234,
        "validate_only": True,
    },
    42: {"groups_names": ["group", ""]},
    43: {
        "election_type": 1,
        "topic_partitions": [{"topic": "orders", "partitions": [3, 0]}, {"topic": "bills", "partitions": []}],
        "timeout": 1234,
    },
    44: {
        "resources": [
            {
                "resource_type": 32,
                "resource_name": "group",
                "configs": [
                    {"name": "a", "config_operation": 2, "value": "1"},
                    {"name": "b", "config_operation": 1, "value": None},
                ],
            },
            {"resource_type": -1, "resource_name": "", "configs": []},
        ],
        "validate_only": True,
    },
    45: {
        "timeout": 1234,
        "allow_replication_factor_change": False,
        "topics": [
            {
                "name": "orders",
                "partitions": [
                    {"partition_index": 3, "replicas": [1, 2]},
                    {"partition_index": 0, "replicas": None},
                ],
            },
            {"name": "bills", "partitions": []},
        ],
    },
    46: {
        "timeout": 1234,
        "topics": [{"name": "orders", "partition_indexes": [3, 0]}, {"name": "bills", "partition_indexes": []}],
    },
    47: {
        "group_id": "group",
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": 3}, {"partition_index": 0}]},
            {"name": "bills", "partitions": []},
        ],
    },
    29: {
        "resource_type_filter": 2,
        "resource_name_filter": "größe",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": "10.0.0.1",
        "operation": 1,
        "permission_type": 3,
    },
    30: {
        "creations": [
            {
                "resource_type": 3,
                "resource_name": "größe",
                "resource_pattern_type": 4,
                "principal": "User:alice",
                "host": "*",
                "operation": 3,
                "permission_type": 2,
            }
        ]
    },
    31: {
        "filters": [
            {
                "resource_type_filter": 1,
                "resource_name_filter": None,
                "pattern_type_filter": 2,
                "principal_filter": "User:alice",
                "host_filter": None,
                "operation": 2,
                "permission_type": 1,
            }
        ]
    },
    36: {"auth_bytes": b"\0alice\0secret"},
    50: {"users": [{"name": "größe"}, {"name": "alice"}]},
    51: {
        "deletions": [{"name": "bob", "mechanism": 2}],
        "upsertions": [
            {"name": "größe", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"\xff" * 32}
        ],
    },
    48: {
        "components": [
            {"entity_type": "user", "match_type": 0, "match": "größe"},
            {"entity_type": "ip", "match_type": 2, "match": None},
        ],
        "strict": True,
    },
    55: {
        "topics": [
            {"topic_name": "orders", "partitions": [{"partition_index": 3}, {"partition_index": 0}]},
            {"topic_name": "bills", "partitions": []},
        ]
    },
    34: {
        "dirs": [
            {"path": "/data", "topics": [{"name": "orders", "partitions": [3, 0]}]},
            {"path": "/other", "topics": [{"name": "bills", "partitions": []}]},
        ]
    },
    38: {
        "owner_principal_type": "User",
        "owner_principal_name": "größe",
        "renewers": [{"principal_type": "User", "principal_name": "alice"}],
        "max_lifetime": 60_000,
    },
    39: {"hmac": b"secret", "renew_period": 1234},
    40: {"hmac": b"secret", "expiry_time_period": 1234},
    41: {"owners": [{"principal_type": "User", "principal_name": "größe"}]},
    49: {
        "entries": [
            {
                "entity": [
                    {"entity_type": "user", "entity_name": "größe"},
                    {"entity_type": "client-id", "entity_name": None},
                ],
                "ops": [
                    {"key": "producer_byte_rate", "value": 1024.0, "remove": False},
                    {"key": "consumer_byte_rate", "value": 0.0, "remove": True},
                ],
            }
        ],
        "validate_only": True,
    },
    57: {
        "timeout": 1234,
        "feature_updates": [
            {"feature": "group.version", "max_version_level": 1, "upgrade_type": 2, "allow_downgrade": False}
        ],
        "validate_only": True,
    },
    64: {"broker_id": 7},
    71: {"client_instance_id": TOPIC_ID},
    72: {
        "client_instance_id": TOPIC_ID,
        "subscription_id": 12,
        "terminating": True,
        "compression_type": 4,
        "metrics": b"metrics",
    },
    80: {
        "cluster_id": "cluster",
        "timeout": 1234,
        "voter_id": 7,
        "voter_directory_id": TOPIC_ID,
        "listeners": [{"name": "CONTROLLER", "host": "host", "port": 65_535}],
        "ack_when_committed": False,
    },
    81: {"cluster_id": None, "voter_id": 7, "voter_directory_id": TOPIC_ID},
    60: {"include_cluster_authorized_operations": True, "endpoint_type": 2, "include_fenced_brokers": True},
    65: {"transactional_ids": ["writer", ""]},
    68: {
        "group_id": "group",
        "member_id": "member",
        "member_epoch": 12,
        "instance_id": "instance",
        "rack_id": "rack",
        "rebalance_timeout": 300_000,
        "subscribed_topic_names": ["orders", "größe"],
        "subscribed_topic_regex": "b.*",
        "server_assignor": "range",
        "topic_partitions": [
            {"topic_id": TOPIC_ID, "partitions": [3, 0]},
            {"topic_id": OTHER_TOPIC_ID, "partitions": []},
        ],
    },
    69: {"group_ids": ["group", ""], "include_authorized_operations": True},
    88: {
        "group_id": "group",
        "member_id": "member",
        "member_epoch": 12,
        "endpoint_information_epoch": 3,
        "instance_id": "instance",
        "rack_id": "rack",
        "rebalance_timeout": 300_000,
        "topology": {
            "epoch": 4,
            "subtopologies": [
                {
                    "subtopology_id": "0",
                    "source_topics": ["orders", "bills"],
                    "source_topic_regex": ["b.*"],
                    "state_changelog_topics": [
                        {
                            "name": "app-store-changelog",
                            "partitions": 0,
                            "replication_factor": 1,
                            "topic_configs": [{"key": "cleanup.policy", "value": "compact"}],
                        }
                    ],
                    "repartition_sink_topics": ["app-by-key"],
                    "repartition_source_topics": [
                        {"name": "app-by-name", "partitions": 5, "replication_factor": 0, "topic_configs": []}
                    ],
                    "copartition_groups": [
                        {"source_topics": [0, 1], "source_topic_regex": [0], "repartition_source_topics": [0]}
                    ],
                }
            ],
        },
        "active_tasks": [{"subtopology_id": "0", "partitions": [3, 0]}],
        "standby_tasks": [],
        "warmup_tasks": [{"subtopology_id": "1", "partitions": []}],
        "process_id": "process",
        "user_endpoint": {"host": "größe", "port": 65_535},
        "client_tags": [{"key": "zone", "value": "a"}],
        "task_offsets": [{"subtopology_id": "0", "partition": 3, "offset": 2**40}],
        "task_end_offsets": [{"subtopology_id": "0", "partition": 3, "offset": 2**41}],
        "shutdown_application": True,
    },
    89: {"group_ids": ["group", ""], "include_authorized_operations": True},
    74: {"resource_types": [2, 99]},
    75: {
        "topics": [{"name": "orders"}, {"name": "bills"}],
        "response_partition_limit": 12,
        "cursor": {"topic_name": "orders", "partition_index": 3},
    },
}

TXN_OFFSET_COMMIT_6 = bytes.fromhex(
    "03747802670000000000000007000300000005026d0269020102030405060708090a0b0c0d0e0f10"
    "0300000002000000000000000a0000000402780000000003000000000000000bffffffff00000000"
)
"""The body of a TxnOffsetCommit of version 6, which kio does not have, as Kafka's own classes wrote it."""

TOPOLOGY_DESCRIPTION_UPDATE = bytes.fromhex(
    "0667726f7570 076d656d626572 00000004 02 02 30 02 02 6e 01 02 02 74 00 01 02 02 73 00 00 01 00 00"
)
"""The body of a StreamsGroupTopologyDescriptionUpdate, which kio does not have, as Kafka's own classes read it."""
