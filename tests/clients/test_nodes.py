"""Real clients go on while coordinators and leaders move and nodes crash: nothing acknowledged is lost."""

from __future__ import annotations

import threading

import pytest

from groupcoord.testing import ServerThread
from tests.clients.libraries import CONSUMERS
from tests.clients.services import COUNT, DEADLINE_S, GROUP, TOPIC, Service, run

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("client_libraries")]


@pytest.mark.parametrize("library", CONSUMERS)
def test_clients_go_on_while_nodes_change(library: str) -> None:
    """The coordinator moves, leaders move, the coordinator's node crashes and comes back: all that was acknowledged is
    in the topic and is booked, and the group's offsets are there."""
    with ServerThread(topics={TOPIC: 3}, nodes=3) as server:
        service = Service(server.bootstrap)
        thread = threading.Thread(target=run, args=(library, service))
        thread.start()
        try:
            service.wait_for(COUNT // 6)
            first = server.coordinator(GROUP)
            assert server.move_coordinator(GROUP) != first
            service.wait_for(2 * COUNT // 6)
            for index in range(3):
                server.move_leader(TOPIC, index)
            service.wait_for(3 * COUNT // 6)
            crashed = server.coordinator(GROUP)
            server.crash(node=crashed)
            service.wait_for(4 * COUNT // 6)
            server.restart(node=crashed)
            service.wait_for(5 * COUNT // 6)
            server.move_coordinator(GROUP, to=crashed)
            service.wait_for(COUNT)
            server.wait_until(lambda: sum(server.committed(GROUP).values()) >= COUNT)
        finally:
            service.ends.set()
            thread.join(DEADLINE_S)

        kept = [record.value for record in server.records(TOPIC)]
        assert len(service.acknowledged) == COUNT
        assert set(service.acknowledged) <= set(kept)
        assert set(service.booked) == set(kept)
        assert {request.node_id for request in server.requests.where("Produce")} == {1, 2, 3}
