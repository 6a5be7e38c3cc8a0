"""One table says who answers which request."""

from __future__ import annotations

import pytest

from groupcoord.broker.answering import answers, table_of
from groupcoord.broker.connection import Connection
from groupcoord.errors import InvariantError
from groupcoord.wire import WireResponse


class Wanted:
    """A request."""


class Answering:
    """Answers it."""

    @answers(Wanted)
    def answer(self, connection: Connection, request: Wanted) -> WireResponse | None:
        """Answer later."""
        return None


def test_methods_say_what_they_answer() -> None:
    """The table has the method of the object for the request that it names."""
    answering = Answering()

    assert table_of(answering) == {Wanted: answering.answer}


def test_nobody_answers_what_another_answers() -> None:
    """Two methods that name the same request are an error when the table is made."""
    with pytest.raises(InvariantError, match="two methods answer Wanted"):
        table_of(Answering(), Answering())
