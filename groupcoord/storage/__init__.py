"""Durable log stores: segment files in Kafka's format and directory layout (``docs/records.md``)."""
