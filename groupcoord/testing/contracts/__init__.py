"""Contract checks for the parts of an embedding program: log stores, engines of shared logs, clocks, assignors."""
