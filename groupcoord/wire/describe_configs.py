"""DescribeConfigs: key 32, versions 1-4, flexible from 4.

1: synonyms, and where a value comes from (KIP-226). 3: types and documentation (KIP-569).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, VersionRange
from groupcoord.wire.config_messages import (
    DescribeConfigs,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigs,
    ResourceToDescribe,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 32


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeConfigs:
    return DescribeConfigs(
        tuple(ResourceToDescribe(**resource) for resource in paced(values["resources"])),
        values["include_synonyms"],
        values.get("include_documentation", False),
    )


def _response(response: DescribeConfigsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "results": [_result(result) for result in paced(response.results)]}


def _response_of_results(response: DescribeConfigsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "results": response.results}


def _result(result: DescribedConfigs) -> schema.Values:
    return {
        "error_code": result.error_code,
        "error_message": result.error_message,
        "resource_type": result.resource_type,
        "resource_name": result.resource_name,
        "configs": [_config(config) for config in result.configs],
    }


def _config(config: DescribedConfig) -> schema.Values:
    return config._asdict() | {"synonyms": [synonym._asdict() for synonym in config.synonyms]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


def _parts_encoder(version: int) -> PartsEncoder:
    return schema.response_parts_encoder(
        _KEY, version, "results", _response_of_results, lambda result, _: _result(result)
    )


API = Api(_KEY, "DescribeConfigs", VersionRange(1, 4), 4, _decoder, _encoder, _parts_encoder)
