"""Produce, Fetch, ListOffsets, DeleteRecords, and the logs of topics."""
