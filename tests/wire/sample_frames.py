"""The sample requests as frames, in every version that is served: header and body, without the length in front."""

from __future__ import annotations

from tests.wire.kio_client import VERSIONS, request_frame, versions_of
from tests.wire.sample_requests import BODIES, TOPOLOGY_DESCRIPTION_UPDATE, TXN_OFFSET_COMMIT_6

FRAMES = {
    (api_key, version): request_frame(api_key, version, BODIES[api_key])
    for api_key in VERSIONS
    for version in versions_of(api_key)
}
FRAMES[18, 5] = FRAMES[18, 4].replace(b"\x00\x04", b"\x00\x05", 1)[:-1] + b"\x02x\x00\x00\x00\x05\x00"
FRAMES[28, 6] = bytes.fromhex("001c 0006 00000007 0001 63 00") + TXN_OFFSET_COMMIT_6
FRAMES[42, 3] = FRAMES[42, 2].replace(b"\x00\x02", b"\x00\x03", 1)
FRAMES[88, 1] = FRAMES[88, 0].replace(b"\x00\x00", b"\x00\x01", 1)
FRAMES[89, 1] = FRAMES[89, 0].replace(b"\x00\x00", b"\x00\x01", 1)[:-1] + b"\x01\x00"
FRAMES[93, 0] = bytes.fromhex("005d 0000 01020304 0006 636c69656e74 00") + TOPOLOGY_DESCRIPTION_UPDATE
FRAMES[94, 0] = FRAMES[64, 0].replace(b"\x00\x40", b"\x00\x5e", 1)
