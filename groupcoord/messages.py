"""The requests that a coordinator takes and the responses it gives; see :mod:`groupcoord.core.messages`."""

from groupcoord.core.messages import *
from groupcoord.core.messages import __all__ as __all__
