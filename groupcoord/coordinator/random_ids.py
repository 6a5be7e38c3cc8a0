"""Random member ids and UUIDs, the defaults of a coordinator."""

from __future__ import annotations

import base64
import uuid


def random_member_id(prefix: str) -> str:
    """Return a member id as in Kafka: the client id or instance id, and a random UUID."""
    return f"{prefix}-{uuid.uuid4()}"


def random_uuid() -> str:
    """Return a random UUID in the form of Kafka's ``Uuid``: 22 characters of URL-safe base64 without a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
