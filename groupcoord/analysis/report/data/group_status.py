"""How a group stands: in a colour, a word and a sentence, how far it is behind, and who has what of its partitions.

Of share groups it is told how records were delivered.
"""

from __future__ import annotations

from attrs import frozen

FINE, WARNING, BAD = "fine", "warning", "bad"
SEVERITIES = (FINE, WARNING, BAD)
"""Bad is a group of which records are not processed, or more than once; of a warning, that may come."""

MEMBERS_TOLD_MAX = 8
PARTITIONS_OF_MEMBER_MAX = 3


@frozen
class Standing:
    """How a group stands.

    Attributes:
        severity: one of :data:`SEVERITIES`.
        word: Burrow's status, or the kind of its worst anomaly; empty if all is well.
        told: its worst anomaly as a sentence; empty if all is well.
        lag: records behind in all partitions; None: that is not known.
        lag_ms: how old the oldest of the next records is, in milliseconds, as far as that can be told.
    """

    severity: str = FINE
    word: str = ""
    told: str = ""
    lag: int | None = None
    lag_ms: int | None = None

    @property
    def is_fine(self) -> bool:
        """Nothing is wrong with it."""
        return self.severity == FINE


UNTROUBLED = Standing()
"""How a group stands of which nothing bad is known."""


@frozen
class PartitionShare:
    """A partition that a member has, or nobody.

    Attributes:
        commits: of it, by whoever had it.
        last_commit_ms: when the last of them was.
        lag: records behind; None: that is not known.
        lag_ms: how old the next record is.
        status: Burrow's; empty: not known.
        severity: how bad that is.
    """

    topic: str
    partition: int
    commits: int = 0
    last_commit_ms: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    status: str = ""
    severity: str = FINE


@frozen
class MemberShare:
    """What a member has as the log ends.

    Attributes:
        client_id: what its client calls itself; None: nobody has these.
        client_host: where it connects from.
        partition_count: how many partitions it has.
        commits: of all of these.
        lag: in all of these; None: not known.
        partitions: the first of them, those that are furthest behind in front.
    """

    client_id: str | None
    client_host: str | None
    partition_count: int
    commits: int
    lag: int | None
    partitions: tuple[PartitionShare, ...]


@frozen
class ShareGroupRow:
    """What a share group's states tell of a topic.

    Attributes:
        partitions: of the topic, which have a state.
        waiting: records that were delivered and wait to be again, or are acquired by somebody.
        delivered_max: how often one of them was delivered; None: there are none.
        redeliveries: deliveries that were not the first.
        given_up: records that were rejected, or delivered too often.
        last_ms: when something changed last.
    """

    group_id: str
    topic: str
    partitions: int
    waiting: int
    delivered_max: int | None
    redeliveries: int
    given_up: int
    last_ms: int | None
