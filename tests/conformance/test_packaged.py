"""Every packaged transcript of the real broker, replayed against groupcoord in process on a virtual clock."""

from __future__ import annotations

import pytest

from groupcoord.conformance import InProcessTarget, Transcript, load_transcripts, run

from .not_yet import NOT_YET

TRANSCRIPTS = load_transcripts()


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
def test_answers_like_the_real_broker(transcript: Transcript, request: pytest.FixtureRequest) -> None:
    """groupcoord answers what the real broker answered, in virtual time; those on the list NOT_YET must fail."""
    reason = NOT_YET.get(str(transcript))
    if reason is not None:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    report = run([transcript], InProcessTarget())
    assert report.ok, report.describe()


def test_the_list_of_exceptions_names_real_transcripts() -> None:
    """Every key of NOT_YET is a transcript that exists."""
    assert NOT_YET.keys() <= {str(transcript) for transcript in TRANSCRIPTS}
