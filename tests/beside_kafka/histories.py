"""Histories: commands, and what Kafka's own classes did with each; how far groupcoord does the same.

A history has a ``name`` and ``steps``. The first step makes a coordinator (``new``). Each of the others is a command,
with the ``events`` that it brought about and, where they are others than before, all ``timers`` that are left (name →
deadline).
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import permutations
from pathlib import Path
from typing import Any

from attrs import field, frozen

from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.consumer.group import ConsumerGroup
from groupcoord.java import hash_map_order, timeline_map_order
from tests.beside_kafka.comparison import REGULAR_EXPRESSION, Difference, Tally, differences
from tests.beside_kafka.coordinator import Coordinator, Outcome, Step

ARCHIVE = Path(__file__).with_name("histories.jsonl.xz")
PERMUTED_MAX = 5
GROUP_EPOCH = 3


class Known(Enum):
    """Why a history goes on differently from here on, by ``docs/gaps.md``."""

    FORGOTTEN_GROUP = "an empty consumer group is joined with a member id that nobody knows"
    LEADER = "the leader is gone, and another one is chosen"
    ARRIVALS = "members whose ids share a bucket are walked in the order in which they came"
    REFUSED_END = "a join that ends an empty consumer group is refused by the log"
    LOOKS_AGAIN = "after a refused write a consumer group looks at its topics and subscriptions again"
    MATCHED_AGAIN = "after a load regular expressions are matched again, since topics grew or went"
    SAME_MOMENT = "two timers fire at the same moment"
    FORMER_TIMER = "a timer fires that was set in a former life of its group, or by a request whose write was refused"


@frozen
class Verdict:
    """How far a history went the same way.

    Attributes:
        name: of the history.
        steps: how many commands came out the same.
        difference: what came out differently then; None if nothing did.
        known: why, if that is known.
        tally: how much was compared.
    """

    name: str
    steps: int
    difference: Difference | None = None
    known: Known | None = None
    tally: Tally = field(factory=Tally)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the histories of a file, one a line; one that ends in ``.xz`` is compressed."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            history = json.loads(line)
            timers: dict[str, int] = {}
            for step in history["steps"]:
                timers = step.setdefault("timers", timers)
            yield history


def follow(history: dict[str, Any]) -> Verdict:
    """Tell groupcoord the commands of a history, as long as the same comes of them as with Kafka."""
    name, (new, *steps) = history["name"], history["steps"]
    memory, tally = _Memory(Coordinator(new)), Tally()
    for number, step in enumerate(steps):
        if _joins_empty_consumer_group(memory.coordinator, step):
            if step["body"]["member_id"]:
                return Verdict(name, number, None, Known.FORGOTTEN_GROUP, tally)
            if any("refused" in event for event in step["events"]):
                return Verdict(name, number, None, Known.REFUSED_END, tally)
        memory.look_at_timers(step)
        outcome = memory.coordinator.do(step)
        memory.has_loaded = memory.has_loaded or step["do"] in ("reload", "loaded")
        memory.has_refused = memory.has_refused or any("refused" in event for event in step["events"])
        found = differences(step, outcome, has_refused=memory.has_refused, tally=tally)
        found += memory.differing_timers(step, outcome)
        memory.note_leaders()
        if found:
            return Verdict(name, number, found[0], memory.reason(found), tally)
    memory.coordinator.check()
    return Verdict(name, len(steps), tally=tally)


def _joins_empty_consumer_group(coordinator: Coordinator, step: Step) -> bool:
    if step.get("api") != "JoinGroup":
        return False
    group = coordinator.group(step["body"]["group_id"])
    return isinstance(group, ConsumerGroup) and group.is_empty


class _Memory:
    """What has to be known of a history to tell what is different on purpose.

    Attributes:
        coordinator: groupcoord.
        has_refused: the log has refused an append.
        has_loaded: it was loaded again.
        timers: timers that are known to differ: name → the deadline there and the deadline here.
        kafka: Kafka's timers.
        has_tie: two of them fire at the same moment now.
        has_fired: such a timer has fired, and may have found something to do.
        leaders: the leader of each classic group.
        chosen: members that took over from a leader who was gone.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.has_refused = self.has_loaded = False
        self.timers: dict[str, tuple[int | None, int | None]] = {}
        self.kafka: dict[str, int] = {}
        self.has_tie = self.has_fired = False
        self.leaders: dict[str, str | None] = {}
        self.chosen: set[str | None] = set()

    def look_at_timers(self, step: Step) -> None:
        """Note whether a timer that differs fires in this step, or two at the same moment."""
        end_ms = self.coordinator.now_ms() + step.get("ms", 0)
        moments = [at_ms for at_ms in self.kafka.values() if at_ms <= end_ms]
        self.has_tie = len(moments) > len(set(moments))
        self.kafka = step["timers"]
        fired = [
            name for name, pair in self.timers.items() if any(at_ms is not None and at_ms <= end_ms for at_ms in pair)
        ]
        if fired:
            group_ids = {group.group_id for group in self.coordinator.groups()}
            of_groups = {f"{kind}-{group_id}" for kind in ("join", "sync") for group_id in group_ids}
            self.has_fired = self.has_fired or not (self.coordinator.live_timers() | of_groups).isdisjoint(fired)

    def differing_timers(self, step: Step, outcome: Outcome) -> list[Difference]:
        """Return the timers that differ, and note those that may.

        Kafka leaves timers be whose member or group is gone: they find nothing to do. And it sets and cancels timers
        of a consumer group's members before it writes: they stay so if the write is refused.
        """
        kafka, here = step["timers"], outcome.timers
        if kafka == here:
            self.timers = {}
            return []
        live, is_refused = self.coordinator.live_timers(), any("refused" in event for event in step["events"])
        known, self.timers = self.timers, {}
        found = []
        for name in sorted({**kafka, **here}):
            pair = kafka.get(name), here.get(name)
            if pair[0] == pair[1]:
                continue
            is_of_member = name.startswith(("session-timeout", "rebalance-timeout", "join", "sync"))
            if known.get(name) == pair or (pair[1] is None and name not in live) or (is_refused and is_of_member):
                self.timers[name] = pair
            else:
                found.append(
                    Difference(f"{step.get('api', step['do'])}: timer {name.split('-')[0]}", (name, pair[0]), pair[1])
                )
        return found

    def note_leaders(self) -> None:
        """Note who leads now."""
        groups = [group for group in self.coordinator.groups() if isinstance(group, GroupMetadata)]
        for group in groups:
            before = self.leaders.get(group.group_id)
            if before is not None and before != group.leader:
                self.chosen.add(group.leader)
        self.leaders = {group.group_id: group.leader for group in groups}

    def reason(self, found: list[Difference]) -> Known | None:
        """Return why something differs, if that is known."""
        if self.has_fired:
            return Known.FORMER_TIMER
        if self.has_tie:
            return Known.SAME_MOMENT
        reasons = (self._reason(difference) for difference in found)
        return next((reason for reason in reasons if reason is not None), None)

    def _reason(self, difference: Difference) -> Known | None:
        if self.has_refused and _writes_epoch(difference.here) and not _writes_epoch(difference.kafka):
            return Known.LOOKS_AGAIN
        if difference.what.endswith("JoinGroup.leader") and difference.here["leader"] in self.chosen:
            return Known.LEADER
        if "record 2 value.data.leader" in difference.what:
            return Known.ARRIVALS if len(difference.kafka["value"]["data"]["members"]) > 1 else None
        if difference.what.endswith("an append of one alone") and difference.here is None:
            is_match = all(record["key"]["type"] == REGULAR_EXPRESSION for record in difference.kafka)
            return Known.MATCHED_AGAIN if is_match and self.has_loaded else None
        if "record 7 " in difference.what or difference.what.endswith("which records"):
            records = difference.kafka if isinstance(difference.kafka, list) else [difference.kafka]
            group = self.coordinator.group(records[0]["key"]["data"].get("groupId", ""))
            if isinstance(group, ConsumerGroup) and _is_order_open(group.state.members):
                return Known.ARRIVALS
            return Known.LOOKS_AGAIN if self.has_refused and isinstance(group, ConsumerGroup) else None
        return None


def _writes_epoch(records: Any) -> bool:
    """Tell whether one of these records says that a consumer group's epoch has grown."""
    return isinstance(records, list) and any(record["key"]["type"] == GROUP_EPOCH for record in records)


def _is_order_open(member_ids: Iterable[str]) -> bool:
    """Tell whether the order in which Java walks these ids depends on that in which they came."""
    orders = map(timeline_map_order, permutations(sorted(member_ids)[:PERMUTED_MAX]))
    return len({tuple(hash_map_order(order)) for order in orders}) > 1
