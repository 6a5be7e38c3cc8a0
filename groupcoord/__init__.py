"""Kafka's group coordinator as a library."""
