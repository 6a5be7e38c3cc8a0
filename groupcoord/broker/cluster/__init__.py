"""Which nodes there are, who leads what, and what clients and administrators are told of the cluster."""
