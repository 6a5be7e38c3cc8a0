"""Exploration: every history of a few clients in a small scope, breadth first, with every law checked after each step.

Use it to prove the absence of a bug for two or three clients; ``CoordinatorMachine`` samples larger groups.
"""
