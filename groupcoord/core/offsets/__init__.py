"""Committed offsets of groups of all types: commits, transactions, fetches, deletion and expiry."""
