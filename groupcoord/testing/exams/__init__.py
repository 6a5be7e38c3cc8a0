"""Exam of a consumer program in any language: scenarios of broker and program failures, judged by laws.

Use it for a whole program; the program runs as processes against a test server with numbered records. Its commits,
membership and output are observed at the broker. ``docs/exam.md`` describes scenarios and laws.
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
