"""Append queue, hard state and records of a log partition."""
