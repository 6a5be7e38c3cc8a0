"""IncrementalAlterConfigs: key 44, versions 0-1, flexible from 1 (KIP-339).

What :mod:`groupcoord.wire.alter_configs` has, and for each setting what to do with it.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.alter_configs import altered_resources, resources_to_alter
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.config_messages import IncrementalAlterConfigs
from groupcoord.wire.header import RequestHeader

_KEY = 44


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> IncrementalAlterConfigs:
    return IncrementalAlterConfigs(resources_to_alter(values), values["validate_only"])


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, altered_resources)


API = Api(_KEY, "IncrementalAlterConfigs", VersionRange(0, 1), 1, _decoder, _encoder)
