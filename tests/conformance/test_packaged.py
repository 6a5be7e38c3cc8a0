"""Every packaged transcript of the real broker, replayed against groupcoord in process on a virtual clock."""

from __future__ import annotations

import pytest

from groupcoord.broker.cluster.metadata import ANNOUNCED
from groupcoord.conformance import InProcessTarget, Transcript, Verdict, load_transcripts, run
from groupcoord.conformance.entities import API_KEYS
from groupcoord.conformance.transcript import Send
from tests.tables import as_one_test

TRANSCRIPTS = load_transcripts()


@as_one_test
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
def test_answers_like_the_real_broker(transcript: Transcript) -> None:
    """groupcoord answers what the real broker answered, in virtual time. Nothing is passed over that it serves."""
    (outcome,) = run([transcript], InProcessTarget()).outcomes
    if outcome.verdict is Verdict.SKIPPED:
        sent = {API_KEYS[step.api] for step in transcript.steps if isinstance(step, Send)}
        assert not sent <= {api.api_key for api in ANNOUNCED.api_keys}
    assert outcome.failure is None, outcome.failure.describe()
