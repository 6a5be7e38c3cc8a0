"""Every packaged transcript of the real broker, replayed against groupcoord in process on a virtual clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from groupcoord.broker.cluster.metadata import ANNOUNCED
from groupcoord.config.files import data_files
from groupcoord.conformance import InProcessTarget, Transcript, Verdict, load_transcripts, run
from groupcoord.conformance.entities import API_KEYS
from groupcoord.conformance.transcript import Send
from tests.tables import check_all


def test_answers_like_the_real_broker() -> None:
    """groupcoord answers as Kafka did. Only transcripts of APIs not served are skipped."""
    check_all([(str(transcript), transcript) for transcript in load_transcripts()], check_responses)


def check_responses(transcript: Transcript) -> None:
    quick = evolve(transcript, settings={"offsets.topic.num.partitions": 3, **transcript.settings})
    (outcome,) = run([quick], InProcessTarget()).outcomes
    if outcome.verdict is Verdict.SKIPPED:
        sent = {API_KEYS[step.api] for step in transcript.steps if isinstance(step, Send)}
        assert not sent <= {api.api_key for api in ANNOUNCED.api_keys}
    assert outcome.failure is None, outcome.failure.describe()


def test_packaged_transcripts_lie_under_their_names() -> None:
    """Every packaged transcript loads, has the name of its file and folder, and a description."""
    transcripts = load_transcripts()
    assert len(transcripts) == 659
    for transcript in transcripts:
        path = Path(transcript.source)
        assert (path.stem, path.parent.name) == (transcript.name, transcript.area)
        assert transcript.shows


@pytest.mark.parametrize("name", ["broken.json", "broken.toml"])
def test_an_invalid_data_file_is_named(tmp_path: Path, name: str) -> None:
    """The error of a file that was edited wrongly holds its path."""
    tmp_path.joinpath(name).write_text("{")
    with pytest.raises(ValueError, match=f"{name}: "):
        list(data_files(tmp_path))
