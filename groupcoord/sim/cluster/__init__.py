"""The simulated cluster: its log, its nodes, and who leads what."""
