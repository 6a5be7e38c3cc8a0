"""Simulated cluster: its log, its nodes, and the leaders of log partitions."""
