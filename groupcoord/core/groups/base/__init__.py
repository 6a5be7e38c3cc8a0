"""What all kinds of groups have in common whose state is in the log: members, epochs, targets, one write in flight."""
