"""Mistakes of a test: one line at the test's own line, which names what exists."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import groupcoord.testing
from groupcoord.errors import ErrorCode, UnknownNameError
from groupcoord.messages import Heartbeat, OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.testing import ServerThread
from groupcoord.testing.faults.server_faults import Fault
from tests.pytest_runs import WITHOUT_HYPOTHESIS, run_pytest

TIMEOUT_S = 60.0

COMMIT = OffsetCommit("billing", (TopicToCommit("orders", (OffsetToCommit(0, 2),)),))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (lambda server: server.fail_next("OffsetComit", "NOT_COORDINATOR"), "did you mean 'OffsetCommit'"),
        (lambda server: server.fail_next("OffsetCommit", "NOT_CORDINATOR"), "did you mean 'NOT_COORDINATOR'"),
        (lambda server: server.fail_next("OffsetCommit", 4711), "there is no error 4711"),
        (lambda server: server.hold("OffsetCommit", where={"grup": "x"}), "have no 'grup'; they have .*group_id"),
        (lambda server: server.requests.where("OffsetComit"), "did you mean 'OffsetCommit'"),
        (lambda server: server.requests.where(int), r"called 'int'$"),
        (lambda server: server.records("__consumer_offsets"), "'__consumer_offsets' is an internal topic"),
        (
            lambda server: server.produce("order", ["tea"]),
            r"no topic 'order'; did you mean 'orders'\? \(topics: orders\)",
        ),
        (lambda server: server.records("orders", 7), "no partition 7 of topic 'orders', which has 1"),
        (lambda server: server.move_leader("order"), "no partition order-0; did you mean 'orders'"),
        (lambda server: server.move_leader("orders", to=2), "no node 2, only node 1; start the server with nodes=2"),
        (lambda server: server.drop_connections("worker"), r"no client 'worker' is connected \(clients: none\)"),
        (lambda server: server.begin_rebalance("biling"), "no group 'biling'; did you mean 'billing'"),
        (lambda server: server.expire_member("biling", "m"), "no group 'biling'; did you mean 'billing'"),
        (lambda server: server.expire_member("billing", "m"), r"has no member 'm' \(members: none\)"),
        (lambda server: server.share("biling").release(), "no group 'biling'; did you mean 'billing'"),
        (
            lambda server: server.share("billing").expire_locks(),
            "group 'billing' is no share group: billing \\(classic",
        ),
    ],
)
def test_an_unknown_name_is_one_kind_of_error(word: Callable[[ServerThread], object], message: str) -> None:
    """Unknown names of all kinds raise UnknownNameError, which lists the existing ones."""
    with ServerThread(topics=["orders"]) as server:
        server.run(lambda broker: broker.coordinator.call(COMMIT))
        with pytest.raises(UnknownNameError, match=message):
            word(server)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            lambda server: server.assert_committed("billing", {"orders": 2}),
            r"\{\('orders', 0\): 2\}, not \{'orders': 2\}",
        ),
        (lambda server: server.assert_committed("billing", [("orders", 0)]), r'\{\("orders", 0\): 42\}, not \['),
        (
            lambda server: server.assert_committed("billing", {("orders", 0): "2"}),
            "offset of orders-0 must be an integer",
        ),
        (lambda server: server.assert_owned("billing", ["orders"]), r"\[\('orders', 0\)\], not \['orders'\]"),
        (
            lambda server: server.assert_owned("billing", {"worker": ("orders", 0)}),
            r"\[\('orders', 0\)\], not \('orders', 0\)",
        ),
    ],
)
def test_an_expectation_in_the_wrong_form_names_the_right_one(
    word: Callable[[ServerThread], object], message: str
) -> None:
    """Offsets and partitions in another form fail at once, not after the timeout."""
    with ServerThread(topics=["orders"]) as server, pytest.raises(TypeError, match=message):
        word(server)


def test_errors_have_numbers_too() -> None:
    """A number stands for the error of Kafka's protocol."""
    with ServerThread(topics=["orders"]) as server:
        server.fail_next("Heartbeat", int(ErrorCode.NOT_COORDINATOR), times=None)
        assert "Heartbeat fails with NOT_COORDINATOR" in server.report()


def test_a_server_that_does_not_run_says_why() -> None:
    """A crashed server needs a restart; the error distinguishes a stopped one, and one whose nodes have crashed."""
    server = ServerThread(topics=["orders"])
    with pytest.raises(RuntimeError, match="was not started, or was stopped"):
        server.produce("orders", ["tea"])
    with server:
        server.crash()
        with pytest.raises(RuntimeError, match=r"has crashed; restart\(\) it"):
            server.produce("orders", ["tea"])
        server.restart()
        server.crash(node=1)
        with pytest.raises(UnknownNameError, match=r"no node runs: all have crashed; restart\(\) them"):
            server.produce("orders", ["tea"])


@pytest.mark.parametrize(
    ("wait", "awaited"),
    [
        (lambda server, fault: server.wait_until_stable("billing"), "server.asyncio.wait_until_stable"),
        (lambda server, fault: server.wait_until_reading("billing"), "server.asyncio.wait_until_reading"),
        (lambda server, fault: server.wait_until(lambda: True), "server.asyncio.wait_until"),
        (lambda server, fault: server.assert_committed("billing", {}), "server.asyncio.assert_committed"),
        (lambda server, fault: server.assert_owned("billing", []), "server.asyncio.assert_owned"),
        (lambda server, fault: server.assert_produced("orders", []), "server.asyncio.assert_produced"),
        (lambda server, fault: fault.wait(), "fault.asyncio.wait"),
    ],
)
def test_a_blocking_wait_on_an_event_loop_names_the_awaited_form(
    wait: Callable[[ServerThread, Fault], object], awaited: str
) -> None:
    """It would block the clients of the loop, so it raises at once."""

    async def scenario() -> None:
        async with ServerThread(topics=["orders"]) as server:
            fault = server.fail_next("Heartbeat", "NOT_COORDINATOR")
            with pytest.raises(RuntimeError, match=rf"would block the event loop .*: await {awaited}\("):
                wait(server, fault)

    asyncio.run(scenario())


def test_a_fault_is_awaited_on_an_event_loop() -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def scenario() -> int:
        async with ServerThread(topics=["orders"]) as server:
            fault = server.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
            with pytest.raises(TimeoutError, match="0 of 1 requests of FindCoordinator"):
                await fault.asyncio.wait(timeout_s=0)
            consumer = aiokafka.AIOKafkaConsumer("orders", bootstrap_servers=server.bootstrap, group_id="billing")
            starting = asyncio.create_task(consumer.start())
            await fault.asyncio.wait(timeout_s=TIMEOUT_S)
            await starting
            await consumer.stop()
            return fault.count

    assert asyncio.run(scenario()) == 1


def test_held_requests_go_on_when_the_coroutine_ends() -> None:
    """A client that is stopped after the test's coroutine gets its answer, though the test still holds requests."""

    async def scenario(server: ServerThread) -> None:
        server.hold("Heartbeat")
        server.hold_appends()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)

        async def stop_late() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                writer.write(bytes.fromhex("00000018000c0000000000070003666f6f0001670000000100016d0000"))
                answers.append(await reader.readexactly(4))
                writer.close()

        tasks.append(asyncio.create_task(stop_late()))
        await asyncio.sleep(0)

    answers: list[bytes] = []
    tasks: list[asyncio.Task[None]] = []
    with ServerThread(topics=["orders"]) as server:
        running = threading.Thread(target=asyncio.run, args=(scenario(server),), daemon=True)
        running.start()
        running.join(TIMEOUT_S)
        assert not running.is_alive()
        assert "on purpose" not in server.report()
        assert server.requests.where(Heartbeat)[0].answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID

    assert len(answers) == 1


def test_a_report_of_pytest_ends_at_the_users_line(tmp_path: Path) -> None:
    """No frame of ours stands above a mistake in a test, whether it is a typo, an assertion or an awaited one."""
    path = tmp_path / "test_it.py"
    path.write_text(
        """
import asyncio
def test_typo(groupcoord_server): groupcoord_server.fail_next("OffsetComit", "NOT_COORDINATOR")
def test_wait(groupcoord_server): groupcoord_server.wait_until_stable("billing", timeout_s=0)
def test_assertion(groupcoord_server): groupcoord_server.assert_committed("billing", {("orders", 0): 2}, timeout_s=0)
def test_topic(groupcoord_server): groupcoord_server.produce("order", ["tea"])
def test_option(groupcoord_server_factory): groupcoord_server_factory(topics="orders")
def test_awaited(groupcoord_server):
    async def scenario(): await groupcoord_server.asyncio.assert_owned("billing", [("orders", 0)], timeout_s=0)
    asyncio.run(scenario())
def test_own_function(groupcoord_server):
    def broken(broker): return {}["nothing"]
    groupcoord_server.run(broken)
""",
        "utf-8",
    )
    status, output = run_pytest(path, *WITHOUT_HYPOTHESIS, "--show-capture=no", cwd=tmp_path)

    assert status == 1
    assert "7 failed" in output
    assert "/groupcoord/" not in output
    assert "concurrent/futures" not in output
    assert 'return {}["nothing"]' in output


def test_completion_offers_the_public_names() -> None:
    """``dir()`` of the package lists its public names, whether they are imported yet or not, and no others."""
    assert dir(groupcoord.testing) == sorted(groupcoord.testing.__all__)
