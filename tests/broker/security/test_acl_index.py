"""The index of ACLs: it decides and finds what a comparison with every ACL would, at the cost of a name's length."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from groupcoord.broker.security import acls as acls_module
from groupcoord.broker.security.acls import Acls, matches
from groupcoord.broker.work import do_whole
from groupcoord.core.router.authorization import Operation, Resource, ResourceType
from groupcoord.wire.security_messages import ANY, Acl, AclFilter, PatternType, PermissionType
from tests.broker.effort import lines_of
from tests.broker.security.test_acl_conversations import EVERY, READ_G1, acl_world

NAMES = st.text("ab", min_size=1, max_size=4) | st.just("*")
TYPES = st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP))
PATTERNS = st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED))
PRINCIPALS = st.sampled_from(("User:a", "User:b", "User:*"))
HOSTS = st.sampled_from(("*", "10.0.0.1"))
OPERATIONS = st.sampled_from((2, Operation.READ, Operation.DESCRIBE))
PERMISSIONS = st.sampled_from((PermissionType.ALLOW, PermissionType.DENY))
ACLS = st.lists(st.builds(Acl, TYPES, NAMES, PATTERNS, PRINCIPALS, HOSTS, OPERATIONS, PERMISSIONS), max_size=12)
FILTERS = st.builds(
    AclFilter,
    TYPES | st.just(ANY),
    NAMES | st.none(),
    st.sampled_from(PatternType),
    PRINCIPALS | st.none(),
    HOSTS | st.none(),
    OPERATIONS | st.just(ANY),
    PERMISSIONS | st.just(ANY),
)


def applies(acl: Acl, resource: Resource) -> bool:
    """Return whether an ACL applies to a resource, by the definition of the pattern types."""
    if acl.resource_type != resource.resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return resource.name.startswith(acl.resource_name)
    return acl.resource_name in (resource.name, "*")


def decide(acls: list[Acl], principal: str, host: str, operation: Operation, resource: Resource) -> bool:
    """Decide by comparison with every ACL."""
    fitting = [
        acl
        for acl in acls
        if applies(acl, resource) and acl.principal in (principal, "User:*") and acl.host in (host, "*")
    ]
    implied_by = (2, operation, Operation.READ) if operation == Operation.DESCRIBE else (2, operation)
    return not any(
        acl.permission_type == PermissionType.DENY and acl.operation in (2, operation) for acl in fitting
    ) and any(acl.permission_type == PermissionType.ALLOW and acl.operation in implied_by for acl in fitting)


@given(kept=ACLS, removed=ACLS, type_=TYPES, name=NAMES, wanted=FILTERS)
def test_the_index_agrees_with_a_comparison_with_every_acl(
    kept: list[Acl], removed: list[Acl], type_: ResourceType, name: str, wanted: AclFilter
) -> None:
    """Decisions and filters have the same outcome, also after ACLs were removed."""
    acls = Acls()
    acls.change(kept + removed)
    acls.change((), removed)
    left = [acl for acl in dict.fromkeys(kept) if acl not in removed]
    for principal in ("User:a", "User:c"):
        for operation in (Operation.READ, Operation.DESCRIBE, Operation.WRITE):
            expected = decide(left, principal, "", operation, Resource(type_, name))
            assert acls.authorize(principal, operation, Resource(type_, name)) == expected
    assert set(do_whole(acls.find(wanted))) == {acl for acl in left if matches(wanted, acl)}


def prefixed(count: int) -> Acls:
    """Return prefixed ACLs that match none of the looked-up names."""
    acls = Acls()
    acls.change(Acl(2, f"team-{number}-", PatternType.PREFIXED, "User:a", "*", 3, 3) for number in range(count))
    return acls


def test_a_decision_costs_the_same_among_many_prefixed_acls() -> None:
    """A new name among 5,000 prefixes takes less than a line for each ten of them."""
    resource = Resource(ResourceType.TOPIC, "team-4-orders")
    assert lines_of(prefixed(5_000).authorize, "User:a", Operation.READ, resource) < 500


@pytest.mark.parametrize("field", ["resource_name", "principal"])
def test_a_filter_costs_what_it_finds(field: str) -> None:
    """A filter for a name or a principal isn't compared with all ACLs."""
    values: dict[str, Any] = {field: "x"}
    wanted = AclFilter(ANY, None, PatternType.ANY, None, None, ANY, ANY)._replace(**values)
    assert lines_of(do_whole, prefixed(5_000).find(wanted)) < 500


def test_a_filter_that_is_compared_with_all_acls_does_so_in_portions() -> None:
    """Others have their turn after each thousand."""
    work = prefixed(5_000).find(AclFilter(ANY, None, PatternType.ANY, None, "10.0.0.1", ANY, ANY))
    assert [next(work) for _ in range(4)] == [None] * 4
    assert do_whole(work) == ()


def answers(name: str, answer: Any) -> list[tuple[str, str | None]]:
    return [(result["error_code"], result["error_message"]) for result in answer[name]]


def test_one_request_changes_no_more_acls_than_with_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than 10,000 nothing is changed; what the broker itself refuses keeps its error. As recorded."""
    assert acls_module.CHANGED_ACLS_MAX == 10_000
    monkeypatch.setattr(acls_module, "CHANGED_ACLS_MAX", 3)
    client = acl_world().connect("PLAINTEXT")
    acls = [READ_G1 | {"resource_name": f"g{number}"} for number in range(4)]
    invalid = [READ_G1 | {"resource_name": ""}, READ_G1 | {"principal": "bob"}]

    too_many = ("POLICY_VIOLATION", "Unable to perform excessively large batch operation.")
    answer = client.ask("CreateAcls", 3, {"creations": acls + invalid})
    assert answers("results", answer) == [too_many] * 4 + [
        ("INVALID_REQUEST", "Invalid empty resource name"),
        too_many,
    ]
    assert client.ask("DescribeAcls", 3, EVERY)["resources"] == []

    for some in (acls[:3] * 2, acls):  # those that are there already don't count
        assert answers("results", client.ask("CreateAcls", 3, {"creations": some})) == [("NONE", "")] * len(some)
    answer = client.ask("DeleteAcls", 3, {"filters": [EVERY | {"resource_name_filter": "g0"}, EVERY]})
    assert [error for error, _ in answers("filter_results", answer)] == ["INVALID_REQUEST"] * 2
    assert len(client.ask("DescribeAcls", 3, EVERY)["resources"]) == 4
    filters = [EVERY | {"resource_name_filter": name} for name in ("g0", "g1", "g2", "g0")]
    answer = client.ask("DeleteAcls", 3, {"filters": filters})
    assert [len(result["matching_acls"]) for result in answer["filter_results"]] == [1] * 4


def test_filters_of_one_request_find_a_bounded_number_of_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ACL counts for each filter that matches it, since the answer names it as often."""
    client = acl_world().connect("PLAINTEXT")
    client.ask("CreateAcls", 3, {"creations": [READ_G1]})
    monkeypatch.setattr(acls_module, "MATCHES_MAX", 5)

    answer = client.ask("DeleteAcls", 3, {"filters": [EVERY] * 6})
    assert [error for error, _ in answers("filter_results", answer)] == ["INVALID_REQUEST"] * 6
    assert len(client.ask("DescribeAcls", 3, EVERY)["resources"]) == 1


def test_a_creation_with_what_only_filters_have_fails_whole() -> None:
    """ANY or MATCH in one ACL is UNKNOWN_SERVER_ERROR for all of the request. As recorded."""
    client = acl_world().connect("PLAINTEXT")
    for changed in ({"operation": ANY}, {"resource_pattern_type": int(PatternType.MATCH)}):
        answer = client.ask("CreateAcls", 3, {"creations": [READ_G1, READ_G1 | changed, READ_G1 | {"host": ""}]})
        assert answers("results", answer) == [("UNKNOWN_SERVER_ERROR", None)] * 3
