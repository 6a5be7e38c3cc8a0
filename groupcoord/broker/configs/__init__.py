"""Settings that topics, groups and the broker can have of their own, and the requests about them."""
