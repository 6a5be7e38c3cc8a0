"""What a test asks of a server, and does beside its clients: groups, offsets, records, topics, and what came."""
