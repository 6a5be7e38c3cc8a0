"""Kafka broker around the coordinators, without I/O; :mod:`groupcoord.host` runs it on asyncio and exports its API."""
