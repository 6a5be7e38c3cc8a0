"""What topics may be called, and which of them are Kafka's own."""

from __future__ import annotations

import re

from groupcoord.core.log.records import OFFSETS_TOPIC

TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""The topics that Kafka keeps its own state in."""

MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def illegal_name_reason(name: str) -> str | None:
    """Return what is wrong with a topic's name by Kafka's rules (``Topic``); None if nothing is.

    1 to 249 of ASCII letters, digits, dot, underscore and dash are allowed; not ``.`` or ``..``.
    """
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
