"""Every packaged transcript of the real broker, replayed against groupcoord in process on a virtual clock."""

from __future__ import annotations

import pytest

from groupcoord.conformance import InProcessTarget, Transcript, load_transcripts, run

TRANSCRIPTS = load_transcripts()


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
def test_answers_like_the_real_broker(transcript: Transcript) -> None:
    """groupcoord answers what the real broker answered, in virtual time."""
    report = run([transcript], InProcessTarget())
    assert report.ok, report.describe()
