"""Bugs that somebody could make in streams groups (KIP-1071), as :mod:`tests.mutants.catalogue` has them of the rest.

They come from what a request meets before its group, topics that must fit together, and what is told of tasks.
"""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

STREAMS_GROUP_MUTANTS = (
    Mutant(
        "a topology may name Kafka's own topics",
        "front/streams_groups.py",
        "if name in INTERNAL_TOPICS]",
        "if name is None]",
    ),
    Mutant(
        "only sources of a topology need to be described",
        "front/streams_groups.py",
        "        yield from subtopology.repartition_sink_topics\n",
        "",
    ),
    Mutant(
        "who joins may leave tasks unsaid",
        "front/streams_groups.py",
        "if tasks is None or tasks:",
        "if tasks:",
    ),
    Mutant(
        "tasks of one kind may be told alone",
        "front/streams_groups.py",
        "if len(given) > 1:",
        "if len(given) > 2:",
    ),
    Mutant(
        "a topology may come at any time",
        "front/streams_groups.py",
        "if epoch != JOIN_GROUP_MEMBER_EPOCH and request.topology is not None:",
        "if epoch < JOIN_GROUP_MEMBER_EPOCH and request.topology is not None:",
    ),
    Mutant(
        "a status of the description is told unasked",
        "front/streams_groups.py",
        "if not request.include_topology_description or group.error_code is not ErrorCode.NONE:",
        "if group.error_code is not ErrorCode.NONE:",
    ),
    Mutant(
        "a repartition topic has as many partitions as the smallest source",
        "streams/topology.py",
        "return max((count for count in counts if count is not None), default=None)",
        "return min((count for count in counts if count is not None), default=None)",
    ),
    Mutant(
        "nobody need write a repartition topic",
        "streams/topology.py",
        'raise InvalidTopologyError(f"Nothing writes to repartition topic {name}.")',
        "self._decided[name] = 1",
    ),
    Mutant(
        "sources that are to be copartitioned may differ",
        "streams/topology.py",
        "count, *different = dict.fromkeys(others.values())",
        "count, different = max(others.values()), ()",
    ),
    Mutant(
        "an internal topic may have any number of partitions",
        "streams/topology.py",
        "            if found != expected:\n",
        "            if found < 0:\n",
    ),
    Mutant(
        "every target is written anew",
        "streams/target.py",
        "if before.get(member_id) != target",
        "if True",
    ),
    Mutant(
        "copies are told as active at an endpoint",
        "streams/endpoints.py",
        "standby = _partitions((*assigned.standby, *assigned.warmup), configured, topics)",
        "standby = _partitions((), configured, topics)",
    ),
    Mutant(
        "tasks are told at an endpoint for topics without such a partition",
        "streams/endpoints.py",
        "tuple(number for number in partitions if number < existing[name].partition_count)",
        "tuple(partitions)",
    ),
    Mutant(
        "internal topics are asked for with each heartbeat",
        "streams/internal_topics.py",
        "new = tuple(topic for topic in missing if topic.name not in self._asked)",
        "new = tuple(missing)",
    ),
    Mutant(
        "an error of a creation is told for ever",
        "streams/internal_topics.py",
        "if name in self._asked and self._asked[name].until_ms <= now_ms:",
        "if False:",
    ),
    Mutant(
        "a task goes on before it was given up",
        "streams/reconciliation.py",
        "            self.processes.active_at(task)\n            or",
        "           ",
    ),
    Mutant(
        "a copy is made beside the task",
        "streams/reconciliation.py",
        "            (self.process_id in self.processes.active_at(task) and task not in self.current.assigned.active)\n"
        "            or self.process_id in self.processes.standby_at(task)\n",
        "            self.process_id in self.processes.standby_at(task)\n",
    ),
    Mutant(
        "a task goes on beside a copy",
        "streams/reconciliation.py",
        "            self.processes.active_at(task)\n"
        "            or (self.process_id in self.processes.standby_at(task) and",
        "            self.processes.active_at(task)\n            or (not self.process_id and",
    ),
)
