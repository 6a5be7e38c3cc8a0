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

from groupcoord.conformance.client import ServerFacts as ServerFacts
from groupcoord.conformance.in_process import InProcessTarget as InProcessTarget
from groupcoord.conformance.matching import Difference as Difference
from groupcoord.conformance.report import (
    Cause as Cause,
    Change as Change,
    Expectations as Expectations,
    ExpectationsError as ExpectationsError,
    Failure as Failure,
    Outcome as Outcome,
    Report as Report,
    Verdict as Verdict,
    causes_of as causes_of,
    compare_runs as compare_runs,
    junit_xml as junit_xml,
)
from groupcoord.conformance.runner import run as run
from groupcoord.conformance.sockets import AddressTarget as AddressTarget, LaunchTarget as LaunchTarget
from groupcoord.conformance.targets import (
    Server as Server,
    Stream as Stream,
    Target as Target,
    TargetError as TargetError,
    Tolerance as Tolerance,
)
from groupcoord.conformance.transcript import (
    Transcript as Transcript,
    TranscriptError as TranscriptError,
    load_transcripts as load_transcripts,
    parse_transcript as parse_transcript,
)
