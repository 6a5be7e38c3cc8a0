"""DescribeLogDirs: key 35, versions 1-5, flexible from 2.

3: an error of the whole. 4: sizes of the volume (KIP-827). 5: whether a folder takes new partitions (KIP-1066).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import DescribeLogDirs, DescribeLogDirsResponse, LogDir, PartitionsOfTopic
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 35


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeLogDirs:
    topics = values["topics"]
    if topics is not None:
        topics = tuple(PartitionsOfTopic(topic["topic"], topic["partitions"]) for topic in paced(topics))
    return DescribeLogDirs(topics)


def _log_dir(log_dir: LogDir) -> schema.Values:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                partition._asdict() | {"offset_lag": 0, "is_future_key": False} for partition in paced(topic.partitions)
            ],
        }
        for topic in paced(log_dir.topics)
    ]
    return log_dir._asdict() | {"topics": topics, "is_cordoned": False}


def _response(response: DescribeLogDirsResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "results": [_log_dir(log_dir) for log_dir in response.log_dirs],
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeLogDirs", VersionRange(1, 5), 2, _decoder, _encoder)
