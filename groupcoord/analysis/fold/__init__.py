"""From the rows of logs to few rows of each group: what was committed, what happened, how loaded log partitions are.

Rows come in the order of the log, batch by batch, and what is kept grows with the groups and their partitions, not with
the log. ``records`` decodes logs and reads them back; ``transactions``, ``commits``, ``histories`` and ``load`` fold
them; ``replay`` lets coordinators load the records of groups.
"""
