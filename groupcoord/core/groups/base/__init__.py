"""Base of groups with logged state: members, epochs, targets, one write in flight."""
