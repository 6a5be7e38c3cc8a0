"""Client quotas, stored and described but not enforced.

Sources: ``ClientQuotaControlManager`` and ``ClientQuotaCache`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from groupcoord.broker.json_file import Document, JsonFile, Place
from groupcoord.broker.work import Work, each
from groupcoord.config.settings import INT32_MAX, INT64_MAX
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.wire.config_messages import (
    AlterClientQuotas,
    AlterClientQuotasResponse,
    AlteredQuotas,
    DescribeClientQuotas,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    QuotaComponent,
    QuotaEntity,
    QuotaMatch,
    QuotaOperation,
    QuotasToAlter,
    QuotaValue,
)

FILE_NAME = "quotas.json"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)
ENTITIES_MAX = 10_000
NOT_WRITTEN = "The quotas could not be written."
TOO_MANY = f"No more than {ENTITIES_MAX} entities can have quotas"

Entity = Mapping[str, str | None]
"""Names by entity type; None stands for the default entity."""

_Key = tuple[tuple[str, str | None], ...]
_Limits = dict[str, float]
_Change = dict[str, float | None]

_WHOLE_AT_MOST = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "connection_creation_rate": INT32_MAX,
}
_LIMITS = frozenset(("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"))
_LIMITS_OF_IPS = frozenset(("connection_creation_rate",))
_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.?|[0-9A-Fa-f:.]{2,45}")
"""Syntax of addresses and host names, which are not resolved."""


class _QuotaError(GroupcoordError):
    """Invalid change, with the message of the response."""


class Quotas(Document):
    """Client quotas by entity."""

    def __init__(self, place: Place | None = None) -> None:
        self._limits: dict[_Key, _Limits] = {}
        super().__init__(JsonFile(place, FILE_NAME, "quotas"))

    def _load(self, content: dict[str, Any]) -> None:
        self._limits = {
            _key_of({str(kind): name for kind, name in entry["entity"].items()}): {
                str(key): float(value) for key, value in entry["limits"].items()
            }
            for entry in content["quotas"]
        }

    def answer_describe(self, request: DescribeClientQuotas) -> Work[DescribeClientQuotasResponse]:
        """Return the quotas of matching entities; ``strict`` excludes those with further parts."""
        seen: set[str] = set()
        for component in request.components:
            if seen:
                yield None
            refusal = _component_refusal(component, seen)
            if refusal is not None:
                return refusal
            seen.add(component.entity_type)
        # After the components themselves, as recorded.
        if IP in seen and len(seen) > 1:
            message = (
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )
            return DescribeClientQuotasResponse(ErrorCode.INVALID_REQUEST, message)
        # As recorded: no entity has no parts.
        if request.strict and not request.components:
            return DescribeClientQuotasResponse(ErrorCode.NONE, "", ())

        def describe(entry: tuple[_Key, _Limits]) -> DescribedQuotas | None:
            entity, limits = entry
            if not _matches(dict(entity), request):
                return None
            parts = tuple(QuotaEntity(*part) for part in entity)
            return DescribedQuotas(parts, tuple(QuotaValue(*limit) for limit in limits.items()))

        found = yield from each(list(self._limits.items()), describe)
        return DescribeClientQuotasResponse(ErrorCode.NONE, "", tuple(filter(None, found)))

    def answer_alter(self, request: AlterClientQuotas) -> Work[AlterClientQuotasResponse]:
        """Change all limits of an entity or none. Of a repeated entity the first change is made, and reported as a
        duplicate.
        """
        # Applied at the end: work yields between two entries, and others may change the quotas.
        changes: dict[_Key, _Change] = {}
        refused: dict[_Key, str] = {}
        keys: dict[_Key, None] = {}
        for entry in request.entries:
            if keys:
                yield None
            entity = {part.entity_type: part.entity_name for part in entry.entity}
            key = _key_of(entity)
            try:
                # ClientQuotaControlManager reports the entity as its Java class prints it.
                is_repeated = key in changes or key in refused
                if is_repeated or len({operation.key for operation in entry.ops}) < len(entry.ops):
                    text = ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity.items())
                    raise _QuotaError(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{text}}})")
                if len(changes) >= ENTITIES_MAX:
                    raise _QuotaError(TOO_MANY)
                changes[key] = _checked_change(entity, entry)
            except _QuotaError as error:
                refused[key] = str(error)
            keys[key] = None
        if not request.validate_only:
            refused |= self._apply(changes)

        def result(key: _Key) -> AlteredQuotas:
            error_code = ErrorCode.INVALID_REQUEST if key in refused else ErrorCode.NONE
            return AlteredQuotas(error_code, refused.get(key), tuple(QuotaEntity(*part) for part in key))

        # One result per entity, refusals first.
        return AlterClientQuotasResponse((yield from each(sorted(keys, key=lambda key: key not in refused), result)))

    def _apply(self, changes: Mapping[_Key, _Change]) -> dict[_Key, str]:
        limits, refused = dict(self._limits), {}
        for key, change in changes.items():
            # A bound that Kafka does not have.
            if key not in limits and len(limits) >= ENTITIES_MAX:
                refused[key] = TOO_MANY
                continue
            changed = {**limits.get(key, {}), **change}
            kept = {name: value for name, value in changed.items() if value is not None}
            if kept:
                limits[key] = kept
            else:
                limits.pop(key, None)
        try:
            self._write(limits)
        except OSError:
            return dict.fromkeys(changes, NOT_WRITTEN)
        return refused

    def _write(self, limits: dict[_Key, _Limits]) -> None:
        # Requests that change nothing need no writable disk.
        if limits != self._limits:
            self.file.write(lambda: {"quotas": [{"entity": dict(key), "limits": it} for key, it in limits.items()]})
            self._limits = limits


def _checked_change(entity: Entity, entry: QuotasToAlter) -> _Change:
    known = _check_entity(entity)
    return {
        operation.key: None if operation.remove else _checked(operation, known)
        for operation in entry.ops
        # As recorded, unknown limits can be removed.
        if not operation.remove or operation.key in known
    }


def _key_of(entity: Entity) -> _Key:
    return tuple(sorted(entity.items(), key=lambda part: part[0]))


def _check_entity(entity: Entity) -> frozenset[str]:
    """Return the names of limits that an entity can have."""
    if not entity:
        raise _QuotaError("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in TYPES:
            raise _QuotaError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _QuotaError(f"Empty {kind} not supported")
    # KIP-612: addresses have limits of their kind, and are not combined with users.
    if IP not in entity:
        return _LIMITS
    if len(entity) > 1:
        raise _QuotaError("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = entity[IP]
    if address is not None and not _HOST.fullmatch(address):
        raise _QuotaError(f"{address} is not a valid IP or resolvable host.")
    return _LIMITS_OF_IPS


def _checked(operation: QuotaOperation, known: frozenset[str]) -> float:
    key, value, _ = operation
    if key not in known:
        raise _QuotaError(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise _QuotaError(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _QuotaError(f"Quota {key} must be greater than 0")
    # Kafka keeps these as LONG or INT, all limits are sent as doubles.
    at_most = _WHOLE_AT_MOST.get(key)
    if at_most is not None and value > at_most:
        raise _QuotaError(f"Proposed value for {key} is too large for {'a LONG' if at_most > INT32_MAX else 'an INT'}.")
    if at_most is not None and value != int(value):
        raise _QuotaError(f"{key} cannot be a fractional value.")
    return value


def _matches(entity: Entity, request: DescribeClientQuotas) -> bool:
    # KIP-546.
    if request.strict and len(entity) != len(request.components):
        return False
    for entity_type, match_type, match in request.components:
        if entity_type not in entity:
            return False
        if match_type != QuotaMatch.SPECIFIED and entity[entity_type] != match:
            return False
    return True


def _component_refusal(component: QuotaComponent, seen: set[str]) -> DescribeClientQuotasResponse | None:
    entity_type, match_type, match = component
    error_code, message = ErrorCode.INVALID_REQUEST, None
    if not entity_type:
        message = "Invalid empty entity type."
    elif entity_type in seen:
        message = f"Entity type {entity_type} cannot appear more than once in the filter."
    elif entity_type not in TYPES:
        error_code, message = ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}"
    elif match_type == QuotaMatch.EXACT and match is None:
        message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif match_type in (QuotaMatch.DEFAULT, QuotaMatch.SPECIFIED) and match is not None:
        message = f"Request specified MATCH_TYPE_{QuotaMatch(match_type).name}, but also specified a match string."
    elif match_type not in list(QuotaMatch):
        message = f"Unknown match type {match_type}"
    return None if message is None else DescribeClientQuotasResponse(error_code, message)
