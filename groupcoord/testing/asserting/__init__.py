"""Queries, waits and assertions of ``ServerThread``: groups, committed offsets, owners, records, requests, reports."""
