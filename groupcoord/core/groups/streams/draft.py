"""What one append of a streams group will be."""

from __future__ import annotations

from groupcoord.core.groups.base.draft import Draft
from groupcoord.core.groups.streams.records import StreamsGroupMetadataRecord
from groupcoord.core.groups.streams.state import StreamsState


class StreamsDraft(Draft[StreamsState]):
    """A draft of a streams group."""

    __slots__ = ()

    def epoch_record(self, epoch: int, metadata_hash: int) -> StreamsGroupMetadataRecord:
        """Return the record of an epoch of the group in which nothing else is new."""
        state = self.state
        return StreamsGroupMetadataRecord(
            state.group_id,
            epoch,
            metadata_hash,
            state.validated_topology_epoch,
            state.assignment_configs,
            *state.described_topology_epochs,
        )
