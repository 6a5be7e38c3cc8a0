"""Consumer group protocol (KIP-848) of a member: the coordinator assigns, members send heartbeats and reconcile."""
