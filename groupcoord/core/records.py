"""Public path of the records of ``__consumer_offsets``; see :mod:`groupcoord.core.log.records`."""

from groupcoord.core.log.records import *
from groupcoord.core.log.records import __all__ as __all__
