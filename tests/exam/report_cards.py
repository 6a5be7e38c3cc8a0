"""Makes ``docs/report-cards.md`` of what came of examining clients.

``python -m tests.exam.report_cards [FOLDER]`` takes new results from the folder where
``python -m tests.exam.clients --out FOLDER`` has left them, keeps those of other clients, and writes the page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupcoord.testing.exams import SCENARIOS, Law, Result

PAGE = Path(__file__).parents[2] / "docs" / "report-cards.md"
CARDS = Path(__file__).with_name("report_cards.json")
TROUBLE = "the instances did not come to work"

Card = Mapping[str, Any]
"""A client's result, as :func:`card_of` makes it."""


def _bug(text: str, heading: str) -> str:
    return f"[{text}](client-bugs.md#{heading})"


TOPIC_BEFORE = _bug("offsets of the deleted topic", "the-first-records-of-a-recreated-topic-are-skipped")
IN_HAND = _bug("the record in hand is committed", "the-record-in-hand-is-lost-when-a-process-dies")
NOT_ACKNOWLEDGED = _bug("writes are not acknowledged", "records-are-missing-although-no-write-failed")
IN_ANOTHER_ORDER = _bug("commits are retried in another order", "committed-offsets-go-back")
BEGINS_ANEW = _bug("errors of OffsetFetch are ignored", "a-group-starts-over-although-it-had-committed-offsets")
STAYS_AWAY = _bug("a removed member does not come back", "a-removed-member-does-not-come-back")
DOES_NOT_ASK = _bug("an unknown coordinator is not looked up", "a-process-ends-and-others-wait-for-its-session")

KNOWN: Sequence[tuple[str, str, str, str]] = (
    ("sarama|kafka-python|aiokafka|kafkajs|java|spring", "AHEAD|BACKWARD", "topic-is-made-again", TOPIC_BEFORE),
    ("confluent-kafka", ".*", "topic-is-made-again", TOPIC_BEFORE),
    ("confluent-kafka", "BACKWARD", "", IN_ANOTHER_ORDER),
    ("aiokafka", "BACKWARD", "errors-of-OffsetFetch", BEGINS_ANEW),
    ("confluent-kafka|aiokafka|kafka-python", "AHEAD", "", IN_HAND),
    ("platformatic-kafka", "AHEAD|OWNED", "", IN_HAND),
    ("platformatic-kafka", "FENCED", "", STAYS_AWAY),
    ("kafka-go-read", "AHEAD", "", IN_HAND),
    ("kafka-go", "AHEAD", "", NOT_ACKNOWLEDGED),
    ("kafka-python", "LEAVING", "during-leave", DOES_NOT_ASK),
)
"""Client, law and scenarios, as regular expressions, and what is known of why that law is broken there."""


def card_of(client: str, version: str, protocol: str, results: Sequence[Result]) -> Card:
    """Return what came of a client's exam, to be kept as JSON: the first breach of each law that was broken."""
    scenarios = {
        result.scenario.name: {
            "trouble": result.trouble.partition(":")[0],
            "broken": [[verdict.law.name, verdict.breaches[0].text] for verdict in result.broken],
        }
        for result in results
    }
    return {"client": client, "version": version, "protocol": protocol, "scenarios": scenarios}


def page(cards: Sequence[Card], clients: Collection[str]) -> str:
    """Return the page: a table of clients with what is known of their failures.

    Args:
        cards: results of examined clients.
        clients: the clients with programs; those without a card are listed as not examined.
    """
    missing = sorted(set(clients).difference(card["client"] for card in cards))
    lines = [
        "# Report cards",
        "",
        "Results of [the exam](exam.md) for consumers written as the documentation of their clients shows them.",
        "The programs are in `tests/exam/programs`.",
        "`python -m tests.exam.clients --out FOLDER` examines them,",
        "and `python -m tests.exam.report_cards FOLDER` generates this page.",
        "Each scenario ran once on a busy machine with two cores, so results that depend on timing may vary.",
        "A failure is one of the documented program with its default settings, and not always a bug of the client.",
        "",
        "| client | version | protocol | passed | failed | known causes |",
        "|---|---|---|---|---|---|",
        *map(_row, cards),
        "",
    ]
    if missing:
        lines += [f"Not examined yet: {', '.join(missing)}.", ""]
    lines += ["On the documentation's site this page continues with every scenario and every failure.", ""]
    return "\n".join(lines)


def sections(cards: Sequence[Card]) -> str:
    """Return the sections that the site adds: a table of scenarios, and the failures of each client."""
    lines = [
        "## Scenarios",
        "",
        "✓: no law was broken; ✗ links to the failures; an empty cell does not apply to the protocol.",
        "",
        "| scenario | " + " | ".join(f"[{card['client']}](#{card['client']})" for card in cards) + " |",
        "|---|" + "---|" * len(cards),
        *filter(None, (_scenario(scenario.name, cards) for scenario in SCENARIOS)),
        "",
    ]
    for card in cards:
        lines += [f"## {card['client']}", "", *(_failures(card) or ["No scenario failed."]), ""]
    return "\n".join(lines)


def _row(card: Card) -> str:
    failed = sum(map(_is_failed, card["scenarios"].values()))
    reasons = dict.fromkeys(
        _reason(card["client"], law, scenario)
        for scenario, found in card["scenarios"].items()
        for law, _ in _broken(found)
    )
    known = "; ".join(filter(None, reasons))
    passed = len(card["scenarios"]) - failed
    return f"| {card['client']} | {card['version']} | {card['protocol']} | {passed} | {failed} | {known} |"


def _is_failed(found: Mapping[str, Any]) -> bool:
    return bool(found["trouble"] or found["broken"])


def _scenario(name: str, cards: Sequence[Card]) -> str:
    marks = []
    for card in cards:
        found = card["scenarios"].get(name)
        marks.append("" if found is None else f"[✗](#{card['client']})" if _is_failed(found) else "✓")
    return f"| {name} | " + " | ".join(marks) + " |" if any(marks) else ""


def _failures(card: Card) -> list[str]:
    """Return a line for each way in which a client failed: the law, what is known, where, and the first breach."""
    ways: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for scenario, found in card["scenarios"].items():
        for law, text in _broken(found):
            ways.setdefault((law, _reason(card["client"], law, scenario)), []).append((scenario, text))
    return [
        f"- *{Law[law] if law in Law.__members__ else law}*{f' ({reason})' if reason else ''}: "
        f"{', '.join(scenario for scenario, _ in where)} ({re.sub('[|<>*_]', ' ', where[0][1])})"
        for (law, reason), where in ways.items()
    ]


def _broken(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if found["trouble"]:
        yield TROUBLE, "no law could be checked"
    yield from found["broken"]


def _reason(client: str, law: str, scenario: str) -> str:
    for who, laws, where, text in KNOWN:
        if re.match(who, client) and re.fullmatch(laws, law) and re.search(where, scenario):
            return text
    return ""


def main(folder: str = "") -> None:
    from tests.exam.clients import CLIENTS

    cards = {card["client"]: card for card in kept()}
    for path in sorted(Path(folder).glob("*.json") if folder else ()):
        card = json.loads(path.read_text("utf-8"))
        cards[card["client"]] = card
    rows = ",\n".join(json.dumps(cards[name], sort_keys=True, ensure_ascii=False) for name in sorted(cards))
    CARDS.write_text(f"[\n{rows}\n]\n", "utf-8")
    PAGE.write_text(page(kept(), CLIENTS), "utf-8")


def kept() -> list[Card]:
    cards: list[Card] = json.loads(CARDS.read_text("utf-8")) if CARDS.exists() else []
    return cards


if __name__ == "__main__":
    main(*sys.argv[1:])
