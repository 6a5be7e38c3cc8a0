"""Share groups (KIP-932) at a broker: share coordinator, share-partitions, ShareFetch and ShareAcknowledge."""
