"""Figures and lists on the page of gaps, compared with the code."""

from __future__ import annotations

import re

from groupcoord.broker.cluster.metadata import ANNOUNCED
from groupcoord.conformance.transcript import PACKAGED
from groupcoord.wire.registry import APIS

from .markdown import DOCS, ROOT

GAPS = DOCS / "gaps.md"


def test_the_apis_are_those_that_are_served() -> None:
    """Each API with its key and versions, by key; nothing else."""
    announced = {api.api_key for api in ANNOUNCED.api_keys}
    expected = [
        (api.name, str(key), str(api.versions[0]), str(api.versions[1]))
        for key, api in sorted(APIS.items())
        if key in announced
    ]
    _, _, section = GAPS.read_text("utf-8").partition("\n## The host\n")

    assert re.findall(r"(\w+) \((\d+)\) (\d+)–(\d+)[,.]", section) == expected  # noqa: RUF001


def test_the_transcripts_are_counted() -> None:
    """The number of recorded conversations is that of the package."""
    assert f"{len([*PACKAGED.rglob('*.json')])} conversations recorded" in GAPS.read_text("utf-8").replace("\n", " ")


def test_compaction_is_a_gap_until_the_host_compacts() -> None:
    host = "".join(path.read_text("utf-8") for path in (ROOT / "groupcoord" / "host").glob("*.py"))

    assert ("Compaction by itself" in GAPS.read_text("utf-8")) != ("compact_some" in host)
