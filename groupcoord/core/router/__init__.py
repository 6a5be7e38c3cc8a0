"""What a request meets before its group: permissions, topics, and the way to its log partition."""
