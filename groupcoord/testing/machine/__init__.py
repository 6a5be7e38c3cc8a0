"""State machine for Hypothesis: random clients, faults and time around a coordinator, with every law checked.

Use :class:`CoordinatorMachine` for a log store, a transport or a service around the coordinator.
"""
