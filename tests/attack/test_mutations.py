"""Mutated requests: where the fields are is known, what is made follows from the seed, and nothing of it does harm."""

from __future__ import annotations

import random
from collections import Counter

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from tests.attack.fuzz import Conversation, expected_of
from tests.attack.layouts import CLIENT_ID, Layout, every_layout, layout, repeated
from tests.attack.mutations import Mutator
from tests.wire.kio_client import NOT_IN_KIO, VERSIONS, request_frame
from tests.wire.sample_frames import FRAMES
from tests.wire.sample_requests import BODIES

LAYOUTS = every_layout()
FRAME_COUNT = 4_000


def test_every_version_has_a_layout_that_covers_it() -> None:
    """A layout writes what kio writes, and its pieces cover every byte once."""
    assert {(each.api_key, each.version) for each in LAYOUTS} == set(FRAMES)
    assert {each.api_key for each in LAYOUTS} == set(VERSIONS)
    for each in LAYOUTS:
        if (each.api_key, each.version) not in NOT_IN_KIO:
            expected = request_frame(each.api_key, each.version, BODIES[each.api_key], CLIENT_ID)
            assert each.data == expected[:4] + bytes(4) + expected[8:]
            ends = [0, *(piece.end for piece in each.pieces)]
            assert ends == [*(piece.start for piece in each.pieces), len(each.data)]


def test_an_element_can_be_repeated() -> None:
    """A request that names one thing many times is what kio would write for it."""
    request = layout(15, 5, {"groups": ["one", "two"], "include_authorized_operations": True})
    values = {"groups": ["one"] * 300, "include_authorized_operations": True}
    expected = request_frame(15, 5, values, CLIENT_ID)
    assert repeated(request, 300) == expected[:4] + bytes(4) + expected[8:]


def made(seed: int, layouts: list[Layout], count: int) -> list[bytes]:
    mutator = Mutator(layouts, random.Random(seed))
    return [mutator.request(number, is_gentle=number % 3 > 0) for number in range(count)]


def test_the_seed_decides() -> None:
    assert made(1, LAYOUTS, 200) == made(1, LAYOUTS, 200)
    assert made(1, LAYOUTS, 200) != made(2, LAYOUTS, 200)


def test_a_conversation_follows_from_its_number() -> None:
    """Replaying one conversation sends the same bytes as the whole run did."""
    mutator = Mutator(LAYOUTS, random.Random(0))

    def make(chance: random.Random) -> Mutator:
        mutator.reseed(chance)
        return mutator

    run = [Conversation(number, 7, make).data for number in range(20)]
    assert Conversation(13, 7, make).data == run[13]
    assert expected_of(run[13])


def test_no_frame_does_harm() -> None:
    """A broker answers a mutated request or has its connection closed for a reason; it never fails inside."""
    broker = make_broker(config=Config(), clock=ManualClock(1_000), log_store=MemoryLogStore())
    broker.coordinator.load_all()
    outcomes: Counter[str] = Counter()
    for frame in made(3, LAYOUTS, FRAME_COUNT):
        connection = broker.connect("/127.0.0.1")
        connection.receive_data(frame)
        broker.handle_waiting()
        while connection.take_output():
            outcomes["answered"] += 1
        broker.take_dirty()
        assert "internal error" not in (connection.closing or ""), frame.hex()
        outcomes["closed"] += connection.closing is not None
        connection.close()
    assert outcomes["answered"] > FRAME_COUNT / 2
    assert outcomes["closed"] > FRAME_COUNT / 20
    broker.coordinator.check()
    broker.close()
