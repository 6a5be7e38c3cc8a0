"""The classic protocol: members join, one of them assigns, all sync, and then beat (KIP-429 and before)."""
