"""Nodes, leaders, metadata, features and quotas of the cluster."""
