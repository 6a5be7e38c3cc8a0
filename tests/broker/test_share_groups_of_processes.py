"""Share groups where each node is a process: a group, a partition and its state may be with different ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from groupcoord import ErrorCode
from groupcoord.broker.share.states_elsewhere import StatesElsewhere
from groupcoord.broker.work import Answer
from groupcoord.core.messages import (
    AlterShareGroupOffsets,
    CoordinatorType,
    DeleteShareGroupOffsets,
    FindCoordinator,
    ShareGroupHeartbeat,
    ShareOffsetToAlter,
    ShareTopicToAlter,
    ShareTopicToForget,
)
from groupcoord.core.messages.share_state import (
    InitializeShareGroupState,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResponse,
    StateToInitialize,
    StateTopicToInitialize,
    StateTopicToRead,
    StateToRead,
)
from groupcoord.core.topic_names import SHARE_STATE_TOPIC
from groupcoord.wire.broker_messages import (
    CreatePartitions,
    CreatePartitionsTopic,
    DeleteTopics,
    TopicReference,
)
from groupcoord.wire.feature_messages import ApiVersions
from tests.broker.processes import ACLS, Direct
from tests.broker.sharing_processes import Sharing, acquired


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[Sharing]:
    cluster = Sharing(tmp_path)
    yield cluster
    cluster.close()


def test_share_groups_are_announced(sharing: Sharing) -> None:
    """Clients learn that there are some, and from any node who keeps the state of which share-partition."""
    for worker in (0, 1):
        answer = sharing.ask(worker, ApiVersions())
        assert "share.version" in {feature.name for feature in answer.supported_features}
        assert {76, 78, 84} <= {api.api_key for api in answer.api_keys}
        for index in range(4):
            key = sharing.key("group", index).text
            (found,) = sharing.ask(worker, FindCoordinator(CoordinatorType.SHARE, (key,))).coordinators
            assert found.node.node_id == sharing.state_worker("group", index) + 1


@pytest.mark.parametrize("state", [0, 1])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("group", [0, 1])
def test_records_are_shared_wherever_things_are(sharing: Sharing, group: int, index: int, state: int) -> None:
    """Whoever coordinates the group, leads the partition and keeps its state: what is accepted never comes again."""
    group_id = sharing.group(group, {index: state})
    sharing.fill(index, 3)
    assert sharing.join(group, group_id) == [0, 1, 2, 3]
    assert sharing.fetch(group_id, index) == [(0, 2, 1)]
    assert sharing.accept(group_id, index, 1) is ErrorCode.NONE
    assert sharing.lag(group, group_id, index) == 1
    sharing.kill(index)
    sharing.start(index)
    assert sharing.fetch(group_id, index, "ben") == [(2, 2, 1)]


@pytest.mark.parametrize("group", [0, 1])
def test_one_request_goes_to_all_that_have_some_of_it(sharing: Sharing, group: int) -> None:
    """What administrators change or forget of a group is changed or forgotten at all processes that keep its states."""
    group_id = sharing.group(group, {0: 0, 1: 1, 2: 0, 3: 1})
    sharing.join(group, group_id)
    sharing.ask(group, ShareGroupHeartbeat(group_id, "ann", -1))
    wanted = tuple(ShareOffsetToAlter(index, 10 + index) for index in range(4))
    altered = sharing.ask(group, AlterShareGroupOffsets(group_id, (ShareTopicToAlter("jobs", wanted),)))
    assert [result.error_code for result in altered.responses[0].partitions] == [ErrorCode.NONE] * 4
    assert [offset.start_offset for offset in sharing.offsets(group, group_id)] == [10, 11, 12, 13]
    forgotten = sharing.ask(group, DeleteShareGroupOffsets(group_id, (ShareTopicToForget("jobs"),)))
    assert [topic.error_code for topic in forgotten.responses] == [ErrorCode.NONE]
    assert sharing.offsets(group, group_id) == ()
    for worker in (0, 1):
        topics = (StateTopicToRead(sharing.topic_id, tuple(StateToRead(index, 0) for index in (worker, worker + 2))),)
        (found,) = sharing.ask(worker, ReadShareGroupStateSummary(group_id, topics)).results
        assert [(summary.error_code, summary.start_offset) for summary in found.partitions] == [
            (ErrorCode.NONE, -1),
            (ErrorCode.NONE, -1),
        ]


def test_a_worker_that_is_killed_is_asked_again(sharing: Sharing) -> None:
    """Who accepts records while the one is gone that keeps their state hears of it when that is back, and it holds."""
    group_id = sharing.group(0, {0: 1})
    sharing.fill(0, 2)
    sharing.join(0, group_id)
    assert sharing.fetch(group_id, 0) == [(0, 1, 1)]
    sharing.kill(1)
    answers = sharing.accept(group_id, 0, 0)
    assert answers == []
    sharing.pass_time(1_000)
    assert answers == []
    sharing.start(1)
    sharing.pass_time(2_000)
    assert answers[0].responses[0].partitions[0].error_code is ErrorCode.NONE
    assert sharing.lag(0, group_id, 0) == 1


def test_a_worker_that_stays_away(sharing: Sharing) -> None:
    """After five tries in 15 s who waits is told COORDINATOR_NOT_AVAILABLE, and others may have the records."""
    group_id = sharing.group(0, {0: 1})
    sharing.fill(0, 1)
    sharing.join(0, group_id)
    assert sharing.fetch(group_id, 0) == [(0, 0, 1)]
    sharing.kill(1)
    answers = sharing.accept(group_id, 0, 0)
    for pause_ms in (1_000, 2_000, 4_000, 8_000):
        assert answers == []
        sharing.pass_time(pause_ms)
    assert answers[0].responses[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    sharing.start(1)
    sharing.pass_time(60_000)
    assert sharing.fetch(group_id, 0, "ben") == [(0, 0, 2)]


def test_what_nobody_answers_is_refused(sharing: Sharing) -> None:
    """When all have answered, who leaves states out, as of a group without a name, is as one that is gone."""
    coordinators = StatesElsewhere(
        Direct(sharing, 1),
        lambda key: key.partition % 2 + 1,
        lambda request, token: token.answer(ReadShareGroupStateSummaryResponse(())),
    )
    topics = (StateTopicToRead(sharing.topic_id, tuple(StateToRead(index, 0) for index in (0, 1, 1, 2))),)
    answer = Answer()
    sharing.holds = True
    coordinators.submit(ReadShareGroupStateSummary("", topics), answer)
    assert not answer.is_done
    sharing.let_go_on()
    ((_, summaries),) = answer.response.results
    assert [(summary.partition, summary.error_code) for summary in summaries] == [
        (index, ErrorCode.COORDINATOR_NOT_AVAILABLE) for index in (0, 1, 1, 2)
    ]


def test_a_member_hears_when_states_are_begun(sharing: Sharing) -> None:
    """A group whose states are begun by another worker gives partitions out as soon as that has answered."""
    group_id = sharing.group(0, {0: 1, 2: 1})
    sharing.holds = True
    response = sharing.ask(0, ShareGroupHeartbeat(group_id, "ann", 0, None, ("jobs",)))
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, ())
    sharing.let_go_on()
    assert sharing.join(0, group_id) == [0, 1, 2, 3]


def test_a_fetch_waits_for_a_state_that_comes_late(sharing: Sharing) -> None:
    """A fetch is answered as soon as another worker has told the state of the partition."""
    group_id = sharing.group(0, {0: 1})
    sharing.fill(0, 1)
    sharing.join(0, group_id)
    sharing.holds = True
    answers = sharing.fetch(group_id, 0, max_wait_ms=500)
    assert answers == []
    sharing.let_go_on()
    assert acquired(answers[0]) == [(0, 0, 1)]


def test_states_of_a_deleted_topic_are_forgotten_everywhere(sharing: Sharing) -> None:
    """When a topic is deleted all workers forget the states of its partitions."""
    group_id = sharing.group(0, {0: 0, 1: 1})
    sharing.join(0, group_id)
    sharing.ask(1, DeleteTopics((TopicReference("jobs"),), 1_000))
    for worker in (0, 1):
        topics = (StateTopicToRead(sharing.topic_id, (StateToRead(worker, 0),)),)
        (found,) = sharing.ask(worker, ReadShareGroupStateSummary(group_id, topics)).results
        assert found.partitions[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_asks_the_worker_that_keeps_a_state(sharing: Sharing) -> None:
    """A worker says NOT_COORDINATOR of states that another one keeps, and does what is asked of its own."""
    group_id = sharing.group(0, {0: 0, 1: 1})
    for index in (0, 1):
        asked = ReadShareGroupStateSummary(group_id, (StateTopicToRead(sharing.topic_id, (StateToRead(index, 0),)),))
        (found,) = sharing.ask(1 - index, asked).results
        assert found.partitions[0].error_code is ErrorCode.NOT_COORDINATOR
        topics = (StateTopicToInitialize(sharing.topic_id, (StateToInitialize(index, 1, 7),)),)
        codes = [
            sharing.ask(worker, InitializeShareGroupState(group_id, topics)).results[0].partitions[0].error_code
            for worker in (0, 1)
        ]
        assert codes[index] is ErrorCode.NONE
        assert codes[1 - index] is ErrorCode.NOT_COORDINATOR


def test_workers_may_ask_each_other(tmp_path: Path) -> None:
    """What only brokers may ask, as ACLs have it, workers ask each other; clients are refused."""
    sharing = Sharing(tmp_path, {**ACLS, "super.users": "User:a"})
    group_id = sharing.group(0, {0: 1, 1: 0})
    sharing.fill(0, 2)
    assert sharing.join(0, group_id) == [0, 1, 2, 3]
    assert sharing.fetch(group_id, 0) == [(0, 1, 1)]
    topics = (StateTopicToRead(sharing.topic_id, (StateToRead(0, 0),)),)
    (found,) = sharing.ask(1, ReadShareGroupStateSummary(group_id, topics), "User:b").results
    assert found.partitions[0].error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_topic_of_states_stays_as_it_is(sharing: Sharing) -> None:
    """It is there from the start, and is neither deleted nor extended: its number of partitions says who keeps what."""
    (deleted,) = sharing.ask(1, DeleteTopics((TopicReference(SHARE_STATE_TOPIC),), 1_000)).responses
    assert deleted.error_code is ErrorCode.INVALID_REQUEST
    (grown,) = sharing.ask(1, CreatePartitions((CreatePartitionsTopic(SHARE_STATE_TOPIC, 60),), 1_000)).results
    assert grown.error_code is ErrorCode.INVALID_REQUEST
