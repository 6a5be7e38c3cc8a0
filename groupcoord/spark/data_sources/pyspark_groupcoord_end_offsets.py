"""The format ``groupcoord-end-offsets`` where Spark finds it: as ``DefaultSource`` of a module of such a name."""

from contextlib import suppress

with suppress(ImportError):  # without the extra `spark` sessions work, without this format
    from groupcoord.spark.sources import EndOffsetsDataSource

    DefaultSource = EndOffsetsDataSource
