"""The packaged transcripts that groupcoord does not pass yet, each with the reason. Nothing else may fail.

They are run all the same and must fail: one that passes has to be taken off this list.
"""

from __future__ import annotations

_OFFSET_DELETE = (
    "offset_delete/delete_after_members_left",
    "offset_delete/delete_duplicate_topic",
    "offset_delete/delete_in_non_consumer_group",
    "offset_delete/delete_last_offset_keeps_group",
    "offset_delete/delete_subscribed_topic",
    "offset_delete/delete_unknown_group",
    "offset_load/all_offsets_deleted_over_restart",
    "offset_load/many_partitions_over_restart",
)

_TRANSACTIONS = (
    "txn_offsets/delete_group_while_pending",
    "txn_offsets/ended_transactions_over_restart",
    "txn_offsets/fenced_producer_epoch",
    "txn_offsets/init_producer_id_aborts_open_transaction",
    "txn_offsets/init_producer_id_checks",
    "txn_offsets/made_up_producer",
    "txn_offsets/offset_delete_while_pending",
    "txn_offsets/pending_offset_keeps_expired_one",
    "txn_offsets/pending_over_restart_then_abort",
    "txn_offsets/pending_over_restart_then_commit",
    "txn_offsets/plain_commit_while_pending",
    "txn_offsets/require_stable_while_pending",
    "txn_offsets/static_member_checks_in_txn_commit",
    "txn_offsets/transaction_timeout_aborts",
    "txn_offsets/two_producers_on_one_partition",
    "txn_offsets/two_producers_one_aborts",
    "txn_offsets/txn_abort",
    "txn_offsets/txn_commit_after_offset_delete",
    "txn_offsets/txn_commit_on_unknown_group",
    "txn_offsets/txn_commit_v0_to_v2",
    "txn_offsets/txn_commit_v3",
    "txn_offsets/txn_commit_v4",
    "txn_offsets/txn_commit_while_rebalancing",
    "txn_offsets/txn_commits_do_not_keep_the_session",
)

NOT_YET: dict[str, str] = {
    **dict.fromkeys(_OFFSET_DELETE, "OffsetDelete is not served yet"),
    **dict.fromkeys(_TRANSACTIONS, "transactional offsets and the transaction APIs are not served yet"),
}
