"""Coordinator whose host answers its queries at once or on demand."""

from __future__ import annotations

from typing import Any

from groupcoord import GroupCoordinator
from groupcoord.core.host_queries import Found, Host, Question


class AskedHost(Host):
    """Host that answers at once or later, and records the queries. Args: host: answers. Attributes: holds: whether
    queries wait. questions: all queries, oldest first.
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
    """Coordinator whose queries about regular expressions are answered at once or on demand."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._host = self.asked = AskedHost(self._host)

    def answer(self, which: int) -> None:
        """Answer a question, by what matches now."""
        self.found_out(self.asked.answer_late(which))
