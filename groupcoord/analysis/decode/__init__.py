"""Decoding of segment files to rows of Arrow, with numpy and without Spark.

In the order of the data: ``files`` finds segments and cuts them into tasks, ``tailing`` keeps the position in logs that
grow, ``ranges`` cuts bytes into batches and accounts for every byte, ``batches`` reads their headers and finds records,
``fields`` reads keys and values, ``records`` makes columns of them and ``chunks`` rows. ``schema`` and ``group_tables``
declare the tables, ``parquet`` writes them, and ``results`` is the directory that they are written to.
"""
