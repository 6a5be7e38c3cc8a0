"""ListOffsets: key 2, versions 1-11, flexible from 6.

2: isolation level, and throttle time in the answer. 4: leader epochs. 7, 8, 9, 11: further special timestamps
(KIP-734, 405, 1005, 1023). 10: a time-out for remote storage (KIP-1075).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import ListOffsets, ListOffsetsPartition, ListOffsetsResponse, ListOffsetsTopic
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
from groupcoord.wire.topics import topic_values

_KEY = 2
_NEW_TIMESTAMPS = {7: -3, 8: -4, 9: -5, 11: -6}
"""From which version on which special timestamp may be asked for; -1 and -2 always."""


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ListOffsets:
    topics = tuple(
        ListOffsetsTopic(
            topic["name"], tuple(ListOffsetsPartition(**partition) for partition in paced(topic["partitions"]))
        )
        for topic in paced(values["topics"])
    )
    return ListOffsets(
        topics,
        values["replica_id"],
        values.get("isolation_level", 0),
        values.get("timeout_ms", 0),
        min((stamp for version, stamp in _NEW_TIMESTAMPS.items() if version <= header.api_version), default=-2),
    )


def _response(response: ListOffsetsResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "topics": topic_values(response.topics),
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "ListOffsets", VersionRange(1, 11), 6, _decoder, _encoder)
