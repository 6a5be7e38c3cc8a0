"""A request of each API with every field of every version, each set to another value."""

from __future__ import annotations

from typing import Any

from groupcoord.wire.registry import APIS
from tests.wire.generated import Sampler, all_versions
from tests.wire.kio_client import request_schema


def _body(api_key: int) -> dict[str, Any]:
    first, last = APIS[api_key].versions
    return Sampler().struct(all_versions([request_schema(api_key, version) for version in range(last, first - 1, -1)]))


BODIES: dict[int, dict[str, Any]] = {api_key: _body(api_key) for api_key in APIS}
