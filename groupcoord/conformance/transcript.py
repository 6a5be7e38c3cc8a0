"""Transcripts: recorded conversations of clients with a broker, parsed from JSON and checked."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from attrs import frozen

from groupcoord.config.files import data_files, read_text
from groupcoord.conformance import entities
from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import substitute, variable_kind
from groupcoord.core.router.authorization import Operation, ResourceType
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.wire.security_messages import ALL, PermissionType

_CONTROL_TYPE = struct.Struct(">hh")


def with_bytes(body: Plain, now_ms: int) -> Plain:
    """Return the body of a request with its batches as bytes; the ``age`` of a batch is subtracted from ``now_ms``."""
    if isinstance(body, list):
        return [with_bytes(element, now_ms) for element in body]
    if not isinstance(body, dict):
        return body
    if set(body) == {"batches"}:
        return {"hex": b"".join(_encode(now_ms, **batch) for batch in body["batches"]).hex()}
    return {name: with_bytes(value, now_ms) for name, value in body.items()}


def _encode(
    now_ms: int,
    values: list[str],
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    age: int = 0,
) -> bytes:
    from groupcoord.records.batches import encode_batch

    return encode_batch(
        0,
        [(None, value.encode(), now_ms - age) for value in values],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def has_bytes(body: Plain) -> bool:
    if isinstance(body, list):
        return any(map(has_bytes, body))
    if not isinstance(body, dict):
        return False
    return any(isinstance(value, dict) if name == "records" else has_bytes(value) for name, value in body.items())


def with_batches(body: Plain) -> Plain:
    """Return the body of a Fetch or ShareFetch response with readable records and acknowledge errors."""
    if isinstance(body, list):
        return [with_batches(element) for element in body]
    if not isinstance(body, dict):
        return body
    readable: dict[str, Plain] = {}
    for name, value in body.items():
        if name == "records":
            readable[name] = _batches(value)
        elif name == "acknowledge_error_code":
            readable[name] = ErrorCode(value).name
        else:
            readable[name] = with_batches(value)
    return readable


def _batches(records: Plain) -> Plain:
    from groupcoord.records.batches import TruncatedBatchError, iter_batches

    found: list[Plain] = []
    try:
        for batch in iter_batches(bytes.fromhex("" if records is None else records["hex"])):
            content: dict[str, Any] = {"base_offset": batch.base_offset, "last_offset": batch.next_offset - 1}
            records_of = list(batch.records())
            if batch.is_control:
                _, is_commit = _CONTROL_TYPE.unpack(bytes(records_of[0][2] or b""))
                content["control"] = "COMMIT" if is_commit else "ABORT"
            else:
                content["values"] = [bytes(record[3] or b"").decode("latin-1") for record in records_of]
            found.append(content)
    except TruncatedBatchError:
        pass  # the last batch may be truncated
    return found


COORDINATOR = "coordinator"
"""Value of ``node`` for the coordinator of the transcript's group ``$g``."""

PACKAGED = Path(__file__).parent / "transcripts"


class TranscriptError(GroupcoordError):
    """A transcript is invalid; the message has file and step."""


@frozen
class Send:
    """Request on a connection, which the first request opens.

    ``node`` is the id of the node to connect to, :data:`COORDINATOR`, or None for the bootstrap server.
    """

    connection: str
    client_id: str
    api: str
    version: int
    body: dict[str, Plain]
    node: int | str | None = None


@frozen
class Receive:
    """Next response on a connection; ``took_ms`` is its recorded duration."""

    connection: str
    took_ms: int
    body: Plain


@frozen
class Quiet:
    """No response on a connection for ``duration_ms``."""

    connection: str
    duration_ms: int


@frozen
class Sleep:
    """Wait of ``duration_ms``."""

    duration_ms: int


@frozen
class Close:
    """End of a connection."""

    connection: str


@frozen
class Restart:
    """Kill and restart of the server; all connections are lost."""


@frozen
class AclEntry:
    """ACL of one resource, with Kafka's numbers; ``name`` may begin with ``$g``."""

    resource_type: int
    name: str
    operation: int
    permission: int
    principal: str


@frozen
class SetAcls:
    """Replacement of all ACLs."""

    acls: tuple[AclEntry, ...]


Step = Send | Receive | Quiet | Sleep | Close | Restart | SetAcls

ACL_SETTINGS: Mapping[str, str | int] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@frozen
class Transcript:
    """Recorded conversation.

    Attributes:
        name: name, unique in the area.
        area: subject, such as ``join`` or ``commit``.
        shows: the shown behaviour as a sentence.
        settings: broker settings that only this transcript requires, by Kafka's keys.
        topics: required topics with partition counts.
        steps: the steps; messages count them from 1.
        source: file, or the caller's name for it.
        nodes: required number of nodes, with ids from 1.
        acls: ACLs before the first step.
        in_order: elements of lists must have the recorded order.
        messages: error messages must match.
    """

    name: str
    area: str
    shows: str
    settings: Mapping[str, str | int]
    topics: Mapping[str, int]
    steps: tuple[Step, ...]
    source: str
    nodes: int = 1
    acls: tuple[AclEntry, ...] = ()
    in_order: bool = False
    messages: bool = False

    def __str__(self) -> str:
        return f"{self.area}/{self.name}"

    @property
    def restarts(self) -> bool:
        """True if a step restarts the server."""
        return any(isinstance(step, Restart) for step in self.steps)

    @property
    def sets_acls(self) -> bool:
        """True if the transcript has ACLs and needs its own server."""
        return bool(self.acls) or any(isinstance(step, SetAcls) for step in self.steps)


def load_transcripts(*paths: str | Path) -> list[Transcript]:
    """Read transcripts from files and folders (all ``.json`` files), sorted by path.

    Args:
        paths: files and folders; none for the package's transcripts.

    Raises:
        TranscriptError: a file is missing or invalid.
    """
    return [*map(_read, _files(paths))] if paths else [*_packaged()]


def parse_transcript(text: str, source: str = "transcript") -> Transcript:
    """Parse one transcript.

    Args:
        text: JSON text.
        source: name in messages, usually the file's.

    Raises:
        TranscriptError: it is invalid.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise TranscriptError(f"{source}: line {error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise TranscriptError(f"{source}: nested too deeply") from error
    return _transcript(document, source)


def _transcript(document: object, source: str) -> Transcript:
    head = _Object(document, source)
    head.only("name", "area", "shows", "nodes", "config", "topics", "in_order", "messages", "acls", "steps")
    nodes: int = head.get("nodes", int, default=1)
    if nodes < 1:
        raise TranscriptError(f"{source}: 'nodes' must be at least 1, not {nodes}")
    topics: dict[str, int] = head.get("topics", dict, default={})
    settings: dict[str, str | int] = head.get("config", dict, default={})
    for name, partitions in topics.items():
        if not _is_number(partitions) or partitions < 1:
            raise TranscriptError(f"{source}: topic {name!r} must have at least one partition, not {partitions!r}")
    for key, value in settings.items():
        if not _is_number(value) and not isinstance(value, str):
            raise TranscriptError(f"{source}: setting {key!r} must be a number or text, not {value!r}")
    checker = _Checker(topics, nodes)
    steps = []
    for number, raw in enumerate(head.get("steps", list), 1):
        where = f"{source}: step {number}"
        step = _step(_Object(raw, where))
        try:
            checker.check(step)
        except (ValueError, entities.BodyError) as error:
            raise TranscriptError(f"{where}: {error}") from error
        steps.append(step)
    acls = _acls(head)
    if acls or any(isinstance(step, SetAcls) for step in steps):
        settings = {**ACL_SETTINGS, **settings}
    return Transcript(
        name=head.get("name", str),
        area=head.get("area", str),
        shows=head.get("shows", str, default=""),
        settings=settings,
        topics=topics,
        steps=tuple(steps),
        source=source,
        nodes=nodes,
        acls=acls,
        in_order=head.get("in_order", bool, default=False),
        messages=head.get("messages", bool, default=False),
    )


@cache
def _packaged() -> tuple[Transcript, ...]:
    return tuple(_transcript(document, source) for source, document in data_files(PACKAGED))


def _files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(path.rglob("*.json"))
            if not found:
                raise TranscriptError(f"{path}: no transcripts (*.json) in this folder")
            yield from found
        else:
            yield path


def _read(path: Path) -> Transcript:
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise TranscriptError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TranscriptError(f"{path}: can't be read: {error}") from error
    return parse_transcript(text, str(path))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_REQUIRED: Any = object()
_TYPE_NAMES = {str: "text", int: "a whole number", dict: "an object", list: "a list", bool: "true or false"}


class _Object:
    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise TranscriptError(f"{where}: must be an object, not {value!r:.60}")
        self._fields: dict[str, Any] = value
        self._where = where

    def get(self, name: str, wanted: type[Any], default: Any = _REQUIRED) -> Any:
        value = self._fields.get(name, default)
        if value is _REQUIRED:
            raise TranscriptError(f"{self._where}: {name!r} is missing")
        if not isinstance(value, wanted) or (wanted is int and not _is_number(value)):
            raise TranscriptError(f"{self._where}: {name!r} must be {_TYPE_NAMES[wanted]}, not {value!r:.60}")
        return value

    def duration(self, name: str, default: Any = _REQUIRED) -> int:
        value: int = self.get(name, int, default)
        if value < 0:
            raise TranscriptError(f"{self._where}: {name!r} must not be negative")
        return value

    def only(self, *names: str) -> None:
        for name in self._fields:
            if name not in names:
                raise TranscriptError(f"{self._where}: unknown field {name!r}; there are {', '.join(names)}")

    def node(self) -> int | str | None:
        value = self._fields.get("node")
        if value is not None and not _is_number(value) and value != COORDINATOR:
            raise self.fail(f"'node' must be a whole number or {COORDINATOR!r}, not {value!r:.60}")
        return value

    def one_of(self, names: Iterable[str]) -> str:
        found = [name for name in names if name in self._fields]
        if len(found) != 1:
            raise self.fail(f"must have one of {', '.join(names)}")
        return found[0]

    def within(self, value: object) -> _Object:
        return _Object(value, self._where)

    def fail(self, message: str) -> TranscriptError:
        return TranscriptError(f"{self._where}: {message}")


_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: Mapping[str, int] = {"ALL": ALL, **Operation.__members__}
_PERMISSIONS = {"deny": PermissionType.DENY, "allow": PermissionType.ALLOW}


def _acls(owner: _Object) -> tuple[AclEntry, ...]:
    return tuple(_acl(owner.within(entry)) for entry in owner.get("acls", list, default=[]))


def _acl(entry: _Object) -> AclEntry:
    entry.only(*_PERMISSIONS, *_RESOURCES, "principal")
    permission, resource = entry.one_of(_PERMISSIONS), entry.one_of(_RESOURCES)
    operation = entry.get(permission, str)
    if operation not in _OPERATIONS:
        raise entry.fail(f"unknown operation {operation!r}; there are {', '.join(_OPERATIONS)}")
    principal = entry.get("principal", str, default="User:*")
    name = entry.get(resource, str)
    return AclEntry(_RESOURCES[resource], name, _OPERATIONS[operation], _PERMISSIONS[permission], principal)


def _send(step: _Object) -> Send:
    connection = step.get("conn", str)
    client_id = step.get("client_id", str, default=connection)
    return Send(
        connection, client_id, step.get("api", str), step.get("version", int), step.get("body", dict), step.node()
    )


def _receive(step: _Object) -> Receive:
    return Receive(step.get("conn", str), step.duration("took_ms", default=0), step.get("body", dict))


_STEPS: dict[str, tuple[tuple[str, ...], Callable[[_Object], Step]]] = {
    "send": (("conn", "node", "client_id", "api", "version", "body"), _send),
    "recv": (("conn", "took_ms", "body"), _receive),
    "quiet": (("conn", "ms"), lambda step: Quiet(step.get("conn", str), step.duration("ms"))),
    "sleep": (("ms",), lambda step: Sleep(step.duration("ms"))),
    "close": (("conn",), lambda step: Close(step.get("conn", str))),
    "restart": ((), lambda step: Restart()),
    "acls": (("acls",), lambda step: SetAcls(_acls(step))),
}
"""Fields and constructor of each kind of step."""


def _step(step: _Object) -> Step:
    do = step.get("do", str)
    if do not in _STEPS:
        raise step.fail(f"unknown step {do!r}; there are {', '.join(_STEPS)}")
    names, make = _STEPS[do]
    step.only("do", *names)
    return make(step)


_SOME_ID = str(UUID(int=1))


class _Checker:
    """Check of steps before anything is sent; placeholders replace the values of variables."""

    def __init__(self, topics: Mapping[str, int], nodes: int) -> None:
        self._nodes = nodes
        self._placeholders: dict[str, str | int] = {"$g": "g"}
        self._topics = topics
        for name in topics:
            self._placeholders[f"$topic:{name}"] = _SOME_ID
        self._unanswered: dict[str, list[Send]] = {}

    def check(self, step: Step) -> None:
        match step:
            case Send():
                if isinstance(step.node, int) and not 1 <= step.node <= self._nodes:
                    raise ValueError(f"there is no node {step.node}; 'nodes' is {self._nodes}")
                self._check_variables(step.body, bind=False)
                body = with_bytes(substitute(step.body, self._placeholders), 0)
                entities.encode_request(step.api, step.version, 0, step.client_id, body)
                self._unanswered.setdefault(step.connection, []).append(step)
            case Receive():
                if not self._requests(step.connection):
                    raise ValueError(f"connection {step.connection!r} has no unanswered request")
                request = self._requests(step.connection).pop(0)
                self._check_variables(step.body, bind=True)
                entities.check_response_fields(request.api, request.version, step.body)
            case Quiet():
                self._requests(step.connection)
            case Close():
                self._requests(step.connection)
                del self._unanswered[step.connection]
            case Restart():
                self._unanswered.clear()

    def _requests(self, connection: str) -> list[Send]:
        if connection not in self._unanswered:
            raise ValueError(f"connection {connection!r} is not open")
        return self._unanswered[connection]

    def _check_variables(self, body: Plain, *, bind: bool) -> None:
        if isinstance(body, dict | list):
            for value in body.values() if isinstance(body, dict) else body:
                self._check_variables(value, bind=bind)
            return
        kind = variable_kind(body) if isinstance(body, str) else None
        if kind is None or kind == "group" or body in self._placeholders:
            return
        if not bind and kind == "topic":
            raise ValueError(f"{body!r} is not among the topics {sorted(self._topics)}, nor was it made before")
        if not bind:
            raise ValueError(f"{body!r} is sent before a response gave it a value")
        if kind != "any":
            placeholders: dict[str, str | int] = {"producer": 1, "topic": _SOME_ID}
            self._placeholders[body] = placeholders.get(kind, "m")
