"""The transaction coordinator, and the requests about transactions."""
