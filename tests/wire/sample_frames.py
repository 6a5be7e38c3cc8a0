"""The sample requests as frames, in every version that is served: header and body, without the length in front."""

from __future__ import annotations

from tests.wire.kio_client import VERSIONS, request_frame
from tests.wire.sample_requests import BODIES

FRAMES = {
    (api_key, version): request_frame(api_key, version, BODIES[api_key])
    for api_key, (first, last) in VERSIONS.items()
    for version in range(first, last + 1)
}
