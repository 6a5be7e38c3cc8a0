"""Transcripts: recorded conversations of clients with a broker, parsed from JSON and checked."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

from attrs import frozen

from groupcoord.config.files import KeyPath, TableReader, data_files, format_path, read_text
from groupcoord.config.settings import INT32_MAX
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


def _transcript(document: Any, source: str) -> Transcript:
    head = TableReader(document, (), partial(_fail, source))
    head.expect("name", "area", "shows", "nodes", "config", "topics", "in_order", "messages", "acls", "steps")
    nodes = head.number("nodes", 1, at_least=1)
    topics, config = head.table("topics", {}), head.table("config", {})
    counts = {name: topics.number(name, at_least=1) for name in topics.values}
    for key, value in config.values.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            config.fail(key, f"must be a number or text, not {value!r:.60}")
    checker = _Checker(counts, nodes)
    steps = []
    for table in head.tables("steps"):
        step = _step(table)
        try:
            checker.check(step)
        except (ValueError, entities.BodyError) as error:
            table.fail(None, str(error))
        steps.append(step)
    acls = _acls(head)
    needs_authorizer = acls or any(isinstance(step, SetAcls) for step in steps)
    return Transcript(
        name=head.text("name"),
        area=head.text("area"),
        shows=head.text("shows", ""),
        settings={**(ACL_SETTINGS if needs_authorizer else {}), **config.values},
        topics=counts,
        steps=tuple(steps),
        source=source,
        nodes=nodes,
        acls=acls,
        in_order=head.flag("in_order", False),
        messages=head.flag("messages", False),
    )


def _fail(source: str, path: KeyPath, message: str) -> NoReturn:
    parts = [source]
    match path:
        case ("steps", int(place), *path_in_step):
            parts.append(f"step {place + 1}")
            path = tuple(path_in_step)
    raise TranscriptError(": ".join([*parts, *([format_path(path)] if path else []), message]))


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


_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: Mapping[str, int] = {"ALL": ALL, **Operation.__members__}
_PERMISSIONS = {"deny": PermissionType.DENY, "allow": PermissionType.ALLOW}


def _acls(owner: TableReader) -> tuple[AclEntry, ...]:
    return tuple(map(_acl, owner.tables("acls", [])))


def _acl(entry: TableReader) -> AclEntry:
    entry.expect(*_PERMISSIONS, *_RESOURCES, "principal")
    permission, resource = _one_of(entry, _PERMISSIONS), _one_of(entry, _RESOURCES)
    operation = entry.text(permission)
    entry.require_known(permission, operation, _OPERATIONS, "operation")
    principal = entry.text("principal", "User:*")
    name = entry.text(resource)
    return AclEntry(_RESOURCES[resource], name, _OPERATIONS[operation], _PERMISSIONS[permission], principal)


def _one_of(entry: TableReader, names: Iterable[str]) -> str:
    found = [name for name in names if name in entry.values]
    if len(found) != 1:
        entry.fail(None, f"must have one of {', '.join(names)}")
    return found[0]


def _send(step: TableReader) -> Send:
    connection, node = step.text("conn"), step.take("node", None)
    if node not in (None, COORDINATOR) and type(node) is not int:
        step.fail("node", f"must be a whole number or {COORDINATOR!r}, not {node!r:.60}")
    client_id = step.text("client_id", connection)
    return Send(connection, client_id, step.text("api"), step.number("version"), _body(step), node)


def _body(step: TableReader) -> dict[str, Plain]:
    return dict(step.table("body").values)


_STEPS: dict[str, Callable[[TableReader], Step]] = {
    "send": _send,
    "recv": lambda step: Receive(step.text("conn"), step.number("took_ms", 0, at_most=INT32_MAX), _body(step)),
    "quiet": lambda step: Quiet(step.text("conn"), step.number("ms", at_most=INT32_MAX)),
    "sleep": lambda step: Sleep(step.number("ms", at_most=INT32_MAX)),
    "close": lambda step: Close(step.text("conn")),
    "restart": lambda step: Restart(),
    "acls": lambda step: SetAcls(_acls(step)),
}
"""Constructor of each kind of step."""


def _step(table: TableReader) -> Step:
    do = table.text("do")
    table.require_known("do", do, _STEPS, "step")
    step = _STEPS[do](table)
    table.finish()
    return step


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
