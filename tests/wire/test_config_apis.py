"""APIs of settings: what a client writes is read, and what is written a client reads."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response, encode_response_parts
from groupcoord.wire.config_messages import (
    AlterConfigOp,
    AlterConfigs,
    AlterConfigsResponse,
    AlteredResource,
    ConfigSource,
    ConfigSynonym,
    ConfigToAlter,
    ConfigType,
    DescribeConfigs,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigs,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsResponse,
    ResourceToAlter,
    ResourceToDescribe,
)
from tests.wire.kio_client import CORRELATION_ID, read_response, request_frame, versions_of
from tests.wire.sample_requests import BODIES


def decode(api_key: int, version: int) -> Any:
    return decode_request(request_frame(api_key, version, BODIES[api_key]), "/127.0.0.1")[1]


def answer(api_key: int, version: int, response: Any) -> dict[str, Any]:
    """Encode, also in parts, and read with kio; the throttle time is 0."""
    header = RequestHeader(api_key, version, CORRELATION_ID)
    frame = encode_response(header, response)
    assert b"".join(encode_response_parts(header, response)) == frame
    values = read_response(api_key, version, frame)
    assert values.pop("throttle_time") == 0
    return values


@pytest.mark.parametrize("version", versions_of(32))
def test_describe_configs(version: int) -> None:
    """No list of keys and an empty one are told apart; documentation can be asked for from version 3 on."""
    resources = (
        ResourceToDescribe(32, "group", ("consumer.session.timeout.ms",)),
        ResourceToDescribe(2, "orders", None),
        ResourceToDescribe(4, "", ()),
    )
    assert decode(32, version) == DescribeConfigs(resources, True, version >= 3)


@pytest.mark.parametrize("version", versions_of(32))
def test_described_configs(version: int) -> None:
    """Everything of a setting; its type and documentation from version 3 on."""
    synonyms = (ConfigSynonym("a", "1", ConfigSource.GROUP), ConfigSynonym("group.a", "2", ConfigSource.DEFAULT))
    config = DescribedConfig("a", "1", False, ConfigSource.GROUP, False, synonyms, ConfigType.INT, "what it is")
    results = (
        DescribedConfigs(ErrorCode.NONE, "", 32, "group", (config, DescribedConfig("b", None, True, 5, True))),
        DescribedConfigs(ErrorCode.INVALID_REQUEST, "no", 99, "x"),
    )
    second: dict[str, Any] = {"name": "b", "value": None, "read_only": True, "config_source": 5, "is_sensitive": True}
    first = config._asdict() | {"synonyms": [synonym._asdict() for synonym in synonyms]}
    second |= {"synonyms": [], "config_type": 0, "documentation": None}
    if version < 3:
        for shown in (first, second):
            del shown["config_type"], shown["documentation"]
    assert answer(32, version, DescribeConfigsResponse(results)) == {
        "results": [
            {
                "error_code": 0,
                "error_message": "",
                "resource_type": 32,
                "resource_name": "group",
                "configs": [first, second],
            },
            {
                "error_code": 42,
                "error_message": "no",
                "resource_type": 99,
                "resource_name": "x",
                "configs": [],
            },
        ]
    }


@pytest.mark.parametrize("version", versions_of(44))
def test_incremental_alter_configs(version: int) -> None:
    """Each setting comes with what to do with it."""
    configs = (ConfigToAlter("a", "1", AlterConfigOp.APPEND), ConfigToAlter("b", None, AlterConfigOp.DELETE))
    resources = (ResourceToAlter(32, "group", configs), ResourceToAlter(-1, "", ()))
    assert decode(44, version) == IncrementalAlterConfigs(resources, True)


@pytest.mark.parametrize("version", versions_of(33))
def test_alter_configs(version: int) -> None:
    """Each setting comes with its value; a null is None."""
    configs = (ConfigToAlter("a", "1"), ConfigToAlter("b", None))
    resources = (ResourceToAlter(32, "group", configs), ResourceToAlter(-1, "", ()))
    assert decode(33, version) == AlterConfigs(resources, True)


@pytest.mark.parametrize(
    ("api_key", "version", "response"),
    [
        *((44, version, IncrementalAlterConfigsResponse) for version in versions_of(44)),
        *((33, version, AlterConfigsResponse) for version in versions_of(33)),
    ],
)
def test_altered_configs(api_key: int, version: int, response: Any) -> None:
    """One entry for each thing, with a message or none."""
    altered = (
        AlteredResource(ErrorCode.NONE, None, 32, "group"),
        AlteredResource(ErrorCode.INVALID_CONFIG, "no", 2, "orders"),
    )
    expected = [
        {"error_code": 0, "error_message": None, "resource_type": 32, "resource_name": "group"},
        {"error_code": 40, "error_message": "no", "resource_type": 2, "resource_name": "orders"},
    ]
    assert answer(api_key, version, response(altered)) == {"responses": expected}
