"""What is different between two runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from groupcoord.config.files import parse_json, read_text
from groupcoord.errors import GroupcoordError

FAILED = "failed"


class RunFileError(GroupcoordError):
    """A file is not what ``groupcoord conformance --json`` printed."""


@frozen
class Change:
    """A transcript that fared otherwise in the second run.

    Attributes:
        name: the transcript's area and name.
        before: its verdict in the first run, with the reason; empty if it wasn't there.
        after: its verdict in the second run, with the reason; empty if it wasn't there.
        is_worse: it fails, and did not.
        is_better: it failed, and doesn't any more.
    """

    name: str
    before: str
    after: str
    is_worse: bool
    is_better: bool


def load_run(path: Path) -> dict[str, Any]:
    """Read what ``groupcoord conformance --json`` printed.

    Raises:
        RunFileError: the file can't be read, or holds something else.
    """
    try:
        found = parse_json(read_text(path))
        _by_name(found)
    except OSError as error:
        raise RunFileError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunFileError(f"{path} is not what groupcoord conformance --json printed") from None
    return dict(found)


def compare_runs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return what fared otherwise, or failed otherwise, by name.

    Args:
        before: the first run, as JSON data of :meth:`Report.to_json`.
        after: the second.
    """
    old, new = _by_name(before), _by_name(after)
    changes = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if _essence(was) == _essence(now):
            continue
        failed_before, fails_now = _verdict(was) == FAILED, _verdict(now) == FAILED
        is_worse, is_better = fails_now and not failed_before, failed_before and not fails_now and now is not None
        changes.append(Change(name, _words(was), _words(now), is_worse, is_better))
    return changes


def _by_name(run: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {f"{outcome['area']}/{outcome['name']}": outcome for outcome in run["outcomes"]}
    for outcome in found.values():
        _essence(outcome)
    return found


def _verdict(outcome: Mapping[str, Any] | None) -> str:
    return str(outcome["verdict"]) if outcome is not None else ""


def _essence(outcome: Mapping[str, Any] | None) -> tuple[object, ...]:
    """Return what doesn't depend on the moment: not the milliseconds that an answer took, nor ids of the run."""
    if outcome is None:
        return ()
    failure = outcome.get("failure") or {}
    return (outcome["verdict"], failure.get("step"), failure.get("path"))


def _words(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return ""
    failure = outcome.get("failure")
    if failure is not None:
        return f"{outcome['verdict']} at step {failure['step']}, {failure['action']}: {failure['message']}"
    reason = outcome.get("reason")
    return f"{outcome['verdict']} ({reason})" if reason else str(outcome["verdict"])
