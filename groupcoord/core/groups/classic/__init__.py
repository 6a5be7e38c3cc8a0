"""Groups of the classic protocol, whose members assign: join, sync, heartbeat, leave, and the rebalances between."""
