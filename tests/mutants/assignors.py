"""Bugs that somebody could make in the assignors of share groups and of Kafka Streams' tasks."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

ASSIGNOR_MUTANTS = (
    Mutant(
        "members of a share group give nothing up",
        "share/simple_assignor.py",
        "for place in [*held][: max(len(held) - self._wanted.get(member, 0), 0)]:",
        "for place in [*held][:0]:",
    ),
    Mutant(
        "members of a share group begin with nothing",
        "share/simple_assignor.py",
        "division.keep(number, _held(assigned, topic_ids))",
        "division.keep(number, _held({}, topic_ids))",
    ),
    Mutant(
        "a task's last owner is the first",
        "streams/assignors/sticky.py",
        "self._ran.update(dict.fromkeys(_walk(spec.running.active), member))",
        "self._ran = {**dict.fromkeys(_walk(spec.running.active), member), **self._ran}",
    ),
    Mutant(
        "who ran a task is nobody special",
        "streams/assignors/sticky.py",
        "left = [task for task in left if not self._keep_active(task, self._ran.get(task))]",
        "left = [*left]",
    ),
    Mutant(
        "state attracts no tasks",
        "streams/assignors/sticky.py",
        "left = [task for task in left if not self._keep_active(task, _least(self._had_state.get(task, ())))]",
        "left = [*left]",
    ),
    Mutant(
        "the oldest state is the best",
        "streams/assignors/sticky.py",
        "(task not in standby, -offset, member)",
        "(task not in standby, offset, member)",
    ),
    Mutant(
        "offsets of tasks are as good as copies",
        "streams/assignors/sticky.py",
        "(task not in standby, -offset, member)",
        "(False, -offset, member)",
    ),
    Mutant(
        "nobody has too much",
        "streams/assignors/sticky.py",
        "if member is None or member.count >= self._active_quota.value:",
        "if member is None:",
    ),
    Mutant(
        "a process may copy what it runs",
        "streams/assignors/sticky.py",
        "if member is not None and has_room and task not in member.process.tasks:",
        "if member is not None and has_room:",
    ),
    Mutant(
        "shares are rounded down",
        "streams/assignors/sticky.py",
        "self.value = -(-self.tasks // self.members) if self.members else 0",
        "self.value = self.tasks // self.members if self.members else 0",
    ),
    Mutant(
        "shares stay when one is served",
        "streams/assignors/sticky.py",
        "            self.tasks -= count\n            self._divide()",
        "            self.tasks -= count",
    ),
    Mutant(
        "processes with many threads get as much as others",
        "streams/assignors/sticky.py",
        "return len(self.tasks) / len(self.members)",
        "return float(len(self.tasks))",
    ),
    Mutant(
        "who is passed over gets no copies any more",
        "streams/assignors/sticky.py",
        "        while passed:\n            queue.put(passed.pop())\n",
        "",
    ),
    Mutant(
        "those with equal state are all the same",
        "streams/assignors/sticky.py",
        "(member.process.load < best.process.load and member.count < best.count)",
        "(member.process.load < best.process.load)",
    ),
    Mutant(
        "copies are spread in the order of names",
        "streams/assignors/sticky.py",
        "for task, replicas in sorted(waiting, key=lambda entry: _by_name(entry[0]), reverse=True):",
        "for task, replicas in sorted(waiting, key=lambda entry: _by_name(entry[0])):",
    ),
)
