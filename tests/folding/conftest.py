"""The log of a real broker."""

from __future__ import annotations

from ..running.conftest import broker_log

__all__ = ["broker_log"]
