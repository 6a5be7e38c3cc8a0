"""The format ``groupcoord-kafka`` where Spark finds it by itself: as ``DefaultSource`` of a module of such a name."""

from contextlib import suppress

with suppress(ImportError):  # of what groupcoord's extra for Spark brings: without it sessions go on without the format
    from groupcoord.spark.cluster_source import ClusterDataSource as DefaultSource

__all__ = ["DefaultSource"]
