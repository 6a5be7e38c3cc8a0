"""Laws: invariants of every coordinator and its log, for random tests, the simulator, and users.

Each ``check_…`` raises :class:`LawBrokenError` if its law does not hold.
"""

from groupcoord.laws.answers import (
    OwnerLaws as OwnerLaws,
    check_answer as check_answer,
    check_reaction as check_reaction,
)
from groupcoord.laws.coordinator import (
    NEWEST as NEWEST,
    NOTHING as NOTHING,
    LawBrokenError as LawBrokenError,
    OffsetKey as OffsetKey,
    OffsetLedger as OffsetLedger,
    check_acknowledged_commits as check_acknowledged_commits,
    check_bytes as check_bytes,
    check_compaction_rebuilds as check_compaction_rebuilds,
    check_fetch_is_the_log as check_fetch_is_the_log,
    check_generations_grow as check_generations_grow,
    check_hard_state_is_the_log as check_hard_state_is_the_log,
    check_log_can_be_loaded as check_log_can_be_loaded,
    check_places as check_places,
    check_rebuilt as check_rebuilt,
    check_replay as check_replay,
    check_size as check_size,
    check_snapshot_rebuilds as check_snapshot_rebuilds,
    check_timers as check_timers,
    check_tokens as check_tokens,
    compacted as compacted,
    error_codes as error_codes,
    errors_in as errors_in,
    offsets_in_log as offsets_in_log,
    replayed as replayed,
    require as require,
    served_partitions as served_partitions,
)
from groupcoord.laws.expiry import (
    check_expiry as check_expiry,
    check_forgets_topic as check_forgets_topic,
    offsets_of_topic as offsets_of_topic,
)
from groupcoord.laws.membership import (
    check_every_step as check_every_step,
    check_every_wait_ends as check_every_wait_ends,
    check_fenced as check_fenced,
    check_members_are_durable as check_members_are_durable,
    check_nobody_waits_for_nobody as check_nobody_waits_for_nobody,
    ids_taken_back as ids_taken_back,
)
from groupcoord.laws.modern_groups import (
    OF_NO_GROUP as OF_NO_GROUP,
    STRANGER as STRANGER,
    UNIFORM as UNIFORM,
    check_append as check_append,
    check_consumer_group_is_served as check_consumer_group_is_served,
    check_epochs_grow as check_epochs_grow,
    check_member_sees_what_is_durable as check_member_sees_what_is_durable,
    check_restart_writes_the_same as check_restart_writes_the_same,
    check_sound_streams_group as check_sound_streams_group,
    check_writes_in_flight as check_writes_in_flight,
    consumer_group_of as consumer_group_of,
    stranger as stranger,
)
from groupcoord.laws.share_partitions import (
    ShareLedger as ShareLedger,
    check_share_partition as check_share_partition,
    check_states_are_the_log as check_states_are_the_log,
)
