"""Runs of an analysis in this process: what is read, a log to tables and one page, and polls of a cluster's groups."""
