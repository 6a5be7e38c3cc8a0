"""Share groups (KIP-932): members share the records of partitions, and whoever is free takes the next ones."""
