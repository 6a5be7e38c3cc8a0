"""Classic groups, whose leader assigns: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and rebalances."""
