"""Logs as columns: segment files cut into ranges, their batches read side by side with numpy, rows as Arrow batches.

Whoever has Arrow can use this: the pipeline on Spark does, and nothing here knows of it. From below: ``framing`` finds
records in batches, ``fields`` what stands in their keys and values, ``records`` makes Arrow columns of that, ``chunks``
goes from batches to rows and ``ranges`` from bytes of a file to batches, with an account of every byte. ``files`` says
which files there are and cuts them, ``tailing`` how far logs that grow were read; ``schema`` declares the table.
"""
