"""Transcripts that are known to fail: a file of their names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from attrs import evolve, frozen

from groupcoord.config.files import read_text
from groupcoord.conformance.report import Outcome, Report, Verdict
from groupcoord.conformance.transcript import Transcript
from groupcoord.errors import GroupcoordError


class ExpectationsError(GroupcoordError):
    """A file of expected failures can't be read, or names what there isn't; the message names the line."""


@frozen
class Expectations:
    """Which transcripts are expected to fail, by patterns such as ``static/*``, each with a reason or none."""

    patterns: dict[str, str]

    @classmethod
    def load(cls, path: Path, transcripts: Iterable[Transcript]) -> Expectations:
        """Read a file: a name or pattern on each line, and after ``#`` the reason.

        Args:
            path: the file.
            transcripts: what the names may stand for.

        Raises:
            ExpectationsError: the file can't be read, or a line matches no transcript.
        """
        try:
            lines = read_text(path).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ExpectationsError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from None
        names = [str(transcript) for transcript in transcripts]
        patterns = {}
        for number, line in enumerate(lines, 1):
            pattern, _, reason = (part.strip() for part in line.partition("#"))
            if not pattern:
                continue
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ExpectationsError(f"{path}: line {number}: there is no transcript {pattern!r}")
            patterns[pattern] = reason
        return cls(patterns)

    def expects(self, transcript: Transcript) -> bool:
        """Tell whether a transcript is expected to fail."""
        return self._pattern(transcript) is not None

    def apply(self, report: Report) -> Report:
        """Return a report in which failures that were expected are no failures."""
        return evolve(report, outcomes=[self._judge(outcome) for outcome in report.outcomes])

    def passed_unexpectedly(self, report: Report) -> list[Transcript]:
        """Return the transcripts that were expected to fail, and passed."""
        passed = (outcome.transcript for outcome in report.outcomes if outcome.verdict is Verdict.PASSED)
        return [transcript for transcript in passed if self.expects(transcript)]

    def _judge(self, outcome: Outcome) -> Outcome:
        pattern = self._pattern(outcome.transcript)
        if outcome.verdict is not Verdict.FAILED or pattern is None:
            return outcome
        return evolve(outcome, verdict=Verdict.EXPECTED, reason=self.patterns[pattern])

    def _pattern(self, transcript: Transcript) -> str | None:
        return next((pattern for pattern in self.patterns if fnmatchcase(str(transcript), pattern)), None)
