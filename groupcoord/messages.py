"""Requests and responses of a coordinator."""

from groupcoord.core.messages import *
from groupcoord.core.messages import __all__ as __all__
