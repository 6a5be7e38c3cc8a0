"""What all tests share: random ones make the same choices each time, so that a change alone can break them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("chance", derandomize=False)
settings.load_profile("steady")
