"""Requests to the group coordinator, and loading of its log partitions."""
