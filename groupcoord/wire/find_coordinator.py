"""FindCoordinator: key 10, versions 0-6, flexible from 3.

0: group keys only. 1: transaction keys; throttle time and an error message in the answer. 4: several keys, several
answers (KIP-699). 6: share keys (KIP-932).

The error message is a broker's: to version 3 "NONE" on success, from 4 on empty, except where the whole request is
refused (an unknown key type; no permission for share keys, while an invalid one is not the whole).
"""

from groupcoord.core.messages import CoordinatorType, FindCoordinator, FindCoordinatorResponse, FoundCoordinator
from groupcoord.errors import ErrorCode
from groupcoord.wire.by_schema import by_schema
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.schema import Values

_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def _request(values: Values, header: RequestHeader, client_host: str) -> FindCoordinator:
    keys = values["coordinator_keys"] if header.api_version >= 4 else (values["key"],)
    key_type = values.get("key_type", CoordinatorType.GROUP)
    header.reply_context = key_type
    return FindCoordinator(key_type, keys, supports_share_keys=header.api_version >= 6)


def _response(response: FindCoordinatorResponse, header: RequestHeader) -> Values:
    if header.api_version >= 4:
        return {
            "throttle_time_ms": 0,
            "coordinators": [_coordinator(found, header) for found in response.coordinators],
        }
    (found,) = response.coordinators
    message = _MESSAGES.get(found.error_code, found.error_code.name)
    return {"throttle_time_ms": 0, **_coordinator(found, header), "error_message": message}


def _coordinator(found: FoundCoordinator, header: RequestHeader) -> Values:
    is_of_whole = found.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED or (
        found.error_code is ErrorCode.INVALID_REQUEST and header.reply_context != CoordinatorType.SHARE
    )
    return {
        "key": found.key,
        "node_id": found.node.node_id,
        "host": found.node.host,
        "port": found.node.port,
        "error_code": found.error_code,
        "error_message": _MESSAGES[found.error_code] if is_of_whole else "",
    }


API = by_schema(10, FindCoordinator, FindCoordinatorResponse, (0, 6), 3, to_request=_request, to_values=_response)
