"""Scenarios of the simulator: options of a world and its events, from a file or drawn from a seed."""
