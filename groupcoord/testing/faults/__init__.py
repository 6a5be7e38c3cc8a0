"""Faults on purpose, for a test or over HTTP: failing requests, sessions, leaders, appends and nodes.

Tests use the methods of ``ServerThread``; :class:`~groupcoord.testing.faults.control.Control` implements them and
:class:`~groupcoord.testing.faults.rules.Rules` applies them to requests.
"""

from groupcoord.errors import UnknownNameError
from groupcoord.testing.faults.control import Control, NoSuchMemberError
from groupcoord.testing.faults.rules import Call, FaultFunctionError, Rule, Rules

__all__ = ["Call", "Control", "FaultFunctionError", "NoSuchMemberError", "Rule", "Rules", "UnknownNameError"]
