"""A client's side in old, simple request versions, made by hand so that no test trusts the code it tests."""

from __future__ import annotations

import struct


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def array(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def frame(api_key: int, api_version: int, correlation_id: int, body: bytes, client_id: str | None = "test") -> bytes:
    return blob(struct.pack(">hhi", api_key, api_version, correlation_id) + string(client_id) + body)


def api_versions(correlation_id: int = 0) -> bytes:
    return frame(18, 0, correlation_id, b"")


def metadata(correlation_id: int = 0, *topics: str) -> bytes:
    return frame(3, 1, correlation_id, array([string(name) for name in topics]))


def heartbeat(correlation_id: int = 0, group_id: str = "g", generation_id: int = 1, member_id: str = "m") -> bytes:
    return frame(12, 0, correlation_id, string(group_id) + struct.pack(">i", generation_id) + string(member_id))


def join(
    correlation_id: int = 0, group_id: str = "g", member_id: str = "", rebalance_timeout_ms: int = 60_000
) -> bytes:
    timeouts = struct.pack(">ii", 30_000, 60_000)
    protocols = array([string("range") + blob(b"x")])
    return frame(
        11, 3, correlation_id, string(group_id) + timeouts + string(member_id) + string("consumer") + protocols
    )


def sync(correlation_id: int, group_id: str, generation_id: int, member_id: str, *assigned: tuple[str, bytes]) -> bytes:
    assignments = array([string(name) + blob(data) for name, data in assigned])
    head = string(group_id) + struct.pack(">i", generation_id) + string(member_id)
    return frame(14, 0, correlation_id, head + assignments)


def fetch(correlation_id: int, topic: str, offset: int, max_wait_ms: int) -> bytes:
    head = struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 20, 0)
    partition = struct.pack(">iqi", 0, offset, 1 << 20)
    return frame(1, 4, correlation_id, head + array([string(topic) + array([partition])]))


def split(output: bytes) -> list[bytes]:
    """Return the frames of a connection's output, without their lengths."""
    frames = []
    while output:
        (size,) = struct.unpack_from(">i", output)
        assert len(output) >= 4 + size, "half an answer"
        frames.append(output[4 : 4 + size])
        output = output[4 + size :]
    return frames


def correlation_ids(output: bytes) -> list[int]:
    return [struct.unpack_from(">i", answer)[0] for answer in split(output)]


def produce(correlation_id: int, acks: int, *partition_indexes: int) -> bytes:
    """Return a Produce request of version 3 for partitions of topic ``t``."""
    partitions = [struct.pack(">i", index) + blob(b"records") for index in partition_indexes]
    head = string(None) + struct.pack(">hi", acks, 1000)
    asked = [string("t") + array(partitions)] if partitions else []
    return frame(0, 3, correlation_id, head + array(asked))
