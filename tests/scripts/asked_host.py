"""A coordinator whose host answers its questions at once, or when it is told to."""

from __future__ import annotations

from typing import Any

from groupcoord import GroupCoordinator
from groupcoord.core.host_queries import Found, Host, Question


class AskedHost(Host):
    """Answers at once, or says that the answer comes later; and remembers what it was asked.

    Args:
        host: answers.

    Attributes:
        holds: questions wait.
        questions: all that were asked, oldest first.
    """

    def __init__(self, host: Host) -> None:
        self._asked_host = host
        self.holds = False
        self.questions: list[Question] = []

    def answer(self, question: Question) -> Found | None:
        self.questions.append(question)
        return None if self.holds else self._asked_host.answer(question)

    def answer_late(self, which: int) -> Found | None:
        """Answer a question, by what matches now."""
        return self._asked_host.answer(self.questions[which])


class AskedCoordinator(GroupCoordinator):
    """Answers what it asks about regular expressions at once, or when it is told to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._host = self.asked = AskedHost(self._host)

    def answer(self, which: int) -> None:
        """Answer a question, by what matches now."""
        self.found_out(self.asked.answer_late(which))
