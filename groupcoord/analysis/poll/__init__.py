"""Tables and reports from repeated snapshots of groups, where ``__consumer_offsets`` may not be read."""
