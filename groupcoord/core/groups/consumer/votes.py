"""Which assignor a group uses: the one for which most of its members vote.

Members that name none don't vote. If two have as many votes, the one that Kafka's maps hand out first wins; and it asks
two different maps. Source: ``preferredServerAssignor`` and ``computePreferredServerAssignor`` of Kafka's
``ConsumerGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupcoord.core.javacompat.hashing import HashTable, buckets_of_copy, string_hash, timeline_map_order


def preferred_assignor(votes: Mapping[str, int]) -> str | None:
    """Return the name for which most members of a group vote, as administrators see it; None if nobody votes.

    Args:
        votes: by name of the assignor, how many members ask for it; none has 0.
    """
    return _first_of_most(timeline_map_order(sorted(votes)), votes) if votes else None


def preferred_assignor_after(votes: Mapping[str, int], old_vote: str | None, new_vote: str | None) -> str | None:
    """Return the name for which most members vote once a member has changed its vote; None if nobody votes then.

    This is what a target assignment is made with. Where votes are tied it can differ from :func:`preferred_assignor` of
    the same votes.

    Args:
        votes: by name of the assignor, how many members asked for it before; none has 0.
        old_vote: what the member asked for before; None if it is new, or asked for none.
        new_vote: what it asks for now; None if it asks for none, or leaves.
    """
    if not votes and new_vote is None:
        return None
    after = dict(votes)
    names = HashTable(string_hash, timeline_map_order(sorted(votes)), buckets_of_copy(len(votes)) if votes else 16)
    if old_vote is not None:
        after[old_vote] -= 1
        if not after[old_vote]:
            del after[old_vote]
            names.discard(old_vote)
    if new_vote is not None:
        names.compute_if_absent(new_vote)
        after[new_vote] = after.get(new_vote, 0) + 1
    return _first_of_most(names, after)


def _first_of_most(names: Iterable[str], votes: Mapping[str, int]) -> str | None:
    most = max(votes.values(), default=0)
    return next((name for name in names if votes[name] == most), None)
