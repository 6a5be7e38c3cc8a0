"""Times of a member: milliseconds of the host's clock."""

NEVER_MS = 2**63
"""Later than every time that a host can name."""
