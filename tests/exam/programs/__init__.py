"""Consumers of several clients as these clients' own documentation shows them, to be examined as they are."""
