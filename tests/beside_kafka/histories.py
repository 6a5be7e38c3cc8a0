"""Histories: commands, and what Kafka's own classes did with each; how far groupcoord does the same.

A history has a ``name`` and ``steps``. The first step makes a coordinator (``new``). Each of the others is a command,
with the ``events`` that it brought about and, where they are others than before, all ``timers`` that are left (name →
deadline).
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import permutations
from pathlib import Path
from typing import Any

from attrs import field, frozen

from groupcoord.conformance.entities import API_KEYS
from groupcoord.core.groups.base.group import ModernGroup
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.javacompat import hash_map_order, timeline_map_order
from tests.beside_kafka.comparison import REGULAR_EXPRESSION, Difference, Tally, described, differences, written_of
from tests.beside_kafka.coordinator import Coordinator, Outcome, Step
from tests.beside_kafka.share_targets import WHERE_TARGETS_SHOW, comes_of_another_order

ARCHIVES = tuple(Path(__file__).with_name(f"{name}.jsonl.xz") for name in ("histories", "share", "streams"))
PERMUTED_MAX = 5
GROUP_EPOCHS = (3, 17)

LEFT_BEHIND = (
    "StreamsGroupHeartbeat: StreamsGroupHeartbeat.active_tasks",
    "StreamsGroupHeartbeat: StreamsGroupHeartbeat.standby_tasks",
    "StreamsGroupHeartbeat: record 22 value.data.activeTasks",
    "StreamsGroupHeartbeat: record 22 value.data.standbyTasks",
)
"""What a refused write may change until the next load, with Kafka: see gaps.md, *Copies after a failed write*."""


class Known(Enum):
    """Reason for a history to continue differently, by ``docs/gaps.md``."""

    FORGOTTEN_GROUP = "an empty consumer or streams group is joined with a member id that nobody knows"
    LEADER = "the leader is gone, and another one is chosen"
    ARRIVALS = "members whose ids share a bucket are walked in the order in which they came"
    TAKEN_ALONG = "a refused write takes along a group of which the log has nothing, and joins that wait in it are told"
    REFUSED_END = "a join that ends an empty consumer or streams group is refused by the log"
    LOOKS_AGAIN = "after a refused write or heartbeat a consumer or streams group looks at its topics again"
    MATCHED_AGAIN = "after a load regular expressions are matched again, since topics grew or went"
    SECOND_PLACE = (
        "a member takes a static member's place, and what it subscribed to and was to have itself still counts"
    )
    SAME_MOMENT = "two timers fire at the same moment"
    FORMER_DELAY = "a streams group waits for more members since a join that was refused, or in a former life"
    LEFT_BEHIND = "a refused write leaves behind which processes have copies of a task"
    FAILED_LOAD = "Kafka fails to load what a log cleaner has left of a streams group"
    FORMER_TIMER = "a timer fires that was set in a former life of its group, or by a request whose write was refused"


@frozen
class Verdict:
    """Extent to which a history had equal results."""

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
    """Execute the commands of a history while the results equal Kafka's."""
    name, (new, *steps) = history["name"], history["steps"]
    memory, tally = _Memory(Coordinator(new)), Tally()
    for number, step in enumerate(steps):
        if _joins_empty_group(memory.coordinator, step):
            if step["body"]["member_id"]:
                return Verdict(name, number, None, Known.FORGOTTEN_GROUP, tally)
            if _is_refused(step):
                return Verdict(name, number, None, Known.REFUSED_END, tally)
        memory.look_ahead(step)
        outcome = memory.coordinator.do(step)
        found = differences(step, outcome, has_refused=memory.has_refused, tally=tally)
        found += memory.differing_timers(step, outcome)
        if found:
            return Verdict(name, number, found[0], memory.reason(step, found), tally)
        memory.look_back(step, outcome)
    memory.coordinator.check()
    return Verdict(name, len(steps), tally=tally)


def _joins_empty_group(coordinator: Coordinator, step: Step) -> bool:
    if step.get("api") != "JoinGroup":
        return False
    group = coordinator.group(step["body"]["group_id"])
    return isinstance(group, ModernGroup) and group.is_empty


def _takes_second_place(coordinator: Coordinator, step: Step) -> bool:
    """Return whether a member joins with the instance id of another."""
    body = step.get("body", {})
    group = coordinator.group(body.get("group_id", "")) if body.get("instance_id") else None
    if not isinstance(group, ConsumerGroup) or body["member_id"] not in group.state.members:
        return False
    return group.state.static_members.get(body["instance_id"], body["member_id"]) != body["member_id"]


class _Memory:
    """What has to be known of a history to tell what is different on purpose.

    Attributes:
        coordinator: groupcoord.
        has_refused: the log has refused an append.
        has_left_copies: the same since the last load, and a streams group has standby tasks.
        has_loaded: it was loaded again.
        has_lost_topics: topics have grown or gone.
        timers: timers that are known to differ: name → the deadline there and the deadline here.
        kafka: Kafka's timers.
        has_tie: two of them fire at the same moment in this step.
        has_fired: one that differs fires in this step, and may find something to do.
        has_ended_phase: one that differs has fired that ends a phase of a classic group. Nobody sees that at once.
        leaders: the leader of each classic group.
        chosen: members that took over from a leader who was gone, in steps before.
        looking: groups that look at their topics again because a write or a heartbeat of theirs was refused.
        has_former_delay: a streams group has begun to wait for more members, and waits already with Kafka.
        orders_open: streams groups whose members, before this step, are walked in the order in which they came.
        has_two_places: somebody who is a member takes the place of a static member in this step.
        refusing: the ids of all groups before a step in which the log refuses an append; none before another step.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.has_refused = self.has_left_copies = self.has_loaded = self.has_lost_topics = False
        self.timers: dict[str, tuple[int | None, int | None]] = {}
        self.kafka: dict[str, int] = {}
        self.has_tie = self.has_fired = self.has_ended_phase = False
        self.leaders: dict[str, str | None] = {}
        self.chosen: set[str | None] = set()
        self.looking: set[str] = set()
        self.orders_open: set[str] = set()
        self.refusing: set[str] = set()
        self.has_two_places = self.has_former_delay = False

    def look_ahead(self, step: Step) -> None:
        """Note what the log does in this step, and whether a timer that differs fires, or two at the same moment."""
        self.has_loaded = self.has_loaded or step["do"] in ("reload", "loaded")
        self.has_refused = self.has_refused or _is_refused(step)
        self.has_lost_topics = self.has_lost_topics or bool(step.get("grow") or step.get("delete"))
        self.refusing = {group.group_id for group in self.coordinator.groups()} if _is_refused(step) else set()
        self.has_two_places = _takes_second_place(self.coordinator, step)
        self.orders_open = {
            group.group_id
            for group in self.coordinator.groups()
            if isinstance(group, StreamsGroup) and _may_order_be_open(group.state.members)
        }
        end_ms = self.coordinator.now_ms() + step.get("ms", 0)
        moments = [at_ms for at_ms in self.kafka.values() if at_ms <= end_ms]
        self.has_tie = len(moments) > len(set(moments))
        self.kafka = step["timers"]
        fired = [
            name for name, pair in self.timers.items() if any(at_ms is not None and at_ms <= end_ms for at_ms in pair)
        ]
        if fired:
            classic = [group.group_id for group in self.coordinator.groups() if isinstance(group, GroupMetadata)]
            of_groups = {f"{kind}-{group_id}" for kind in ("join", "sync") for group_id in classic}
            self.has_ended_phase = self.has_ended_phase or not of_groups.isdisjoint(fired)
        self.has_fired = bool(fired) and not self.coordinator.live_timers().isdisjoint(fired)

    def look_back(self, step: Step, outcome: Outcome) -> None:
        """Note who leads and was chosen to, and which groups look at their topics again."""
        groups = self.coordinator.groups()
        has_copies = any(isinstance(group, StreamsGroup) and group.state.standby_replicas for group in groups)
        is_loaded = step["do"] in ("reload", "loaded")
        self.has_left_copies = not is_loaded and (self.has_left_copies or (_is_refused(step) and has_copies))
        self.chosen |= outcome.elected
        self.leaders = self.coordinator.leaders()
        due = {group.group_id for group in groups if isinstance(group, ModernGroup) and group.is_topics_look_due}
        # A heartbeat after which the group still has to look was refused.
        may_be = _is_refused(step) or step.get("api") == "StreamsGroupHeartbeat"
        self.looking = due if may_be else self.looking & due

    def differing_timers(self, step: Step, outcome: Outcome) -> list[Difference]:
        """Return the timers that differ, and note those that may.

        Kafka leaves timers be whose member or group is gone: they find nothing to do, unless both are there again by
        then. It keeps such a timer for a member that is told to join again, and sets no other. And it sets and
        cancels timers of a consumer group's members before it writes: they stay so if the write is refused.
        """
        kafka, here = step["timers"], outcome.timers
        if kafka == here:
            self.timers = {}
            return []
        live, is_refused = self.coordinator.live_timers(), _is_refused(step)
        known, self.timers = self.timers, {}
        found = []
        self.has_former_delay = False
        for name in sorted({**kafka, **here}):
            pair = kafka.get(name), here.get(name)
            if pair[0] == pair[1]:
                continue
            was, is_left_over = known.get(name), pair[1] is None and name not in live
            is_of_member = name.startswith(("session-timeout", "rebalance-timeout", "initial", "join", "sync"))
            is_kept = was is not None and was[0] == pair[0] and was[1] is None and name.startswith("join")
            if name.startswith("initial") and was is not None and was[0] == pair[0] and was[1] is None:
                self.has_former_delay = True
            if was == pair or is_left_over or is_kept or (is_refused and is_of_member):
                self.timers[name] = pair
            else:
                found.append(
                    Difference(f"{step.get('api', step['do'])}: timer {name.split('-')[0]}", (name, pair[0]), pair[1])
                )
        return found

    def reason(self, step: Step, found: list[Difference]) -> Known | None:
        """Return why something differs, if that is known."""
        if "compact" in step and not step["timers"]:  # what is loaded has at least the timer of expiry
            return Known.FAILED_LOAD
        if self.has_fired or self.has_ended_phase:
            return Known.FORMER_TIMER
        if self.has_former_delay:
            return Known.FORMER_DELAY
        if self.has_tie:
            return Known.SAME_MOMENT
        if self._are_members_in_another_order(step, found):
            return Known.ARRIVALS
        reasons = (self._reason(difference) for difference in found)
        return next((reason for reason in reasons if reason is not None), None)

    def _reason(self, difference: Difference) -> Known | None:
        what, kafka, here = difference.what, difference.kafka, difference.here
        if self.has_left_copies and what.startswith(LEFT_BEHIND):
            return Known.LEFT_BEHIND
        if self.has_refused and what.startswith("StreamsGroupHeartbeat: timer initial"):
            return Known.LEFT_BEHIND
        if self.has_refused and what == "advance: how many appends are refused" and here == kafka + 1:
            return Known.LEFT_BEHIND
        if what.endswith("an answer that one gives alone") and kafka is None:
            is_gone = any(self.coordinator.group(group_id) is None for group_id in self.refusing)
            return Known.TAKEN_ALONG if is_gone and here.header.api_key == API_KEYS["JoinGroup"] else None
        if what.endswith("JoinGroup.leader"):
            return Known.LEADER if self._is_leader_chosen(difference) else None
        if "record 2 value.data.leader" in what:
            member_ids = [member["memberId"] for member in kafka["value"]["data"]["members"]]
            return Known.ARRIVALS if _is_order_open(member_ids, timeline_map_order) else None
        if what.endswith("how many appends are refused") and kafka == here + 1:
            groups = self.coordinator.groups()
            has_regex = any(isinstance(group, ConsumerGroup) and group.state.regex_subscribers for group in groups)
            return Known.MATCHED_AGAIN if has_regex and self.has_loaded and self.has_lost_topics else None
        if what.endswith("an append of one alone") and here is None:
            types = {record["key"]["type"] for record in kafka}
            is_match = REGULAR_EXPRESSION in types and types <= {REGULAR_EXPRESSION, *GROUP_EPOCHS}
            return Known.MATCHED_AGAIN if is_match and self.has_loaded and self.has_lost_topics else None
        if self.has_two_places and ("record 3 value.data.metadataHash" in what or "record 7 " in what):
            return Known.SECOND_PLACE
        if "record 17 value.data.metadataHash" in what and self.looking.intersection(_groups_of([kafka])):
            return Known.LOOKS_AGAIN
        if _writes_epoch(here) and not _writes_epoch(kafka):
            return Known.LOOKS_AGAIN if self.looking.intersection(_groups_of(here)) else None
        if "record 7 " in what or "record 21 " in what or what.endswith("which records"):
            for group_id in _groups_of(kafka if isinstance(kafka, list) else [kafka]):
                group = self.coordinator.group(group_id)
                if group_id in self.orders_open:
                    return Known.ARRIVALS
                if isinstance(group, ConsumerGroup | StreamsGroup) and _may_order_be_open(group.state.members):
                    return Known.ARRIVALS
                if group_id in self.looking:
                    return Known.LOOKS_AGAIN
        return None

    def _are_members_in_another_order(self, step: Step, found: list[Difference]) -> bool:
        """Return whether only targets of a share group differ, explained by another order of members."""
        if not all(any(where in difference.what for where in WHERE_TARGETS_SHOW) for difference in found):
            return False
        written = [record for event in step["events"] if "records" in event for record in described(written_of(event))]
        return any(comes_of_another_order(group, written) for group in self.coordinator.share_targets())

    def _is_leader_chosen(self, difference: Difference) -> bool:
        """Return whether the leader is gone, in this step or before, so that both sides elected another."""
        leaders = {difference.kafka["leader"], difference.here["leader"]}
        had_leader = leaders.isdisjoint(leader for leader in self.leaders.values() if leader is not None)
        return difference.here["leader"] in self.chosen or (had_leader and any(self.leaders.values()))


def _is_refused(step: Step) -> bool:
    """Return whether the log refuses an append in this step."""
    return any("refused" in event for event in step["events"])


def _groups_of(records: list[Any]) -> set[str]:
    return {record["key"]["data"].get("groupId", "") for record in records}


def _writes_epoch(records: Any) -> bool:
    """Return whether one of these records raises a consumer group's epoch."""
    return isinstance(records, list) and any(record["key"]["type"] in GROUP_EPOCHS for record in records)


def _order_of_assignment(member_ids: Iterable[str]) -> list[str]:
    """Return the order in which Java walks members to assign partitions to them, if they came in this order."""
    return hash_map_order(timeline_map_order(member_ids))


def _is_order_open(
    member_ids: Iterable[str], order_of: Callable[[Iterable[str]], list[str]] = _order_of_assignment
) -> bool:
    """Return whether Java's iteration order of these ids depends on their insertion order."""
    return len({tuple(order_of(arrivals)) for arrivals in permutations(sorted(member_ids)[:PERMUTED_MAX])}) > 1


def _may_order_be_open(member_ids: Iterable[str]) -> bool:
    """Return the same for all members except perhaps a new one of the request."""
    ids = sorted(member_ids)
    return any(_is_order_open([other for other in ids if other != newcomer]) for newcomer in [None, *ids])
