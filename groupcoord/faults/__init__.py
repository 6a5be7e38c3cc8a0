"""Faults on purpose: what a test, or somebody over HTTP, lets happen to the clients of a server.

A :class:`~groupcoord.faults.control.Control` has the words; :class:`~groupcoord.faults.rules.Rules` are what follows
from them for requests.
"""

from groupcoord.faults.calls import Call
from groupcoord.faults.control import Control, NoSuchMemberError
from groupcoord.faults.rules import FaultFunctionError, Rule, Rules
from groupcoord.faults.words import UnknownNameError

__all__ = ["Call", "Control", "FaultFunctionError", "NoSuchMemberError", "Rule", "Rules", "UnknownNameError"]
