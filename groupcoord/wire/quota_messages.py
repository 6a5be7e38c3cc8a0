"""Client quota requests and responses (KIP-546), independent of version."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import define, frozen

from groupcoord.errors import ErrorCode


class QuotaMatch(IntEnum):
    """How the name of a quota entity is matched, by Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class QuotaComponent(NamedTuple):
    """One component of a quota filter; ``match_type`` is a :class:`QuotaMatch` or an unknown number."""

    entity_type: str
    match_type: int
    match: str | None


@define
class DescribeClientQuotas:
    """Request quotas (API key 48, KIP-546)."""

    components: tuple[QuotaComponent, ...]
    strict: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DescribeClientQuotasResponse:
        return DescribeClientQuotasResponse(error_code)


class QuotaEntity(NamedTuple):
    """Entity of a quota or one part of it; ``entity_name`` None is the default entity."""

    entity_type: str
    entity_name: str | None


class QuotaValue(NamedTuple):
    """One limit."""

    key: str
    value: float


class DescribedQuotas(NamedTuple):
    """The limits of one entity."""

    entity: tuple[QuotaEntity, ...]
    values: tuple[QuotaValue, ...]


@frozen
class DescribeClientQuotasResponse:
    """The quotas, or None with an error."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    entries: tuple[DescribedQuotas, ...] | None = None


class QuotaOperation(NamedTuple):
    """A limit to set, or to remove."""

    key: str
    value: float
    remove: bool


class QuotasToAlter(NamedTuple):
    """One entity and the changes of its limits."""

    entity: tuple[QuotaEntity, ...]
    ops: tuple[QuotaOperation, ...]


@define
class AlterClientQuotas:
    """Change quotas (API key 49), or validate only."""

    entries: tuple[QuotasToAlter, ...]
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> AlterClientQuotasResponse:
        return AlterClientQuotasResponse(
            tuple([AlteredQuotas(error_code, message, entry.entity) for entry in self.entries])
        )


class AlteredQuotas(NamedTuple):
    """Result for one entity."""

    error_code: ErrorCode
    error_message: str | None
    entity: tuple[QuotaEntity, ...]


@frozen
class AlterClientQuotasResponse:
    """One entry for each entity."""

    entries: tuple[AlteredQuotas, ...]


QuotaRequest = DescribeClientQuotas | AlterClientQuotas
QuotaResponse = DescribeClientQuotasResponse | AlterClientQuotasResponse
