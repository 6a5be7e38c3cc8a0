"""Kernel of the simulator: virtual time, randomness from a seed, a network, and a trace of events."""
