"""Consumer groups (KIP-848), whose coordinator assigns."""
