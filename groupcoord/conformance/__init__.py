"""Conformance of a server with Apache Kafka: recorded conversations (transcripts) and the runner that replays them.

The transcripts of Apache Kafka 4.4.0 are part of the package; ``transcripts/README.md`` documents their format. Targets
are a server at an address, a server launched for the run, and groupcoord in process on a virtual clock. From pytest::

    import pytest
    from groupcoord.conformance import LaunchTarget, load_transcripts, run

    @pytest.mark.parametrize("transcript", load_transcripts(), ids=str)
    def test_like_kafka(transcript):
        report = run([transcript], LaunchTarget("my-broker --port {port} --data {dir} {sets}"))
        assert report.ok, report.describe()

Needs the ``wire`` extra (kio).
"""

from __future__ import annotations

from groupcoord.conformance.client import ServerFacts
from groupcoord.conformance.in_process import InProcessTarget
from groupcoord.conformance.matching import Difference
from groupcoord.conformance.report import (
    Cause,
    Change,
    Expectations,
    ExpectationsError,
    Failure,
    Outcome,
    Report,
    Verdict,
    causes_of,
    compare_runs,
    junit_xml,
)
from groupcoord.conformance.runner import run
from groupcoord.conformance.sockets import AddressTarget, LaunchTarget
from groupcoord.conformance.targets import Server, Stream, Target, TargetError, Tolerance
from groupcoord.conformance.transcript import Transcript, TranscriptError, load_transcripts, parse_transcript

__all__ = [
    "AddressTarget",
    "Cause",
    "Change",
    "Difference",
    "Expectations",
    "ExpectationsError",
    "Failure",
    "InProcessTarget",
    "LaunchTarget",
    "Outcome",
    "Report",
    "Server",
    "ServerFacts",
    "Stream",
    "Target",
    "TargetError",
    "Tolerance",
    "Transcript",
    "TranscriptError",
    "Verdict",
    "causes_of",
    "compare_runs",
    "junit_xml",
    "load_transcripts",
    "parse_transcript",
    "run",
]
