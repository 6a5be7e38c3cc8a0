"""Page of report cards, generated from the results of the exams."""

from __future__ import annotations

from groupcoord.testing.exams import SCENARIOS, Breach, Law, Result, Verdict

from .clients import CLIENTS, version_of
from .report_cards import PAGE, card_of, kept, page, sections


def test_the_page_is_made_of_the_results() -> None:
    """It was not edited by hand, and each client on it can be examined again."""
    assert PAGE.read_text("utf-8") == page(kept(), CLIENTS)
    assert {card["client"] for card in kept()} <= set(CLIENTS)


def test_what_failed_is_told() -> None:
    """A law that is broken is named with where, its first breach and what is known of it; what is missing is named."""
    breach = Breach(1.0, "worker1", "commits 9 of partition 0")
    results = [
        Result(SCENARIOS[0], (Verdict(Law.AHEAD),), (), 1.0, True, "", {}),
        Result(SCENARIOS[1], (Verdict(Law.AHEAD, (breach,)),), (), 1.0, True, "", {}),
        Result(SCENARIOS[2], (Verdict(Law.AHEAD, (breach,)),), (), 1.0, True, "", {}),
        Result(SCENARIOS[3], (), (), 1.0, False, "the instances did not come to work: no group", {}),
    ]

    cards = [card_of("aiokafka", "1.0", "classic", results)]
    head = page(cards, ["aiokafka", "java"]).splitlines()
    lines = sections(cards).splitlines()

    (row,) = (line for line in head if line.startswith("| aiokafka | 1.0 | classic | 1 | 3 | [the record in hand is "))
    assert row.endswith("(client-bugs.md#the-record-in-hand-is-lost-when-a-process-dies) |")
    assert "Not examined yet: java." in head
    assert "| quiet | ✓ |" in lines
    assert "| rolling-restart | [✗](#aiokafka) |" in lines
    ahead, trouble = lines[-2:]
    assert ahead.startswith(
        "- *no committed offset is beyond the processed records* ([the record in hand is committed]("
    )
    assert ahead.endswith(": rolling-restart, killed (commits 9 of partition 0)")
    assert trouble.startswith("- *the instances did not come to work*: frozen-past-its-session (")


def test_versions_are_those_of_the_projects() -> None:
    assert all(version_of(name)[0].isdecimal() for name in CLIENTS)
