"""Transaction coordinator, and the requests about transactions."""
