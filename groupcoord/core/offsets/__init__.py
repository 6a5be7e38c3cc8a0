"""Committed offsets of groups of every kind: commits, transactions, fetches, deletion and expiry."""
