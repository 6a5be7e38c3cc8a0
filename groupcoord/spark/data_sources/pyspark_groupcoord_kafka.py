"""The format ``groupcoord-kafka`` where Spark finds it by itself: as ``DefaultSource`` of a module of such a name."""

from contextlib import suppress

with suppress(ImportError):  # without the extra `spark` sessions work, without this format
    from groupcoord.spark.sources import ClusterDataSource

    DefaultSource = ClusterDataSource
