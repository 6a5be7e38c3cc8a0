"""The log of groups under the eyes of others: readers that follow ``__consumer_offsets`` while it is compacted, starts
without a record, and a second server on the same folder.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from typing import Any

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.records.batches import iter_batches
from groupcoord.records.codec import decode_record
from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import SETTINGS, Target
from tests.crash.processes import ServerFailedError
from tests.storage.real_broker import ask

OFFSETS, TOPIC, GROUPS = "__consumer_offsets", "orders", 12
PARTITIONS = range(int(SETTINGS["offsets.topic.num.partitions"]))
COMMITS, FETCH_BYTES, PATIENCE_S = 1_000, 2**20, 30.0
COMPACTING: dict[str, str | int] = {
    "offsets.topic.segment.bytes": 16_384,
    "log.cleaner.backoff.ms": 1,
    "log.cleaner.min.cleanable.ratio": "0.01",
}


class Follower:
    """Reads ``__consumer_offsets`` from where it was told to, and knows what each group has committed last."""

    def __init__(self, target: Target) -> None:
        self.positions = dict.fromkeys(PARTITIONS, 0)
        self.committed: dict[str, int] = {}
        self._client = Client(SocketServer("127.0.0.1", target.port), "follower")

    def ends(self) -> dict[int, int]:
        """Return where the partitions end, as the server says it."""
        asked = [{"partition_index": index, "timestamp": -1} for index in PARTITIONS]
        topics = [{"name": OFFSETS, "partitions": asked}]
        (told,) = ask(self._client, "ListOffsets", 1, {"replica_id": -1, "topics": topics})["topics"]
        for partition in told["partitions"]:
            assert partition["error_code"] == "NONE", f"where {OFFSETS} ends: {partition}"
        return {partition["partition_index"]: partition["offset"] for partition in told["partitions"]}

    def commit(self, group_id: str, offset: int) -> None:
        """Commit as somebody who is no member."""
        partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        topics = [{"name": TOPIC, "partitions": [partition | {"committed_metadata": ""}]}]
        asked = {"group_id": group_id, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        answer = ask(self._client, "OffsetCommit", 7, asked | {"group_instance_id": None})
        (told,) = answer["topics"][0]["partitions"]
        assert told["error_code"] == "NONE", f"a commit: {told}"

    def read(self) -> None:
        """Fetch once, and take over what comes."""
        common = {"partition_max_bytes": FETCH_BYTES, "log_start_offset": -1, "current_leader_epoch": -1}
        asked = [common | {"partition": index, "fetch_offset": place} for index, place in self.positions.items()]
        topics = [{"topic": OFFSETS, "partitions": asked}]
        body = {"max_wait": 500, "min_bytes": 1, "max_bytes": FETCH_BYTES, "isolation_level": 0, "topics": topics}
        session = {"replica_id": -1, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}
        (told,) = ask(self._client, "Fetch", 9, body | session)["responses"]
        for partition in told["partitions"]:
            assert partition["error_code"] == "NONE", f"a fetch of {OFFSETS}: {partition}"
            self._take(partition)

    def _take(self, partition: dict[str, Any]) -> None:
        index = partition["partition_index"]
        for batch in iter_batches(bytes.fromhex((partition["records"] or {"hex": ""})["hex"])):
            for offset, _, key, value in batch.records():
                if offset >= self.positions[index]:
                    self.positions[index] = offset + 1
                    record = decode_record(key, value)
                    if isinstance(record, OffsetCommitRecord):
                        self.committed[record.group_id] = record.offset

    def close(self) -> None:
        """Go away."""
        self._client.close()


def compacted(siege: Siege, replay: str) -> Result:
    """Each commit is seen by who follows, at once, and the last ones by who reads from the beginning."""

    def attack(target: Target, result: Result) -> None:
        with closing(Follower(target)) as follower, closing(Follower(target)) as late:
            follower.positions = follower.ends()
            slowest_s = 0.0
            for number in range(COMMITS):
                group_id = f"followed-{number % GROUPS}"
                follower.commit(group_id, number)
                result.count("commits followed")
                begin_s = time.monotonic()
                while follower.committed.get(group_id) != number:
                    follower.read()
                    assert time.monotonic() < begin_s + PATIENCE_S, f"commit {number} isn't seen"
                slowest_s = max(slowest_s, time.monotonic() - begin_s)
            if 1_000 * slowest_s > siege.bounds.slowest_ms:
                result.fault(f"a follower saw a commit after {slowest_s:.2f} s")
            ends = late.ends()
            while any(late.positions[index] < end for index, end in ends.items()):
                late.read()
                result.count("reads from the beginning")
            expected = {f"followed-{number % GROUPS}": number for number in range(COMMITS - GROUPS, COMMITS)}
            for who, read in (("who follows", follower.committed), ("who reads from the beginning", late.committed)):
                if expected.items() - read.items():
                    result.fault(f"{who} misses {expected.items() - read.items()}")
            segments = len(list(target.data_dir.glob(f"{OFFSETS}-*/*.log")))
            result.notes.append(f"each was seen within {1_000 * slowest_s:.0f} ms; {segments} segments are left")

    settings = {**siege.settings, **COMPACTING}
    return dataclasses.replace(siege, settings=settings).run(
        Result("followers", "commits while their log is compacted", replay), attack
    )


def started_in_vain(siege: Siege, replay: str) -> Result:
    """Runs in which no group writes, and then one in which one does: one topic, and nothing wrong with it."""

    def attack(target: Target, result: Result) -> None:
        other = Target(target.folder / "quiet")
        other.folder.mkdir()
        try:
            for is_last in (False, False, True):
                other.start()
                result.count("starts")
                if is_last:
                    with closing(Follower(other)) as follower:
                        follower.commit("first", 1)
                        follower.ends()
                        follower.read()
                other.end()
                if other.log():
                    result.fault(f"the log of start {result.inputs['starts']} says: {other.log()}")
        finally:
            other.kill()

    return siege.run(Result("followers", "a first run that writes nothing", replay), attack)


def second_server(siege: Siege, replay: str) -> Result:
    """Nobody else gets in while a server has the folder, with its lock file and without."""

    def attack(target: Target, result: Result) -> None:
        other = Target(target.folder / "second", data_dir=target.data_dir)
        other.folder.mkdir()
        for _ in range(2):
            try:
                other.start()
            except ServerFailedError:
                result.count("servers refused")
                if len(other.log().splitlines()) != 1:
                    result.fault(f"not one line says why: {other.log()}")
            else:
                other.kill()
                result.fault("a second server has the same folder")
            (target.data_dir / ".lock").unlink(missing_ok=True)

    return siege.run(Result("followers", "a second server on the same folder", replay), attack)
