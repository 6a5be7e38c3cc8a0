"""Exam of a consumer program in any language: scenarios of broker and program failures, judged by laws.

Use it for a whole program; the program runs as processes against a test server with numbered records. Its commits,
membership and output are observed at the broker. ``docs/exam.md`` describes scenarios and laws.
"""

from groupcoord.testing.exams.examination import (
    Result as Result,
    examine as examine,
    play as play,
    scenarios_for as scenarios_for,
)
from groupcoord.testing.exams.scenarios import SCENARIOS as SCENARIOS, Scenario as Scenario
from groupcoord.testing.exams.stage import CommandError as CommandError, Plan as Plan
from groupcoord.testing.exams.trace import Breach as Breach, Event as Event, Law as Law, Verdict as Verdict
