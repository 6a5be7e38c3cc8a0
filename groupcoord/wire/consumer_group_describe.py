"""ConsumerGroupDescribe: key 69, versions 0-1, flexible (KIP-848).

1: which protocol each member speaks (KIP-1099).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.core.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
)
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 69


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> ConsumerGroupDescribe:
    return ConsumerGroupDescribe(**values)


def _response(response: ConsumerGroupDescribeResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "groups": [_group(group) for group in paced(response.groups)]}


def _response_of_groups(response: ConsumerGroupDescribeResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "groups": response.groups}


def _group(group: DescribedConsumerGroup) -> schema.Values:
    return {
        "error_code": group.error_code,
        "error_message": group.error_message,
        "group_id": group.group_id,
        "group_state": group.group_state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor_name,
        "members": [_member(member) for member in paced(group.members)],
        "authorized_operations": group.authorized_operations,
    }


def _member(member: DescribedConsumerMember) -> schema.Values:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": _assignment(member.assignment),
        "target_assignment": _assignment(member.target_assignment),
        "member_type": member.member_type,
    }


def _assignment(topics: tuple[DescribedPartitions, ...]) -> schema.Values:
    return {"topic_partitions": [topic._asdict() for topic in paced(topics)]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


def _parts_encoder(version: int) -> PartsEncoder:
    return schema.response_parts_encoder(_KEY, version, "groups", _response_of_groups, lambda group, _: _group(group))


API = Api(_KEY, "ConsumerGroupDescribe", VersionRange(0, 1), 0, _decoder, _encoder, _parts_encoder)
