"""Virtual time, chance that a seed decides, a network between clients and servers, and a trace of what happened."""
