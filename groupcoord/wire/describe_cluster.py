"""DescribeCluster: key 60, versions 0-2, flexible (KIP-700).

1: whom the client believes to talk to (KIP-919). 2: fenced brokers (KIP-1073).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import DescribeCluster, DescribeClusterResponse
from groupcoord.wire.header import RequestHeader

_KEY = 60


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeCluster:
    return DescribeCluster(**values)


def _response(response: DescribeClusterResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "endpoint_type": response.endpoint_type,
        "cluster_id": response.cluster_id,
        "controller_id": response.controller_id,
        "brokers": [broker._asdict() for broker in response.brokers],
        "cluster_authorized_operations": response.cluster_authorized_operations,
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeCluster", VersionRange(0, 2), 0, _decoder, _encoder)
