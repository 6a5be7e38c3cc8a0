"""Share groups (KIP-932), whose members share the records of partitions."""
