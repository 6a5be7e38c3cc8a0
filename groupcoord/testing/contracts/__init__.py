"""Contract checks for your own log stores, engines of shared logs, clocks and assignors.

Use a check in one test of the part; :class:`~groupcoord.testing.CoordinatorMachine` then tests it under faults.
"""
