"""ApiVersions: key 18, versions 0-5, flexible from 3.

3: the client's software, checked here as a broker does (KIP-511), and features in the answer (KIP-584). 4: features
whose lowest level is 0 are listed. 5: the client may say whom it means (KIP-1242).

The header of an answer is never flexible. A request of any other version is not read at all, and answered in version 0.
Gaps: ``ZkMigrationReady`` is never set.
"""

import re

from attrs import evolve

from groupcoord.errors import ErrorCode
from groupcoord.wire.api import Answered
from groupcoord.wire.by_schema import by_schema
from groupcoord.wire.feature_messages import ApiVersions, ApiVersionsResponse
from groupcoord.wire.header import RequestHeader

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_INVALID = ApiVersionsResponse(ErrorCode.INVALID_REQUEST, ())


def _request(request: ApiVersions, header: RequestHeader) -> ApiVersions | Answered:
    if header.api_version >= 3:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return Answered(_INVALID)
    if (request.cluster_id is None) != (request.node_id == -1):
        return Answered(_INVALID)
    return request


def _response(response: ApiVersionsResponse, header: RequestHeader) -> ApiVersionsResponse:
    if header.api_version >= 4:
        return response
    known = tuple(feature for feature in response.supported_features if feature.min_version > 0)
    return evolve(response, supported_features=known)


API = by_schema(
    18,
    ApiVersions,
    ApiVersionsResponse,
    (0, 5),
    3,
    adapt_request=_request,
    adapt_response=_response,
    has_flexible_response_header=False,
)
