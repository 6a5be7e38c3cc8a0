"""The share coordinator's state machine (KIP-932): what is in ``__share_group_state``, and what requests do to it."""
