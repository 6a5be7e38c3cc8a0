"""Share coordinator (KIP-932): states of share-partitions in ``__share_group_state``."""
