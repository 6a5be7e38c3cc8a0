"""Analyses of logs in this process, without Spark: the same tables and the same page, up to some size of input.

:class:`groupcoord.analysis.local.analysis.LocalAnalysis` is one run. Commits, which are many, stay Arrow columns; what
happened to groups is told by :mod:`groupcoord.analysis.history`, row by row. Everything is in memory at a time, so
there is a limit.

``sources`` says what is read, for the pipeline on Spark too; ``records`` decodes and holds it; ``offsets``, ``load``,
``groups``, ``stale``, ``anomalies``, ``lag`` and ``verify`` make tables, ``figures`` and ``consumer_figures`` rows of
the page; ``replay`` lets coordinators load the records of groups, wherever they come from.
"""
