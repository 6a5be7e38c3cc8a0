"""Current leader of a partition and its address in responses to clients of another node (KIP-951)."""

from groupcoord.wire.broker_messages import CurrentLeader, MetadataBroker
from groupcoord.wire.primitives import INT32, write_compact_nullable_string, write_compact_string, write_uvarint

_NOTHING_TAGGED = b"\x00"
_ENDPOINTS_TAG = b"\x00"


def write_leader(tag: int, leader: CurrentLeader) -> bytes:
    """Encode the tagged fields of a partition: its current leader."""
    return write_tagged(tag, INT32.pack(leader.leader_id) + INT32.pack(leader.leader_epoch))


def write_tagged(tag: int, numbers: bytes) -> bytes:
    """Encode tagged fields with a single one, a structure of numbers."""
    value = numbers + _NOTHING_TAGGED
    return b"\x01" + write_uvarint(tag) + write_uvarint(len(value)) + value


def write_endpoints(endpoints: tuple[MetadataBroker, ...]) -> bytes:
    """Encode the tagged fields of a response: addresses of nodes."""
    value = write_uvarint(len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        value += INT32.pack(node_id) + write_compact_string(host) + INT32.pack(port)
        value += write_compact_nullable_string(rack) + _NOTHING_TAGGED
    return b"\x01" + _ENDPOINTS_TAG + write_uvarint(len(value)) + value
