"""What polls tell of groups."""
