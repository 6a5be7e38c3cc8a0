"""The requests that a coordinator takes and the responses it gives, re-exported from :mod:`groupcoord.core.messages`."""

from groupcoord.core.messages import *  # noqa: F403
