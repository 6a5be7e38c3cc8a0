"""Missing internal topics: requested once, and again after an error was reported for two intervals."""

from __future__ import annotations

from groupcoord.core.groups.streams.topology import InternalTopics
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopic, InternalTopicsCreated

INTERVAL_MS = 5_000
STORE, BY_KEY = InternalTopic("store-changelog", 2, -1), InternalTopic("by-key", 2, -1)


def test_a_topic_is_asked_for_once() -> None:
    """All members miss it; an answer that does not come within two intervals is not waited for."""
    topics = InternalTopics()
    assert topics.ask((STORE, BY_KEY), None, INTERVAL_MS, 0) == ((BY_KEY, STORE), "")
    assert topics.ask((STORE, BY_KEY), None, INTERVAL_MS, 2 * INTERVAL_MS - 1) == ((), "")
    assert topics.ask((STORE,), None, INTERVAL_MS, 2 * INTERVAL_MS) == ((STORE,), "")


def test_an_error_is_told_for_two_intervals() -> None:
    """Then the topic is requested again, and the error is dropped."""
    topics = InternalTopics()
    asked, _ = topics.ask((STORE, BY_KEY), None, INTERVAL_MS, 0)
    question = CreateInternalTopics(0, "app", asked, None)
    topics.created(InternalTopicsCreated(question, {STORE.name: "no room"}), INTERVAL_MS, 1_000)
    told = "; Creation failed: store-changelog (no room)."
    assert topics.ask((STORE,), None, INTERVAL_MS, 1_000) == ((), told)
    assert topics.ask((STORE,), None, INTERVAL_MS, 1_000 + 2 * INTERVAL_MS - 1) == ((), told)
    assert topics.ask((STORE,), None, INTERVAL_MS, 1_000 + 2 * INTERVAL_MS) == ((STORE,), "")
