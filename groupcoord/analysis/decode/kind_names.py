"""What a row of the table of records is, in words."""

from __future__ import annotations

from groupcoord.analysis.decode.schema import KIND_CORRUPT, KIND_READ, KIND_RECORD
from groupcoord.records.schemas import RecordType

_NAMES = {int(known): known.name for known in RecordType}
_CONTROLS = {0: "control records: aborted", 1: "control records: committed"}


def describe_kind(kind: str, record_type: int | None, control_type: int | None) -> str:
    """Return what rows of a kind and type are called in a report."""
    if kind == KIND_RECORD:
        if record_type is None:
            return "records without a type"
        name = _NAMES.get(record_type)
        return f"records of type {record_type}" if name is None else f"records {name}"
    if kind == KIND_CORRUPT:
        return "corrupt byte ranges"
    if kind == KIND_READ:
        return "byte ranges of files"
    return "control records: other" if control_type is None else _CONTROLS.get(control_type, "control records: other")
