"""Actors on the simulated cluster: groups of consumers, producers, administrators, other clients."""
