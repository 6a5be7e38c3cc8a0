"""Share groups (KIP-932) at a broker: the share coordinator of its server, and the leaders of share-partitions."""
