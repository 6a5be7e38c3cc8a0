"""ConsumerGroupHeartbeat requests of a member: full after a join or a failure, afterwards only changed fields."""

from __future__ import annotations

from groupcoord.core.messages import ConsumerGroupHeartbeat, TopicPartitions
from groupcoord.member.config import MemberConfig
from groupcoord.member.consumer.assignment import LocalAssignment, write_partitions
from groupcoord.member.consumer.membership import ConsumerMembership
from groupcoord.member.membership import MemberState
from groupcoord.member.subscription import SubscriptionState


class HeartbeatRequests:
    """Builds heartbeats and remembers which fields the coordinator has."""

    __slots__ = (
        "_assignment",
        "_config",
        "_has_told_settings",
        "_membership",
        "_regex",
        "_steady",
        "_subscription",
        "_topics",
    )

    def __init__(self, config: MemberConfig, membership: ConsumerMembership, subscription: SubscriptionState) -> None:
        self._config = config
        self._membership = membership
        self._subscription = subscription
        self._steady: ConsumerGroupHeartbeat | None = (
            None  # the last heartbeat without changes, which is sent again while nothing changes
        )
        self.forget()

    def forget(self) -> None:
        """Send all fields next time, because it is unknown what the coordinator has received."""
        self._has_told_settings = False
        self._topics: tuple[str, ...] | None = None
        self._regex: str | None = None
        self._assignment: LocalAssignment | None = None

    def make(self, current: LocalAssignment) -> ConsumerGroupHeartbeat:
        """Return the next heartbeat.

        Args:
            current: the partitions that the member owns.
        """
        membership, config = self._membership, self._config
        is_joining = membership.state is MemberState.JOINING
        if is_joining:
            self.forget()
        topics, regex = self._changed_topics(), self._changed_regex()
        owned = self._changed_assignment(current)
        tells_settings, self._has_told_settings = not self._has_told_settings, True
        tells_nothing = topics is None and regex is None and owned is None and not tells_settings
        if tells_nothing and self._steady is not None and self._steady.member_epoch == membership.epoch:
            return self._steady
        request = ConsumerGroupHeartbeat(
            group_id=config.group_id or "",
            member_id=membership.member_id,
            member_epoch=membership.epoch,
            instance_id=config.group_instance_id,
            rack_id=(config.client_rack or None) if is_joining else None,
            rebalance_timeout_ms=config.max_poll_interval_ms if tells_settings else -1,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=config.group_remote_assignor if tells_settings else None,
            topic_partitions=owned,
            client_id=config.client_id,
        )
        self._steady = request if tells_nothing else None
        return request

    def _changed_topics(self) -> tuple[str, ...] | None:
        topics = self._subscription.topics
        if topics == self._topics:
            return None
        self._topics = topics
        return topics

    def _changed_regex(self) -> str | None:
        """Return the regular expression if it has changed; "" removes it."""
        regex = self._subscription.regex
        if regex == self._regex:
            return None
        self._regex = regex
        return regex or ""

    def _changed_assignment(self, current: LocalAssignment) -> tuple[TopicPartitions, ...] | None:
        if self._assignment == current:
            return None
        self._assignment = current
        return write_partitions(current.partitions)
