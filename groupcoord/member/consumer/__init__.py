"""The protocol of consumer groups (KIP-848): the coordinator assigns, members heartbeat and reconcile."""
