"""Record which records a real broker's log holds after packaged conversations, as goldens for the tests beside.

    python -m tests.log_records.record --launch 'CMD {port} {dir} {sets}' [NAME…]

``CMD`` starts an Apache Kafka 4.4.0 broker, as for ``groupcoord conformance --launch``. A NAME is an area (``join``) or
a transcript (``join/vote_ties_of_two``); without any, all are recorded. There is one broker for each group of
settings; it lives until its last conversation is over, and its directory is read as soon as a conversation ends.
A golden is only written if every answer was as the transcript says. Records may still be on their way to the log when
the last answer comes (Kafka answers a join before the record of the new group is written), hence a short wait.

A golden is a JSON file with one record per line; :mod:`tests.log_records.rendering` says what is in it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from groupcoord.conformance import LaunchTarget, Server, Transcript, load_transcripts
from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import ANYTHING, Bindings
from groupcoord.conformance.runner import replay, settings_for
from groupcoord.conformance.transcript import Receive

from .rendering import GOLDEN, Rendered, UnfitRecordError, group_id_for, read_log, records_of, render

_SETTLE_SECONDS = 0.1


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a conversation went wrong, 2 for unknown names."""
    parser = argparse.ArgumentParser(prog="python -m tests.log_records.record", description=__doc__)
    parser.add_argument("--launch", required=True, help="the command that starts a broker")
    parser.add_argument("--jobs", type=int, default=16, help="how many conversations at the same time")
    parser.add_argument("names", nargs="*", metavar="NAME", help="an area or a transcript")
    options = parser.parse_args(arguments)
    transcripts = load_transcripts()
    known = {name for transcript in transcripts for name in (transcript.area, str(transcript))}
    if unknown := sorted(set(options.names) - known):
        print(f"no such area or transcript: {', '.join(unknown)}", file=sys.stderr)
        return 2
    if options.names:
        transcripts = [t for t in transcripts if t.area in options.names or str(t) in options.names]
    failures = 0
    for transcript, failure in record(transcripts, options.launch, options.jobs):
        print(f"{transcript}: {failure or 'recorded'}", flush=True)
        failures += failure is not None
    return 1 if failures else 0


def record(transcripts: list[Transcript], command: str, jobs: int) -> Iterator[tuple[Transcript, str | None]]:
    """Record goldens, and yield each transcript with what went wrong, if anything did."""
    for _, group in itertools.groupby(sorted(transcripts, key=_settings_key), _settings_key):
        yield from _record_group(list(group), command, jobs)


def _settings_key(transcript: Transcript) -> list[tuple[str, str]]:
    return sorted((key, str(value)) for key, value in settings_for(transcript).items())


def _record_group(transcripts: list[Transcript], command: str, jobs: int) -> Iterator[tuple[Transcript, str | None]]:
    with tempfile.TemporaryDirectory(prefix="log-records-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder) / "broker"
        target = LaunchTarget(command.replace("{dir}", shlex.quote(str(directory))))
        server = target.start(settings_for(transcripts[0]))
        recorder = _Recorder(server, directory, target)
        try:
            with ThreadPoolExecutor(jobs) as executor:
                together = [transcript for transcript in transcripts if not transcript.restarts]
                yield from zip(together, executor.map(recorder.record, together), strict=True)
            for transcript in transcripts:
                if transcript.restarts:
                    yield transcript, recorder.record(transcript)
        finally:
            server.stop()


class _Recorder:
    def __init__(self, server: Server, directory: Path, target: LaunchTarget) -> None:
        self._server = server
        self._log_directory = directory / "data"
        self._tolerance = target.tolerance

    def record(self, transcript: Transcript) -> str | None:
        """Hold a conversation and write its golden. Returns what went wrong."""
        found: list[Rendered] = []

        def look(bindings: Bindings) -> None:
            time.sleep(_SETTLE_SECONDS)
            records = records_of(transcript, bindings, read_log(self._log_directory))
            found.extend(with_variables(render(records), transcript, bindings))

        failure = replay(transcript, self._server, group_id_for(transcript), self._tolerance, on_end=look)
        if failure is not None:
            return failure.describe()
        path = GOLDEN / transcript.area / f"{transcript.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(f"  {json.dumps(one)}" for one in found)
        path.write_text(f'{{"transcript": "{transcript}", "records": [\n{lines}\n]}}\n', encoding="utf-8")
        return None


_LITERAL_PRODUCER = 1 << 40
"""Producer ids from here up are made up by a transcript and stay as they are."""


def with_variables(records: list[Rendered], transcript: Transcript, bindings: Bindings) -> list[Rendered]:
    """Return rendered records with variables for group, member, producer and topic ids.

    A leader that Kafka picked out of a hash map becomes ``$any``: where the transcript's response to a join has it.
    """
    names = _Names(bindings)
    named = [{key: names.replace(value, key, record) for key, value in record.items()} for record in records]
    arbitrary = _generations_with_any_leader(transcript)
    return [
        {**record, "leader": ANYTHING} if record.get("leader") and record["generation_id"] in arbitrary else record
        for record in named
    ]


def _generations_with_any_leader(transcript: Transcript) -> set[int]:
    return {
        step.body["generation_id"]
        for step in transcript.steps
        if isinstance(step, Receive) and step.body.get("leader") == ANYTHING
    }


class _Names:
    def __init__(self, bindings: Bindings) -> None:
        self._group_id = str(bindings["$g"])
        self._names: dict[str | int, str] = {value: name for name, value in bindings.items()}

    def replace(self, value: Plain, key: str, record: Rendered) -> Plain:
        """Return a field's value with variables; ``record`` is what it belongs to."""
        if key == "members":
            # A new member's number must not depend on its random id, nor on the order of Kafka's hash map.
            members = sorted(value, key=lambda member: [str(v) for k, v in sorted(member.items()) if k != "member_id"])
            return [{k: self.replace(v, k, member) for k, v in member.items()} for member in members]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            is_given_out = key == "producer_id" and 0 <= value < _LITERAL_PRODUCER
            return self._name(value, "$p") if is_given_out else value
        if key in ("member_id", "leader"):
            return self._name(value, "$m")
        if key == "topic_id":
            return self._name(value, f"$topic:{record['topic']}")
        if value.startswith(self._group_id):
            return f"$g{value.removeprefix(self._group_id)}"
        if value.startswith("$"):
            raise UnfitRecordError(f"{key} {value!r} would look like a variable")
        return value

    def _name(self, value: str | int, prefix: str) -> str:
        if value not in self._names:
            taken = set(self._names.values())
            number = next(n for n in range(1, len(taken) + 2) if f"{prefix}{_suffix(prefix, n)}" not in taken)
            self._names[value] = f"{prefix}{_suffix(prefix, number)}"
        return self._names[value]


def _suffix(prefix: str, number: int) -> str:
    if prefix.startswith("$topic:"):
        return "" if number == 1 else f"#{number}"  # a topic that was deleted and created anew
    return str(number)


if __name__ == "__main__":
    sys.exit(main())
