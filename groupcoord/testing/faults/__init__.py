"""Faults on purpose, for a test or over HTTP: failing requests, sessions, leaders, appends and nodes.

Tests use the methods of ``ServerThread``; :class:`~groupcoord.testing.faults.control.Control` implements them and
:class:`~groupcoord.testing.faults.rules.Rules` applies them to requests.
"""

from groupcoord.errors import UnknownNameError as UnknownNameError
from groupcoord.testing.faults.control import Control as Control, NoSuchMemberError as NoSuchMemberError
from groupcoord.testing.faults.rules import (
    Call as Call,
    FaultFunctionError as FaultFunctionError,
    Rule as Rule,
    Rules as Rules,
)
