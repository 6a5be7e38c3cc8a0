"""Fold of a log's rows to a few rows for each group: commits, histories, and the load of log partitions.

Rows come in the order of the log, a batch at a time; memory grows with the groups and their partitions, not with the
log. ``records`` decodes logs and reads the rows back; ``commits``, ``histories`` and ``load`` fold them; ``replay``
loads the records of groups into coordinators.
"""
