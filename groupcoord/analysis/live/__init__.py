"""Running clusters: end offsets, record batches and snapshots of groups, read over the network."""
