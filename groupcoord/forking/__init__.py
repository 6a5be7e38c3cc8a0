"""Copies and fingerprints of a coordinator's state. Few programs import this package."""
