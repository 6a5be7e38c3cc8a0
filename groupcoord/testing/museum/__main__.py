"""One task of the museum in a process of its own: ``python -m groupcoord.testing.museum TASK ID SHIPPING|PLANTED …``.

The outcome is a line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from attrs import asdict

from groupcoord.testing.museum.exhibit import Exhibit, exhibit
from groupcoord.testing.museum.planting import plant

if TYPE_CHECKING:
    from groupcoord.testing.exploring.telling import Story
    from groupcoord.testing.museum.processes import Hunt


def main() -> None:
    """Do what the command line says."""
    task, name, core, *options = sys.argv[1:]
    shown = exhibit(name)
    if core == "planted":
        assert shown.plant is not None
        plant(shown.plant)
    sys.stdout.write(json.dumps(asdict(_hunt(shown, *options) if task == "hunt" else _play(shown))) + "\n")


def _hunt(shown: Exhibit, searcher: str, cpu_s: str) -> Hunt:
    from groupcoord.testing.museum.hunting import explore_scope, hunt

    if searcher == "explore":
        return explore_scope(shown.play or {"steps": []}, float(cpu_s))
    return hunt(searcher, float(cpu_s))


def _play(shown: Exhibit) -> Story:
    from groupcoord.testing.exploring.scope import Trace
    from groupcoord.testing.exploring.telling import tell

    assert shown.play is not None
    return tell(Trace.of(shown.play))


main()
