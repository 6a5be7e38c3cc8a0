"""Histories in words."""
