"""After each conversation our log holds the records that the real broker's held: see :mod:`.rendering`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from uuid import UUID

import pytest

from groupcoord import Config, ManualClock
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.conformance import InProcessTarget, load_transcripts
from groupcoord.conformance.in_process import InProcessServer
from groupcoord.conformance.matching import Bindings, first_difference
from groupcoord.conformance.runner import replay, settings_for
from groupcoord.conformance.targets import Settings
from groupcoord.conformance.transcript import PACKAGED
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.samples import portion, sampled
from tests.tables import as_one_test

from .rendering import GOLDEN, group_id_for, leaders_are_members, read_log, records_of, render

GOLDENS = sorted(GOLDEN.rglob("*.json"))


class SegmentFileTarget(InProcessTarget):
    """Broker in this process with segment files as its log; a restart opens them again."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._store = SegmentLogStore(directory)

    def start(self, settings: Settings) -> InProcessServer:
        clock, topics, numbers = ManualClock(1_700_000_000_000), TopicRegistry(), itertools.count(1)
        config = Config.from_properties(settings)
        data, producer_ids = TopicData(config, clock, topics), ProducerIds()

        def new_broker() -> Broker:
            self._store.close()
            self._store = SegmentLogStore(self._store.directory)
            return make_broker(
                config=config,
                clock=clock,
                log_store=self._store,
                topics=topics,
                data=data,
                producer_ids=producer_ids,
                new_member_id=lambda prefix: f"{prefix}-{UUID(int=next(numbers))}",
            )

        return InProcessServer(lambda: {1: new_broker()}, clock)

    def close(self) -> None:
        self._store.close()


@sampled
@as_one_test
@pytest.mark.parametrize("path", portion(GOLDENS), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_log_holds_what_the_real_broker_wrote(path: Path, tmp_path: Path) -> None:
    """Record for record our segment files hold what the broker's did."""
    golden = json.loads(path.read_text("utf-8"))
    (transcript,) = load_transcripts(PACKAGED / f"{golden['transcript']}.json")
    target, ends = SegmentFileTarget(tmp_path), list[Bindings]()
    try:
        server = target.start(settings_for(transcript))
        failure = replay(transcript, server, group_id_for(transcript), target.tolerance, on_end=ends.append)
    finally:
        target.close()
    assert failure is None, failure.describe()
    got = render(records_of(transcript, ends[0], read_log(tmp_path)))
    difference = first_difference(golden["records"], got, ends[0])
    assert difference is None, f"{difference}\nexpected {json.dumps(golden['records'])}\ngot      {json.dumps(got)}"
    assert leaders_are_members(got)


def test_goldens_belong_to_packaged_transcripts() -> None:
    """Each golden has a packaged transcript, at least 40 exist, and each file is at the path of its name."""
    names = {f"{path.parent.name}/{path.stem}": json.loads(path.read_text("utf-8"))["transcript"] for path in GOLDENS}
    assert all(place == name and (PACKAGED / f"{name}.json").exists() for place, name in names.items())
    assert len(names) >= 40
