"""A driver with topics, and the members of a share group."""

from __future__ import annotations

import pytest

from groupcoord import Config, GroupCoordinator
from groupcoord.assignors import Assignor
from groupcoord.log_store import LogStore
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver

from .members import Members, SlowShareHost


class ShareDriver(Driver):
    """A driver with a share coordinator that can be slow."""

    host: SlowShareHost
    share_assignors: tuple[Assignor, ...] = ()

    def make_coordinator(self, config: Config, log_store: LogStore) -> GroupCoordinator:
        if not hasattr(self, "host"):
            self.host = SlowShareHost(config)
        return GroupCoordinator(
            config=config,
            clock=self.clock,
            log_store=log_store,
            topics=self.topics,
            share=self.host,
            share_assignors=self.share_assignors,
        )


@pytest.fixture
def topics() -> Topics:
    return Topics(orders=2, payments=1)


@pytest.fixture
def driver(topics: Topics) -> ShareDriver:
    """Driver with a log that answers at once."""
    return ShareDriver(topics=topics, group_share_assignment_interval_ms=0, group_share_max_size=3)


@pytest.fixture
def late_driver(topics: Topics) -> ShareDriver:
    """Driver with a log that answers when the test decides."""
    return ShareDriver(late=True, topics=topics, group_share_assignment_interval_ms=0)


@pytest.fixture
def members(driver: ShareDriver) -> Members:
    return Members(driver)
