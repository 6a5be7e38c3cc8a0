"""The laws that hold at every moment of every run, for tests and simulators of your own: see :mod:`groupcoord.laws`."""

from groupcoord.laws import *  # noqa: F403
from groupcoord.laws import __all__ as __all__
