"""Decoding of segment files to Arrow rows, with numpy and without Spark.

In the order of the data:

- ``files`` finds segments and cuts them into tasks; ``tailing`` keeps the position in growing logs.
- ``rows`` cuts bytes into batches, accounts for every byte and makes rows.
- ``batches`` reads headers and finds records; ``records`` reads their keys and values into columns.
- ``schema`` declares the tables; ``parquet`` writes them into the directory of results.
"""
