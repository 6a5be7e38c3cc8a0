"""DescribeClientQuotas: key 48, versions 0-1, flexible from 1 (KIP-546). Nothing else changes between the versions."""

from collections.abc import Mapping
from typing import Any

from groupcoord.errors import ErrorCode
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.cluster_messages import DescribeClientQuotas, DescribeClientQuotasResponse, QuotaComponent
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 48


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeClientQuotas:
    components = tuple(QuotaComponent(**component) for component in paced(values["components"]))
    return DescribeClientQuotas(components, values["strict"])


def _response(response: DescribeClientQuotasResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "entries": () if response.error_code is ErrorCode.NONE else None,
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeClientQuotas", VersionRange(0, 1), 1, _decoder, _encoder)
