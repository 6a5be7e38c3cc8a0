"""Logs as columns: segment files cut into ranges, their batches read side by side with numpy, rows as Arrow batches.

Whoever has Arrow can use this: analyses do, on Spark and without, and nothing here knows of Spark. From below:
``framing`` finds records in batches, ``fields`` what stands in their keys and values, ``records`` makes Arrow columns
of that, ``chunks`` goes from batches to rows and ``ranges`` from bytes of a file to batches, with an account of every
byte. ``files`` says which files there are and cuts them, ``tasks`` are the pieces, ``tailing`` says how far logs that
grow were read. ``schema`` declares the table of records, ``tables`` and ``group_tables`` those that are made of it;
``parquet`` and ``commits`` write them, with the timestamps of ``times``, and ``results`` is the directory where they
go.
"""
