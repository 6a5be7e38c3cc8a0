"""Fixtures: a driver with a late log, and members of a consumer group."""

from __future__ import annotations

import pytest

from groupcoord.config import MigrationPolicy
from groupcoord.testing.topics import Topics
from tests.core.consumer.members import LONG_MS, Members
from tests.core.driver import Driver


@pytest.fixture
def topics() -> Topics:
    return Topics(orders=6)


@pytest.fixture
def driver(topics: Topics) -> Driver:
    return Driver(
        late=True,
        topics=topics,
        offsets_commit_timeout_ms=LONG_MS,
        group_consumer_assignment_interval_ms=0,
        group_consumer_migration_policy=MigrationPolicy.BIDIRECTIONAL,
    )


@pytest.fixture
def members(driver: Driver) -> Members:
    return Members(driver)


@pytest.fixture
def alone(driver: Driver, members: Members) -> Members:
    """A written group of ``a``, in epoch 2, which has every partition."""
    members.join("a")
    driver.write()
    assert (members.described.group_state, members.described.group_epoch) == ("Stable", 2)
    return members
