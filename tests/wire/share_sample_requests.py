"""One body of each request about share groups (KIP-932), in the newest version, as kio has them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

TOPIC_ID = UUID("6070354a-825a-4914-b566-b21449659d73")

SHARE_BODIES: dict[int, dict[str, Any]] = {
    76: {
        "group_id": "group",
        "member_id": "member",
        "member_epoch": 12,
        "rack_id": "rack",
        "subscribed_topic_names": ["orders", "bills"],
    },
    77: {"group_ids": ["group", "other"], "include_authorized_operations": True},
    78: {
        "group_id": "group",
        "member_id": "member",
        "share_session_epoch": 3,
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 100,
        "share_acquire_mode": 1,
        "is_renew_ack": True,
        "topics": [
            {
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition_index": 3,
                        "acknowledgement_batches": [
                            {"first_offset": 1 << 40, "last_offset": 1 << 41, "acknowledge_types": [1, 2, 4]}
                        ],
                    }
                ],
            }
        ],
        "forgotten_topics_data": [{"topic_id": TOPIC_ID, "partitions": [4, 5]}],
    },
    79: {
        "group_id": "group",
        "member_id": "member",
        "share_session_epoch": -1,
        "is_renew_ack": True,
        "topics": [
            {
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition_index": 3,
                        "acknowledgement_batches": [
                            {"first_offset": 1 << 40, "last_offset": 1 << 41, "acknowledge_types": [3]}
                        ],
                    }
                ],
            }
        ],
    },
    83: {
        "group_id": "group",
        "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 3, "state_epoch": 7, "start_offset": 1 << 40}]}],
    },
    84: {"group_id": "group", "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 3, "leader_epoch": 7}]}]},
    85: {
        "group_id": "group",
        "topics": [
            {
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition": 3,
                        "state_epoch": 7,
                        "leader_epoch": 8,
                        "start_offset": 1 << 40,
                        "delivery_complete_count": 2,
                        "state_batches": [
                            {"first_offset": 1 << 40, "last_offset": 1 << 41, "delivery_state": 2, "delivery_count": 5}
                        ],
                    }
                ],
            }
        ],
    },
    86: {"group_id": "group", "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 3}]}]},
    87: {"group_id": "group", "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 3, "leader_epoch": 7}]}]},
    90: {
        "groups": [
            {"group_id": "group", "topics": [{"topic_name": "orders", "partitions": [3, 4]}]},
            {"group_id": "other", "topics": None},
        ]
    },
    91: {
        "group_id": "group",
        "topics": [{"topic_name": "orders", "partitions": [{"partition_index": 3, "start_offset": 1 << 40}]}],
    },
    92: {"group_id": "group", "topics": [{"topic_name": "orders"}]},
}
