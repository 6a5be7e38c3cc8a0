"""What a stream's reader inherits from that can read up to the end of now, where Spark has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2, which can't read a stream up to its end of now after a crash

        class SupportsTriggerAvailableNow:
            """Stands for what this version of Spark does not have."""


__all__ = ["SupportsTriggerAvailableNow"]
