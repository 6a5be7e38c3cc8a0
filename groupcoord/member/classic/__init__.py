"""Classic protocol of a member: it joins, the leader assigns, all sync and send heartbeats (KIP-429 and before)."""
