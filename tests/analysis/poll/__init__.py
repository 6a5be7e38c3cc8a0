"""Groups as seen by polls."""
