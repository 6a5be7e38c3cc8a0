"""Whoever acts on the cluster: groups of consumers, producers, administrators, other writers."""
