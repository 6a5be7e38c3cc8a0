"""Schemas of Kafka's messages and records as tables of fields, and readers and writers made from them."""
