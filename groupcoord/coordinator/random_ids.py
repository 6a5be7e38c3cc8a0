"""Ids that a coordinator makes up where nobody gives it others."""

from __future__ import annotations

import base64
import uuid


def random_member_id(prefix: str) -> str:
    """Return a member id as Kafka makes them: the client's or the instance's id, and a random UUID."""
    return f"{prefix}-{uuid.uuid4()}"


def random_uuid() -> str:
    """Return a random UUID in the form of Kafka's ``Uuid``: 22 characters of URL-safe base64, no dash at the front."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
