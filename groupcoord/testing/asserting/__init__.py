"""Queries, waits and assertions of ``ServerThread``: groups, committed offsets, owners, records, requests, reports.

Tests use them as methods of the server, or through its ``asyncio``.
"""
