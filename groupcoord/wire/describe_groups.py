"""DescribeGroups: key 15, versions 0-6, flexible from 5.

1: throttle time. 3: authorized operations. 4: instance ids. 6: an absent group is GROUP_ID_NOT_FOUND with a message
(KIP-1043) and has no authorized operations; before, it is a group without error in state ``Dead`` that has them.
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    DescribedGroup,
    DescribeGroups,
    DescribeGroupsResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 15


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeGroups:
    return DescribeGroups(values["groups"], values.get("include_authorized_operations", False))


def _response(response: DescribeGroupsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "groups": [_group(group, header.api_version) for group in paced(response.groups)]}


def _response_of_groups(response: DescribeGroupsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "groups": response.groups}


def _group_in_version(group: DescribedGroup, header: RequestHeader) -> schema.Values:
    return _group(group, header.api_version)


def _group(group: DescribedGroup, version: int) -> schema.Values:
    is_absent = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    hides_absence = is_absent and version <= 5
    has_operations = hides_absence or not is_absent
    return {
        "error_code": ErrorCode.NONE if hides_absence else group.error_code,
        "error_message": group.error_message,
        "group_id": group.group_id,
        "group_state": group.group_state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_data,
        "members": [member._asdict() for member in group.members],
        "authorized_operations": group.authorized_operations if has_operations else AUTHORIZED_OPERATIONS_OMITTED,
    }


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


def _parts_encoder(version: int) -> PartsEncoder:
    return schema.response_parts_encoder(_KEY, version, "groups", _response_of_groups, _group_in_version)


API = Api(_KEY, "DescribeGroups", VersionRange(0, 6), 5, _decoder, _encoder, _parts_encoder)
