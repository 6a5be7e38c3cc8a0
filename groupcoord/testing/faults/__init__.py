"""Faults on purpose: what a test, or somebody over HTTP, lets happen to the clients of a server.

A :class:`~groupcoord.testing.faults.control.Control` has the words; :class:`~groupcoord.testing.faults.rules.Rules` are
what follows from them for requests.
"""

from groupcoord.errors import UnknownNameError
from groupcoord.testing.faults.control import Control, NoSuchMemberError
from groupcoord.testing.faults.rules import Call, FaultFunctionError, Rule, Rules

__all__ = ["Call", "Control", "FaultFunctionError", "NoSuchMemberError", "Rule", "Rules", "UnknownNameError"]
