"""What all tests share: random ones make the same choices each time, so that a change alone can break them.

Nor does it matter how long an example takes, which depends on what else the machine does. Who only wants to know
whether something fails takes the profile ``unshrunk``.
"""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("chance", derandomize=False, deadline=None)
settings.register_profile("unshrunk", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("steady")
