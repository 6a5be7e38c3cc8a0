"""Histories of coordinators in words: played one by one, with every law looked at after each step."""
