"""Running many transcripts against a target."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

from groupcoord.conformance.execution import TROUBLE, replay
from groupcoord.conformance.preparation import missing_apis
from groupcoord.conformance.report import Failure, Outcome, Report, Verdict
from groupcoord.conformance.targets import USUAL_SETTINGS, ConnectionClosedError, Server, Settings, Target, TargetError
from groupcoord.conformance.transcript import Transcript

OnOutcome = Callable[[Outcome], None]


def run(
    transcripts: Iterable[Transcript],
    target: Target,
    *,
    jobs: int = 16,
    on_outcome: OnOutcome | None = None,
) -> Report:
    """Replay transcripts and report how they fared.

    A target that is shared gets one server for each group of equal settings. Transcripts without a restart then run
    at the same time, as they mostly sleep; those with one follow in turn. A target that is not shared gives every
    transcript a server of its own.

    Args:
        transcripts: what to replay.
        target: what to replay it against.
        jobs: how many transcripts at the same time, at most; only for shared targets.
        on_outcome: called in the calling thread with each outcome as it comes.

    Returns:
        The outcomes, in the order of ``transcripts``.

    Raises:
        ValueError: ``jobs`` is less than 1.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    ordered = list(transcripts)
    found: dict[int, Outcome] = {}
    run_all = _run_shared(ordered, target, jobs) if target.shared else _run_alone(ordered, target)
    for outcome in run_all:
        found[id(outcome.transcript)] = outcome
        if on_outcome is not None:
            on_outcome(outcome)
    return Report([found[id(transcript)] for transcript in ordered])


def settings_for(transcript: Transcript) -> Settings:
    """Return every broker setting that a transcript needs."""
    return {**USUAL_SETTINGS, **transcript.settings}


def _run_alone(transcripts: list[Transcript], target: Target) -> Iterator[Outcome]:
    for transcript in transcripts:
        started = time.monotonic()
        try:
            server = target.start(settings_for(transcript))
        except (TargetError, ConnectionClosedError) as error:
            yield _not_started(transcript, error)
            continue
        try:
            # the same group id every time, so that every run is alike
            yield _replay(transcript, server, f"{transcript.name}-000000", target, started)
        finally:
            server.stop()


def _run_shared(transcripts: list[Transcript], target: Target, jobs: int) -> Iterator[Outcome]:
    playable: list[Transcript] = []
    for transcript in transcripts:
        if transcript.restarts and not target.can_restart:
            yield Outcome(transcript, Verdict.SKIPPED, reason="it restarts the server, which this target can't")
        else:
            playable.append(transcript)
    playable.sort(key=_settings_key)
    for _, group in itertools.groupby(playable, _settings_key):
        yield from _run_group(list(group), target, jobs)


def _run_group(transcripts: list[Transcript], target: Target, jobs: int) -> Iterator[Outcome]:
    try:
        server = target.start(settings_for(transcripts[0]))
    except (TargetError, ConnectionClosedError) as error:
        yield from (_not_started(transcript, error) for transcript in transcripts)
        return
    try:
        executor = ThreadPoolExecutor(jobs)
        try:
            together = [
                executor.submit(_replay_shared, transcript, server, target)
                for transcript in transcripts
                if not transcript.restarts
            ]
            for future in as_completed(together):
                yield future.result()
        finally:
            executor.shutdown(cancel_futures=True)
        for transcript in transcripts:
            if transcript.restarts:
                yield _replay_shared(transcript, server, target)
    finally:
        server.stop()


def _replay_shared(transcript: Transcript, server: Server, target: Target) -> Outcome:
    started = time.monotonic()
    return _replay(transcript, server, f"{transcript.name}-{uuid.uuid4().hex[:6]}", target, started)


def _replay(transcript: Transcript, server: Server, group_id: str, target: Target, started: float) -> Outcome:
    try:
        missing = missing_apis(server, transcript)
    except TROUBLE as error:
        failure: Failure | None = Failure(0, "asking for the APIs of the server", str(error))
    else:
        if missing:
            return Outcome(transcript, Verdict.SKIPPED, reason=f"the server doesn't list {', '.join(missing)}")
        failure = replay(transcript, server, group_id, target.tolerance)
    verdict = Verdict.PASSED if failure is None else Verdict.FAILED
    return Outcome(transcript, verdict, failure, seconds=time.monotonic() - started)


def _not_started(transcript: Transcript, error: Exception) -> Outcome:
    return Outcome(transcript, Verdict.FAILED, Failure(0, "start of the server", str(error)))


def _settings_key(transcript: Transcript) -> list[tuple[str, str]]:
    return sorted((key, str(value)) for key, value in settings_for(transcript).items())
