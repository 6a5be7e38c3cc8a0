"""Fold of a log's rows to a few rows for each group: commits, histories, and the load of log partitions.

Rows are folded in log order, one Arrow batch at a time. Memory is proportional to the groups and their partitions.
"""
