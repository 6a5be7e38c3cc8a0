"""Pipelines of an analysis in this process: sources, runs over logs once or as they grow, tables and metrics."""
