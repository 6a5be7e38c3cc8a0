"""ApiVersions: key 18, versions 0-5, flexible from 3.

1: throttle time in the answer. 3: the client's software, checked here as a broker does (KIP-511), and features in the
answer (KIP-584). 4: features whose lowest level is 0 are listed. 5: the client may say whom it means (KIP-1242).

The header of an answer is never flexible. A request of any other version is not read at all, and answered in version 0.
Gaps: ``ZkMigrationReady`` is never set.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from groupcoord.errors import ErrorCode
from groupcoord.wire import schema
from groupcoord.wire.api import Answered, Api, Decoder, Encoder, VersionRange
from groupcoord.wire.broker_messages import ApiVersions, ApiVersionsResponse
from groupcoord.wire.header import RequestHeader

_KEY = 18
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_INVALID = ApiVersionsResponse(ErrorCode.INVALID_REQUEST, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequestV5:
    """Version 5, which kio does not have."""

    __flexible__: ClassVar[bool] = True
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"})
    node_id: int = field(metadata={"kafka_type": "int32"})


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ApiVersions | Answered:
    request = ApiVersions(**values)
    if header.api_version >= 3:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return Answered(_INVALID)
    if (request.cluster_id is None) != (request.node_id == -1):
        return Answered(_INVALID)
    return request


def _decoder(version: int) -> Decoder:
    if version == 5:
        return schema.decoder_of(ApiVersionsRequestV5, _request)
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    lowest_feature_level = 1 if version < 4 else 0

    def values(response: ApiVersionsResponse, header: RequestHeader) -> schema.Values:
        body: schema.Values = {
            "error_code": response.error_code,
            "throttle_time_ms": 0,
            "api_keys": [
                {"api_key": key, "min_version": versions[0], "max_version": versions[1]}
                for key, versions in response.api_versions.items()
            ],
        }
        supported = [
            {"name": feature.name, "min_version": feature.min_version, "max_version": feature.max_version}
            for feature in response.supported_features
            if feature.min_version >= lowest_feature_level
        ]
        if supported:
            body["supported_features"] = supported
        if response.finalized_features_epoch != -1:
            body["finalized_features_epoch"] = response.finalized_features_epoch
        if response.finalized_features:
            body["finalized_features"] = [
                {"name": name, "min_version_level": min_level, "max_version_level": max_level}
                for name, min_level, max_level in response.finalized_features
            ]
        return body

    return schema.response_encoder(_KEY, min(version, 4), values)


API = Api(_KEY, "ApiVersions", VersionRange(0, 5), 3, _decoder, _encoder, has_flexible_response_header=False)
