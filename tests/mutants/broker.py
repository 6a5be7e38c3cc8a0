"""Bugs that somebody could make around the core: fetches and their sessions, transactions, permissions."""

from __future__ import annotations

from tests.mutants.catalogue import Mutant

BROKER_MUTANTS = (
    Mutant(
        "a fetch of an older leader's epoch is answered",
        "../broker/records/topic_data.py",
        "if epoch < current and epoch != NO_LEADER_EPOCH:",
        "if False:",
    ),
    Mutant(
        "a fetch behind the end finds nothing instead of being refused",
        "../broker/records/fetching.py",
        "(offset > log.end_offset and last_epoch < 0))",
        "False)",
    ),
    Mutant(
        "followers may fetch",
        "../broker/records/fetching.py",
        "if request.replica_id >= 0:",
        "if False:",
    ),
    Mutant(
        "a fetch session takes any epoch",
        "../broker/records/fetch_sessions.py",
        "if session.epoch != request.session_epoch:",
        "if False:",
    ),
    Mutant(
        "the epoch of a fetch session stays",
        "../broker/records/fetch_sessions.py",
        "session.epoch = session.epoch % INT32_MAX + 1",
        "pass",
    ),
    Mutant(
        "a fetch session keeps what is forgotten",
        "../broker/records/fetch_sessions.py",
        "partitions.pop(Target(topic.name, topic.topic_id, index), None)",
        "pass",
    ),
    Mutant(
        "a fenced producer goes on",
        "../broker/transactions/state.py",
        "return ErrorCode.NONE if producer_epoch == self.producer_epoch else ErrorCode.PRODUCER_FENCED",
        "return ErrorCode.NONE",
    ),
    Mutant(
        "a transaction that ends takes more",
        "../broker/transactions/coordinator.py",
        "if error_code is ErrorCode.NONE and transaction.state.is_prepared:",
        "if False:",
    ),
    Mutant(
        "records are taken for partitions that are not in the transaction",
        "../broker/transactions/coordinator.py",
        "transaction.state is TransactionState.ONGOING and partition in transaction.partitions",
        "transaction.state is TransactionState.ONGOING",
    ),
    Mutant(
        "an end is answered as done whatever had been done",
        "../broker/transactions/coordinator.py",
        "return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE",
        "return ErrorCode.NONE",
    ),
    Mutant(
        "what one rule denies another allows",
        "../broker/security/acls.py",
        "if acl.permission_type == PermissionType.DENY:",
        "if False:",
    ),
)
