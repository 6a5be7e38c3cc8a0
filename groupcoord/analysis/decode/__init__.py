"""Decoding of segment files to rows of Arrow, with numpy and without Spark.

In the order of the data: ``files`` finds segments and cuts them into tasks, ``tailing`` keeps the position in logs that
grow, ``rows`` cuts bytes into batches, accounts for every byte and makes rows, ``batches`` reads headers and finds
records, ``records`` reads their keys and values into columns. ``schema`` and ``group_tables`` declare the tables,
``parquet`` writes them, and ``results`` is the directory that they are written to.
"""
