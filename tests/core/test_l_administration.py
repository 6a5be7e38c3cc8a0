"""DescribeGroups, ListGroups, DeleteGroups, FindCoordinator."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupCoordinator, GroupState, ManualClock, MemoryLogStore
from groupcoord.core.log.records import GroupTombstone, OffsetTombstone
from groupcoord.core.offsets import cache
from groupcoord.messages import (
    CoordinatorType,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    FindCoordinator,
    GroupToFetch,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    Node,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
)
from tests.core.driver import Driver, Group, protocols_of


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def listed(driver: Driver, *states: str, types: tuple[str, ...] = ()) -> list[str]:
    """Return the ids of the groups that pass the filters."""
    answer = driver.coordinator.call(ListGroups(states, types))
    assert isinstance(answer, ListGroupsResponse)
    return [entry.group_id for entry in answer.groups]


# ---------------------------------------------------------------- DescribeGroups


def test_describe_a_stable_group(group: Group) -> None:
    """Protocol, metadata and assignments are shown."""
    group.stable("@a")
    member = DescribedMember("a-1", "a", "a", "/127.0.0.1", b"metadata", b"a-1")
    assert group.describe() == DescribedGroup("group", ErrorCode.NONE, None, "Stable", "consumer", "range", (member,))


def test_describe_a_group_under_way(group: Group) -> None:
    """While it rebalances, metadata and protocol are hidden, and the last assignments shown until new ones come."""
    group.stable("a")
    group.ask_for_id("b")
    group.rejoin("a-1")
    member = DescribedMember("a-1", None, "a", "/127.0.0.1", b"", b"a-1")
    expected = DescribedGroup("group", ErrorCode.NONE, None, "PreparingRebalance", "consumer", "", (member,))
    assert group.describe() == expected
    group.left("b-1")
    completing = group.describe()
    assert (completing.group_state, completing.members) == ("CompletingRebalance", (member,))


def test_describe_an_absent_group(group: Group) -> None:
    """It is Dead, GROUP_ID_NOT_FOUND, with a message."""
    expected = DescribedGroup("group", ErrorCode.GROUP_ID_NOT_FOUND, "Group group not found.", "Dead")
    assert group.describe() == expected


def test_describe_without_a_group_id(driver: Driver) -> None:
    """A null id is INVALID_GROUP_ID; the empty one is a group like any other; no ids, no answers."""
    answer = driver.coordinator.call(DescribeGroups((None, "")))
    assert answer.groups[0] == DescribedGroup("", ErrorCode.INVALID_GROUP_ID)
    assert answer.groups[1].error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.coordinator.call(DescribeGroups(())).groups == ()


def test_authorized_operations(driver: Driver, group: Group) -> None:
    """They are told when asked for: all of them, without an authorizer; for an absent group too, not for a bad id."""
    group.stable("a")
    answer = driver.coordinator.call(DescribeGroups(("group", "absent", None), include_authorized_operations=True))
    assert [entry.authorized_operations for entry in answer.groups] == [3400, 3400, -(2**31)]
    assert group.describe().authorized_operations == -(2**31)


def test_describe_before_the_group_is_durable() -> None:
    """A group whose first record is not written yet is not visible; it is as soon as it is."""
    driver = Driver(late=True)
    group = Group(driver)
    group.join("a")
    assert group.describe().group_state == "Dead"
    assert listed(driver) == []
    driver.write()
    assert group.describe().group_state == "PreparingRebalance"
    assert listed(driver) == ["group"]


# ---------------------------------------------------------------- ListGroups


def test_what_a_list_says(driver: Driver) -> None:
    """Each group comes with protocol type, state and type, in the order of the ids."""
    Group(driver, "b").stable("x", protocol_type="connect")
    Group(driver, "a").commit(1)
    assert driver.coordinator.call(ListGroups()) == ListGroupsResponse(
        ErrorCode.NONE, (ListedGroup("a", "", "Empty", "classic"), ListedGroup("b", "connect", "Stable", "classic"))
    )


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (("stable",), (), ["stable"]),
        ((" Stable ",), (), ["stable"]),
        (("STABLE", "preparingREBALANCE"), (), ["preparing", "stable"]),
        (("foo",), (), []),
        (("foo", "empty"), (), ["empty"]),
        ((), ("classic",), ["completing", "empty", "preparing", "stable"]),
        ((), ("CLASSIC",), ["completing", "empty", "preparing", "stable"]),
        ((), ("consumer",), []),
        ((), ("nonsense",), []),
        ((), ("nonsense", "classic"), ["completing", "empty", "preparing", "stable"]),
        (("stable",), ("consumer",), []),
        (("dead",), (), []),
    ],
)
def test_filters(driver: Driver, states: tuple[str, ...], types: tuple[str, ...], found: list[str]) -> None:
    """States are compared trimmed and without case, types without case; unknown names match nothing; both must fit."""
    Group(driver, "stable").stable("a")
    Group(driver, "completing").generation_of("a")
    Group(driver, "preparing").join("a")
    Group(driver, "empty").ask_for_id("a")
    assert listed(driver, *states, types=types) == found


def test_a_list_over_partitions() -> None:
    """All served log partitions contribute; while one loads, the whole list is refused."""
    driver = Driver(offsets_topic_num_partitions=3)
    for group_id in ("a", "b", "c"):
        Group(driver, group_id).commit(1)
    assert sorted(listed(driver)) == ["a", "b", "c"]
    gone = driver.coordinator.partition_of("b")
    driver.coordinator.unload(gone)
    assert sorted(listed(driver)) == ["a", "c"]
    driver.coordinator.begin_load(gone, 1)
    refused = ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.coordinator.call(ListGroups()) == refused


# ---------------------------------------------------------------- DeleteGroups


@pytest.mark.parametrize("state", [GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_delete_a_group_with_members(driver: Driver, group: Group, state: GroupState) -> None:
    """Only an Empty group can be deleted."""
    if state is GroupState.PREPARING_REBALANCE:
        group.join("a")
    elif state is GroupState.COMPLETING_REBALANCE:
        group.generation_of("a")
    else:
        group.stable("a")
    answer = driver.delete("group").answer(DeleteGroupsResponse)
    assert answer.results == (DeletedGroup("group", ErrorCode.NON_EMPTY_GROUP),)
    assert group.state is state


def test_delete_a_group_that_waits_without_members(driver: Driver, group: Group) -> None:
    """A group that all left during the initial delay is not Empty yet."""
    group.left(group.join("a").member_id)
    answer = driver.delete("group").answer(DeleteGroupsResponse)
    assert answer.results[0].error_code is ErrorCode.NON_EMPTY_GROUP


def test_delete_a_group_of_too_many_offsets() -> None:
    """A deletion that no log takes at once is refused as a log would refuse it, and the group stays."""
    driver = Driver(message_max_bytes=100)
    group = Group(driver)
    for partitions in (range(2), range(2, 4)):
        group.commit(dict.fromkeys(partitions, 1))
    before = len(driver.written())
    answer = driver.delete("group").answer(DeleteGroupsResponse)
    assert answer.results == (DeletedGroup("group", ErrorCode.UNKNOWN_SERVER_ERROR),)
    assert len(driver.written()) == before
    assert group.state is GroupState.EMPTY
    assert group.committed() == {"orders": dict.fromkeys(range(4), 1)}


def test_no_commit_is_taken_apart_to_delete_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed for a topic goes as a whole, in one append, however many partitions the commits had."""
    store = MemoryLogStore()
    coordinator = GroupCoordinator(clock=ManualClock(), log_store=store)
    coordinator.load_all()
    partition = coordinator.partition_of("g")
    for partitions in (range(300), range(200, 500)):
        offsets = tuple(OffsetToCommit(index, 1) for index in partitions)
        coordinator.call(OffsetCommit("g", (TopicToCommit("orders", offsets),)))
    before = len(list(store.read(partition)))
    monkeypatch.setattr(cache, "take_out", None)
    answer = coordinator.call(DeleteGroups(("g",)))
    assert answer.results == (DeletedGroup("g", ErrorCode.NONE),)
    tombstones = [*(OffsetTombstone("g", "orders", index) for index in range(500)), GroupTombstone("g")]
    assert [logged.record for logged in store.read(partition)][before:] == tombstones
    assert coordinator.call(OffsetFetch((GroupToFetch("g"),))).groups[0].topics == ()


def test_delete_an_empty_group(driver: Driver, group: Group) -> None:
    """Tombstones for its offsets, then for itself; the group is gone, deleting it again GROUP_ID_NOT_FOUND."""
    (a,) = group.stable("a")
    group.commit({0: 1, 3: 1}, member_id=a)
    group.left(a)
    before = len(driver.written())
    answer = driver.delete("group", "group", "absent", None).answer(DeleteGroupsResponse)
    assert answer.results == (
        DeletedGroup("", ErrorCode.INVALID_GROUP_ID),
        DeletedGroup("group", ErrorCode.NONE),
        DeletedGroup("absent", ErrorCode.GROUP_ID_NOT_FOUND),
    )
    assert driver.written()[before:] == [
        OffsetTombstone("group", "orders", 0),
        OffsetTombstone("group", "orders", 3),
        GroupTombstone("group"),
    ]
    assert group.committed() == {}
    again = driver.delete("group").answer(DeleteGroupsResponse)
    assert again.results == (DeletedGroup("group", ErrorCode.GROUP_ID_NOT_FOUND),)


def test_delete_the_group_without_name(driver: Driver) -> None:
    """The empty group id can be deleted; a request without ids is answered without results."""
    Group(driver, "").commit(1)
    assert driver.delete("").answer(DeleteGroupsResponse).results == (DeletedGroup("", ErrorCode.NONE),)
    assert driver.delete().answer(DeleteGroupsResponse).results == ()


def test_delete_while_an_id_is_out(driver: Driver, group: Group) -> None:
    """A group that only handed out an id can be deleted; the id's join is UNKNOWN_MEMBER_ID then."""
    a = group.ask_for_id("a")
    driver.delete("group")
    assert group.rejoin(a).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state is None


def test_delete_over_partitions() -> None:
    """Each log partition answers for its groups; one that isn't served NOT_COORDINATOR."""
    driver = Driver(offsets_topic_num_partitions=3, late=True)
    groups = {group_id: Group(driver, group_id) for group_id in ("a", "b", "c", "d")}
    for group in groups.values():
        group.commit(1)
    driver.write()
    driver.coordinator.unload(driver.coordinator.partition_of("b"))
    sent = driver.delete("a", "b", "c", "d")
    assert sent.is_waiting
    driver.write(1)
    assert sent.is_waiting
    driver.write()
    results = dict(sent.answer(DeleteGroupsResponse).results)
    refused = {key for key in groups if driver.coordinator.partition_of(key) == driver.coordinator.partition_of("b")}
    assert results == {key: ErrorCode.NOT_COORDINATOR if key in refused else ErrorCode.NONE for key in groups}


def test_one_write_for_a_partition(driver: Driver) -> None:
    """All groups of a log partition are deleted in one append: together or not at all."""
    driver = Driver(late=True)
    for group_id in ("a", "b"):
        Group(driver, group_id).commit(1)
    driver.write()
    driver.submit(DeleteGroups(("a", "b")))
    assert len(driver.store.waiting()) == 1


def test_describe_shows_types_without_protocols(driver: Driver, group: Group) -> None:
    """A group that nobody has joined successfully has no protocol type."""
    group.join(protocols=protocols_of())
    assert (group.describe().group_state, group.describe().protocol_type) == ("Empty", "")


# ---------------------------------------------------------------- FindCoordinator

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LOCAL = Node(1, "127.0.0.1", 9092)
NOBODY = Node(-1, "", -1)


@pytest.mark.parametrize(
    ("key_type", "key", "node", "error"),
    [
        (CoordinatorType.GROUP, "group", LOCAL, ErrorCode.NONE),
        (CoordinatorType.GROUP, "", LOCAL, ErrorCode.NONE),
        (CoordinatorType.TRANSACTION, "t", LOCAL, ErrorCode.NONE),
        (CoordinatorType.SHARE, f"group:{TOPIC_ID}:0", NOBODY, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (CoordinatorType.SHARE, "group", NOBODY, ErrorCode.INVALID_REQUEST),
        (3, "group", NOBODY, ErrorCode.INVALID_REQUEST),
        (-1, "group", NOBODY, ErrorCode.INVALID_REQUEST),
    ],
)
def test_find_coordinator(driver: Driver, key_type: int, key: str, node: Node, error: ErrorCode) -> None:
    """Groups and transactional ids are coordinated here; unknown key types are INVALID_REQUEST, for each key."""
    found = driver.coordinator.call(FindCoordinator(key_type, (key, key))).coordinators
    assert [(entry.key, entry.node, entry.error_code) for entry in found] == [(key, node, error)] * 2


def test_share_keys_of_an_old_client(driver: Driver) -> None:
    """Before version 6, share keys are INVALID_REQUEST."""
    request = FindCoordinator(CoordinatorType.SHARE, (f"group:{TOPIC_ID}:0",), supports_share_keys=False)
    found = driver.coordinator.call(request).coordinators
    assert found[0].error_code is ErrorCode.INVALID_REQUEST


def test_no_keys(driver: Driver) -> None:
    """Without keys there are no answers."""
    assert driver.coordinator.call(FindCoordinator(0, ())).coordinators == ()
