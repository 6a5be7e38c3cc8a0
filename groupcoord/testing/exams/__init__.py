"""The exam: a program that consumes, in any language, put through all that can go wrong with its broker and itself.

The program is started as processes against a server of our own, with a stream of numbered records. What it does is read
from the broker: commits, membership, and what it writes to an output. Verdicts go by laws; see ``docs/exam.md``.
"""

from groupcoord.testing.exams.examination import Result, examine, play, scenarios_for
from groupcoord.testing.exams.scenarios import SCENARIOS, Scenario
from groupcoord.testing.exams.stage import CommandError, Plan
from groupcoord.testing.exams.trace import Breach, Event, Law, Verdict

__all__ = [
    "SCENARIOS",
    "Breach",
    "CommandError",
    "Event",
    "Law",
    "Plan",
    "Result",
    "Scenario",
    "Verdict",
    "examine",
    "play",
    "scenarios_for",
]
