"""Consumers that assign themselves partitions: offsets across libraries, and reading where there is nothing to read."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from groupcoord.testing.server import ServerThread
from tests.clients.counting_proxy import FETCH, LIST_OFFSETS, CountingProxy
from tests.clients.fleet import DEADLINE_S, PARTITION_COUNT, SETTINGS, TOPIC
from tests.clients.libraries import CONSUMERS, Consumer
from tests.processes import HOST, ServerProcess

FETCH_WAIT_S = 0.5  # the default of all three
WAITS = 3
OFFSET = 1_000_000_007

pytestmark = pytest.mark.usefixtures("client_libraries")


def open_one(library: str, bootstrap: str, group_id: str) -> Consumer:
    return CONSUMERS[library](bootstrap, group_id, TOPIC, auto_offset_reset="none")


def test_offsets_across_libraries(server: ServerThread) -> None:
    """Each library reads the others' commits, with or without metadata; a partition without a commit has no offset."""
    with ExitStack() as stack:
        consumers = [stack.enter_context(open_one(library, server.bootstrap, "across")) for library in CONSUMERS]
        for number, consumer in enumerate(consumers):
            consumer.commit({number: (OFFSET + number, "")})
            consumer.commit({number + 3: (number, f"metadata {number} ü")})
        for consumer in consumers:
            assert [consumer.committed(p) for p in range(7)] == [OFFSET, OFFSET + 1, OFFSET + 2, 0, 1, 2, None]


@pytest.mark.ci
@pytest.mark.parametrize("how", ["seek", "committed"])
def test_reading_beyond_the_end_rests(tmp_path: Path, how: str) -> None:
    """Consumers at offsets far beyond our empty logs neither reset nor spin: one fetch per waiting time, no more."""
    with ThreadPoolExecutor() as pool:
        rests = [pool.submit(_rest, tmp_path / library, library, how) for library in CONSUMERS]
        for rest in rests:
            rest.result()


def _rest(data_dir: Path, library: str, how: str) -> None:
    partitions = list(range(PARTITION_COUNT))
    with ExitStack() as stack:
        proxy = stack.enter_context(CountingProxy())
        server = ServerProcess(
            data_dir,
            topics={TOPIC: PARTITION_COUNT},
            settings=SETTINGS,
            words=["--no-records", "--advertised-host", HOST, "--advertised-port", str(proxy.port)],
        )
        stack.callback(server.kill)
        proxy.target_port = server.port
        with open_one(library, f"{HOST}:{proxy.port}", "far") as consumer:
            consumer.commit(dict.fromkeys(partitions, (OFFSET, "")))
        consumer = stack.enter_context(open_one(library, f"{HOST}:{proxy.port}", "far"))
        proxy.requests.clear()
        consumer.assign(dict.fromkeys(partitions, OFFSET if how == "seek" else None))
        end_s = time.monotonic() + DEADLINE_S
        first_fetch_s = 0.0
        while proxy.requests[FETCH] <= WAITS:
            assert consumer.poll(0.05) == []
            assert time.monotonic() < end_s, f"{library} does not fetch: {proxy.requests}"
            if proxy.requests[FETCH] and not first_fetch_s:
                first_fetch_s = time.monotonic()
        # The first fetch may ask for some of the partitions only; the next then follows at once.
        assert time.monotonic() - first_fetch_s > (WAITS - 2) * FETCH_WAIT_S, f"{library} spins: {proxy.requests}"
        assert proxy.requests[LIST_OFFSETS] == 0, f"{library} looks for another offset: {proxy.requests}"
        assert {consumer.committed(partition) for partition in partitions} == {OFFSET}
