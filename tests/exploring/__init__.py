"""Text form of histories."""
