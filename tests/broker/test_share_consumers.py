"""Share consumers at the leader of a partition: sessions, waits, locks, and archived records. Transcripts have the
answers of a real broker; these tests add chance and load.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord.broker.share.coordination import Persister
from groupcoord.core.log.records import TransactionMarker
from groupcoord.core.messages.share_state import (
    InitializeShareGroupState,
    InitializeShareGroupStateResponse,
    StateResult,
    StateToInitialize,
    StateTopicResult,
    StateTopicToInitialize,
)
from groupcoord.core.router.authorization import Operation, ResourceType
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import encode_batch, iter_batches
from tests.broker.sharing import ACCEPT, REJECT, RELEASE, START_MS, WRITE, SharingWorld

DELETE_TOPICS, SHARE_HEARTBEAT, DESCRIBE_SHARE_GROUP_OFFSETS = 20, 76, 90


@pytest.fixture
def world() -> SharingWorld:
    return SharingWorld()


def test_an_answer_that_never_came(world: SharingWorld) -> None:
    """After a kill, an acknowledgement without a response is durable, or can be repeated."""
    world.produce(4)
    ann = world.client()
    assert ann.fetch() == [(0, 3, 1)]
    ann.send_acknowledgement((0, 1, [ACCEPT]))
    world.restart()
    ben = world.client("ben")
    assert ben.fetch() == [(2, 3, 1)]
    assert ben.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE  # what is finished already is passed over


def test_waiting_fetches_are_woken_by_a_release(world: SharingWorld) -> None:
    """A waiting fetch gets released records at once, where Kafka may wait for its timeout."""
    world.produce(2)
    ann, ben = world.client("ann"), world.client("ben")
    assert ann.fetch() == [(0, 1, 1)]
    assert ben.fetch(5_000) is None
    assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
    assert ben.fetched() == [(0, 0, 2)]


def test_a_fetch_ends_with_its_connection(world: SharingWorld) -> None:
    """A waiting fetch of a closed connection acquires no records."""
    ann, ben = world.client("ann"), world.client("ben")
    assert ann.fetch(5_000) is None
    assert ben.fetch(0) == []
    ann.close()
    world.produce(1)
    assert ben.fetch(0) == [(0, 0, 1)]


@pytest.mark.parametrize("ending", ["fetch", "acknowledge", "close"])
def test_records_are_released_when_a_session_ends(world: SharingWorld, ending: str) -> None:
    """With the final epoch, or with its connection: others that wait get the records."""
    world.produce(1)
    ann, ben = world.client("ann"), world.client("ben")
    assert ann.fetch() == [(0, 0, 1)]
    assert ben.fetch(5_000) is None
    ann.epoch = -1
    if ending == "close":
        ann.close()
    else:
        assert not getattr(ann, ending)()  # no error, and no records
    assert ben.fetched() == [(0, 0, 2)]
    requests = world.broker.share_requests
    assert len(requests.sessions) == 1
    assert requests.partitions.all()
    ben.close()
    assert not requests.partitions.all()


def test_there_are_only_so_many_sessions() -> None:
    """Beyond the limit a new session is refused after its fetch's wait; members with a session may replace it."""
    world = SharingWorld(group_share_max_share_sessions=2, group_share_max_size=2)
    ann, ben, eve = (world.client(name) for name in ("ann", "ben", "eve"))
    assert ann.fetch() == []
    assert ben.fetch() == []
    assert eve.fetch(1_000) is None
    world.pass_time(1_000)
    assert eve.fetched() is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    ben.epoch = 0
    assert ben.fetch() == []


def test_who_begins_anew_fences_who_was_before(world: SharingWorld) -> None:
    """When the group is initialized again, the leader is fenced at its next write, and reads the state again."""
    world.produce(3)
    ann = world.client()
    assert ann.fetch() == [(0, 2, 1)]
    world.initialize(state_epoch=2, start_offset=1)
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ann.fetch() == [(1, 2, 1)]


def test_partitions_take_turns(world: SharingWorld) -> None:
    """The limit holds for all partitions together, and each is first at times."""
    with world.topics.edit() as edit:
        more = edit.create("more", 1).topic_id
    world.initialize(topic_id=more)
    for topic in ("jobs", "more"):
        world.produce(6, topic)
    ann = world.client()
    partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
    both = [{"topic_id": topic_id, "partitions": partitions} for topic_id in (world.topic_id, more)]
    found = []
    for _ in range(2):
        ann.send_fetch(max_records=3, share_acquire_mode=1, topics=both)
        read = [
            (topic["topic_id"], [tuple(records.values()) for records in topic["partitions"][0]["acquired_records"]])
            for topic in ann.receive()["responses"]
        ]
        found += [(topic_id, acquired) for topic_id, acquired in read if acquired]
    assert found == [(world.topic_id, [(0, 2, 1)]), (more, [(0, 2, 1)])]


def test_epochs_of_sessions(world: SharingWorld) -> None:
    """Each request of a session has the next one; behind the last comes 1, since 0 opens another session."""
    ann = world.client()
    assert ann.fetch() == []
    ann.epoch = 7
    assert ann.fetch() is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session = world.broker.share_requests.sessions.of_connection(ann.connection)[0]
    session.epoch = ann.epoch = 2**31 - 1
    assert ann.fetch() == []
    ann.epoch = 1
    assert ann.fetch() == []


def test_a_fetch_that_renews_locks_reads_nothing(world: SharingWorld) -> None:
    """It must not request records (KIP-1222), and its refusal costs no session epoch."""
    ann = world.client()
    assert ann.fetch() == []
    assert ann.fetch(is_renew_ack=True) is ErrorCode.INVALID_REQUEST
    ann.epoch = 1
    assert ann.fetch(is_renew_ack=True, min_bytes=0, max_bytes=0, max_records=0) == []


def test_who_comes_back_on_another_connection(world: SharingWorld) -> None:
    """Its session is that of the new connection: when the old one closes, it keeps what it has."""
    world.produce(2)
    before, ann = world.client("ann"), world.client("ann")
    assert before.fetch() == [(0, 1, 1)]
    assert ann.fetch() == []
    before.close()
    assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE


def test_open_transactions_are_waited_for() -> None:
    """With ``share.isolation.level=read_committed`` records come when their transaction is over, unless aborted."""
    world = SharingWorld({"share.isolation.level": "read_committed"})
    log, settings = world.log(), world.data.settings_of(world.topics.get("jobs"))

    def write(producer_id: int, sequence: int) -> None:
        ids = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence} if producer_id else {}
        batch = encode_batch(log.end_offset, [(b"k", b"v", START_MS)], **ids, is_transactional=bool(producer_id))
        log.append_encoded(batch, 1, START_MS, settings)

    def end(producer_id: int, *, committed: bool) -> None:
        assert log.append_marker(TransactionMarker(producer_id, 0, committed=committed), START_MS) is ErrorCode.NONE

    for producer_id, sequence in ((7, 0), (8, 0), (0, 0), (9, 0), (7, 1)):
        write(producer_id, sequence)
    ann = world.client()
    assert ann.fetch(5_000) is None
    end(7, committed=False)
    write(7, 2)
    end(8, committed=True)
    end(9, committed=False)
    end(7, committed=True)
    assert ann.fetched() == [(1, 2, 1), (5, 9, 1)]


def test_records_are_deleted_that_nobody_has_had(world: SharingWorld) -> None:
    """The group continues at the new start of the log."""
    ann = world.client()
    assert ann.fetch() == []
    world.produce(4)
    world.produce(4)
    world.log().delete_before(4)
    assert ann.fetch() == [(4, 7, 1)]


def test_where_a_group_begins_by_time() -> None:
    """With no record that is young enough it begins at the end."""
    world = SharingWorld({"share.auto.offset.reset": "by_duration:PT1H"})
    world.produce(2)
    world.pass_time(2 * 3_600_000)
    ann = world.client()
    assert ann.fetch() == []
    world.produce(1)
    assert ann.fetch() == [(2, 2, 1)]


def test_a_group_begins_with_the_first_record_where_time_is_too_far_back() -> None:
    """Kafka takes this duration, and so do we: there is no record from before it."""
    world = SharingWorld({"share.auto.offset.reset": "by_duration:PT9223372036854775807S"})
    world.produce(2)
    assert world.client().fetch() == [(0, 1, 1)]


def test_a_deleted_topic_takes_its_states_along(world: SharingWorld) -> None:
    """The share coordinator keeps nothing of a topic that is no more."""
    ann = world.client()
    assert ann.fetch() == []
    coordinator = world.broker.share.coordinator
    assert coordinator is not None
    partitions = [coordinator.partition(index) for index in range(coordinator.partition_count)]
    assert any(each.hard.states for each in partitions if each is not None)
    ann.ask(DELETE_TOPICS, 5, {"topic_names": ["jobs"], "timeout": 1_000})
    assert not any(each.hard.states for each in partitions if each is not None)


def test_only_what_was_not_done_is_asked_for_again() -> None:
    """A request with two partitions is answered when the second one is done."""
    topic_id, asked, told = UUID(int=7), [], []

    def submit(request: Any, token: Any) -> None:
        asked.append([entry.partition for entry in request.topics[0].partitions])
        trouble = ErrorCode.NOT_COORDINATOR if len(asked) == 1 else ErrorCode.NONE
        results = [StateResult(index, trouble if index else ErrorCode.NONE) for index in asked[-1]]
        token.answer(InitializeShareGroupStateResponse((StateTopicResult(topic_id, tuple(results)),)))

    persister = Persister(submit, lambda: 0)
    topic = StateTopicToInitialize(topic_id, (StateToInitialize(0, 1, 0), StateToInitialize(1, 1, 0)))
    persister.ask(InitializeShareGroupState("g", (topic,)), told.append)
    persister.timers.tick(1_000)
    assert asked == [[0, 1], [1]]
    (response,) = told
    assert [tuple(result)[:2] for result in response.results[0].partitions] == [(0, 0), (1, 0)]


def test_strangers_get_nothing() -> None:
    """READ on the group is wanted, and on the topic."""
    denied = {ResourceType.TOPIC}
    world = SharingWorld(
        authorize=lambda _, operation, resource: operation is not Operation.READ or resource[0] not in denied
    )
    world.produce(1)
    ann = world.client()
    assert ann.fetch() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied.add(ResourceType.GROUP)
    assert ann.fetch() is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_consumers_need_not_be_brokers() -> None:
    """CLUSTER_ACTION is wanted of who asks the share coordinator, which is the broker itself."""
    denied: set[Operation] = set()
    world = SharingWorld(authorize=lambda _, operation, resource: operation not in denied)
    denied.add(Operation.CLUSTER_ACTION)
    world.produce(1)
    ann = world.client()
    assert ann.fetch() == [(0, 0, 1)]
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


def unload_states(world: SharingWorld) -> Any:
    coordinator = world.broker.share.coordinator
    assert coordinator is not None
    for index in range(coordinator.partition_count):
        coordinator.unload(index)
    return coordinator


@pytest.mark.parametrize("is_back", [True, False])
def test_a_share_coordinator_out_of_reach_is_asked_again(world: SharingWorld, *, is_back: bool) -> None:
    """Four times, after 1, 2, 4 and 8 s, before the acknowledgement fails (``PersisterStateManager``)."""
    world.produce(1)
    ann = world.client()
    assert ann.fetch() == [(0, 0, 1)]
    coordinator = unload_states(world)
    ann.send_acknowledgement((0, 0, [ACCEPT]))
    for pause_ms in (1_000, 2_000, 4_000):
        world.pass_time(pause_ms)
        assert ann.receive() is None
    world.pass_time(7_999)
    assert ann.receive() is None
    if is_back:
        coordinator.load_all()
    world.pass_time(1)
    expected = ErrorCode.NONE if is_back else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ann.acknowledged() is expected
    assert world.broker.next_deadline_ms() != world.clock.now_ms()


def test_a_member_gets_partitions_when_their_states_can_be_initialized(world: SharingWorld) -> None:
    """A heartbeat does not wait for the share coordinator; once that has answered the partition is assigned."""
    ann, states = world.client(), unload_states(world)
    body = {"group_id": "late", "member_id": "ann", "member_epoch": 0, "rack_id": None}
    joined = ann.ask(SHARE_HEARTBEAT, 1, {**body, "subscribed_topic_names": ["jobs"]})
    assert joined["error_code"] == ErrorCode.NONE
    assert not joined["assignment"]["topic_partitions"]
    states.load_all()
    world.pass_time(1_000)
    body["member_epoch"] = joined["member_epoch"]
    answer = ann.ask(SHARE_HEARTBEAT, 1, {**body, "subscribed_topic_names": None})
    assert answer["assignment"]["topic_partitions"] == [{"topic_id": world.topic_id, "partitions": [0]}]


@pytest.mark.parametrize("moves", [False, True])
def test_offsets_are_described_when_their_states_can_be_read(world: SharingWorld, *, moves: bool) -> None:
    """The request waits for the share coordinator. If its group is unloaded meanwhile it fails, and once."""
    world.produce(3)
    world.initialize(state_epoch=2, start_offset=0)
    ann, groups, states = world.client(), world.broker.coordinator, unload_states(world)
    wanted = {"group_id": "g", "topics": [{"topic_name": "jobs", "partitions": [0]}]}
    ann.send(DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [wanted]})
    assert ann.receive() is None
    index = groups.partition_of("g")
    if moves:
        groups.unload(index)
        groups.load(index, 1)
    states.load_all()
    world.pass_time(1_000)
    (group,) = ann.receive()["groups"]
    assert group["error_code"] == (ErrorCode.NOT_COORDINATOR if moves else ErrorCode.NONE)
    assert [each["lag"] for topic in group["topics"] for each in topic["partitions"]] == ([] if moves else [3])
    assert ann.receive() is None


def test_who_waits_is_told_why_records_can_not_be_known(world: SharingWorld) -> None:
    """A fetch that waits for a share-partition's state reports after its wait that the state can't be read."""
    world.produce(1)
    coordinator = world.broker.share.coordinator
    assert coordinator is not None
    for index in range(coordinator.partition_count):
        coordinator.unload(index)
    ann = world.client()
    assert ann.fetch(60_000) is None
    for pause_ms in (1_000, 2_000, 4_000):
        world.pass_time(pause_ms)
        assert ann.fetched() is None
    world.pass_time(8_000)
    assert ann.fetched() is None
    world.pass_time(45_000)
    assert ann.fetched() is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_no_more_is_read_than_is_wanted(world: SharingWorld) -> None:
    """With any byte limit, batches behind the last acquirable record are not read."""
    for _ in range(5):
        world.produce(10)
    log = world.log()
    read: list[int] = []
    original = log.read

    def counted(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        read.append(found.size_bytes)
        return found

    log.read = counted
    ann = world.client()
    assert ann.fetch(max_records=15) == [(0, 19, 1)]
    assert ann.acknowledge((0, 3, [ACCEPT]), (4, 9, [RELEASE]), (10, 19, [RELEASE])) is ErrorCode.NONE
    assert ann.fetch(max_records=7, batch_size=7) == [(4, 19, 2)]
    assert ann.fetch(max_records=1) == [(20, 29, 1)]
    batch_bytes = log.readable_bytes(0, log.end_offset) // 5
    assert read == [2 * batch_bytes, 2 * batch_bytes, batch_bytes]


def test_what_compaction_took_is_given_out_with_the_rest(world: SharingWorld) -> None:
    """A hole in the log is acquired with what stands behind it, however few records are wanted (Kafka 4.4)."""
    for _ in range(4):
        world.produce(10)
    topic = world.topics.get("jobs")
    assert topic is not None
    settings = evolve(
        world.data.settings_of(topic), is_compacted=True, is_deleted=False, min_cleanable_ratio=0.0, segment_bytes=300
    )
    log = world.log()
    log.append_encoded(encode_batch(log.end_offset, [(b"other", b"", START_MS)]), 1, START_MS, settings)
    log.append_encoded(encode_batch(log.end_offset, [(b"other", b"", START_MS)]), 1, START_MS, settings)
    while world.data.logs.compact_some(lambda: [(topic, settings)], START_MS, 1_000):
        pass
    first = next(iter_batches(b"".join(log.read(0, log.end_offset, 2**20, takes_first=True).parts)))
    assert first.base_offset > 10
    assert world.client().fetch(max_records=2) == [(0, first.next_offset - 1, 1)]


@pytest.mark.parametrize(
    ("state", "fetched"),
    [
        ((0, 3, 1, 1), [(0, 3, 2)]),  # who had them is gone
        ((0, 3, 0, 32_767), [(0, 0, 32_767)]),  # more are not told; at its last attempt a record comes alone
        ((0, 2**62, 0, 1), [(0, 3, 2)]),
        ((2**62, 2**63 - 1, 2, 1), [(0, 3, 1)]),
        ((0, 3, 9, 1), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_whatever_others_have_written(world: SharingWorld, state: tuple[int, ...], fetched: Any) -> None:
    """Any client with permission may write states: they are described or refused, and take no memory."""
    world.produce(4)
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    partition = {
        "partition": 0,
        "state_epoch": 1,
        "leader_epoch": 0,
        "start_offset": 0,
        "delivery_complete_count": 0,
        "state_batches": [dict(zip(names, state, strict=True))],
    }
    body = {"group_id": "g", "topics": [{"topic_id": world.topic_id, "partitions": [partition]}]}
    world.client("stranger").ask(WRITE, 1, body)
    ann = world.client()
    found = ann.fetch(500, max_records=1_000)
    if found is None:
        world.pass_time(500)
        found = ann.fetched()
    assert found == fetched
    world.broker.reload_failed()


def test_a_limit_is_a_limit(world: SharingWorld) -> None:
    """With a limit of records (KIP-1206) no more come, and the rest of a batch comes next."""
    world.produce(10)
    ann = world.client()
    assert ann.fetch(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert ann.fetch(max_records=4, share_acquire_mode=1) == [(3, 6, 1)]
    assert ann.fetch(max_records=1) == [(7, 9, 1)]


def test_a_dead_letter_topic_needs_the_prefix(caplog: pytest.LogCaptureFixture) -> None:
    """Another topic gets nothing, which is logged, and the records are archived."""
    world = SharingWorld({"errors.deadletterqueue.topic.name": "jobs.dead"})
    with world.topics.edit() as edit:
        edit.create("jobs.dead", 1, configs={"errors.deadletterqueue.group.enable": "true"})
    world.produce(1)
    ann = world.client()
    assert ann.fetch() == [(0, 0, 1)]
    assert ann.acknowledge((0, 0, [REJECT])) is ErrorCode.NONE
    assert ann.fetch() == []
    assert "are dropped" in caplog.text
    assert world.log("jobs.dead").end_offset == 0


def test_memory_is_bounded(world: SharingWorld) -> None:
    """However often records are taken and given back, what is remembered of them stays as large as they are many."""
    world.group_configs.replace({"g": {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}})
    ann = world.client()
    for _ in range(300):
        world.produce(1)
        ((first, last, _count),) = ann.fetch()
        assert ann.acknowledge((first, last, [ACCEPT])) is ErrorCode.NONE
    (led,) = world.broker.share_requests.partitions.all()
    assert led.records is not None
    assert led.records.batches() == []
    assert len(led.records._locks) < 100
    assert len(world.broker.share_requests.timers._heap) < 100


def test_many_partitions_are_acknowledged_bit_by_bit(world: SharingWorld) -> None:
    """A request may name as many partitions as it likes: each has its answer."""
    ann = world.client()
    assert ann.fetch() == []
    partitions = [
        {
            "partition_index": index,
            "acknowledgement_batches": [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}],
        }
        for index in range(1, 500)
    ]
    body = {
        "group_id": "g",
        "member_id": "ann",
        "share_session_epoch": 1,
        "is_renew_ack": False,
        "topics": [{"topic_id": world.topic_id, "partitions": partitions}],
    }
    ann.send(79, 2, body)
    response = ann.receive()
    codes = {partition["error_code"] for partition in response["responses"][0]["partitions"]}
    assert len(response["responses"][0]["partitions"]) == 499
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_session_has_only_so_many_partitions(world: SharingWorld) -> None:
    """Beyond the limit a request is refused, and the session keeps its partitions."""
    ann = world.client()
    partitions = [{"partition_index": index, "acknowledgement_batches": []} for index in range(1_000, 2_500)]
    topics = [{"topic_id": world.topic_id, "partitions": partitions}]
    assert ann.fetch() == []
    assert ann.fetch(topics=topics) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ann.fetch(topics=topics) is ErrorCode.INVALID_REQUEST
    assert ann.fetch() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
