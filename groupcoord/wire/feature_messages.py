"""Requests and responses of APIs and features, independent of version."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import define, frozen

from groupcoord.errors import ErrorCode


@define
class ApiVersions:
    """Request the served APIs (API key 18).

    Attributes:
        cluster_id, node_id: the node that the client expects (KIP-1242, version 5), both or neither. Any other node
            answers REBOOTSTRAP_REQUIRED. unsupported_version: whether the version of the request is not served. Then
            answer UNSUPPORTED_VERSION with the range of ApiVersions alone, in version 0 (KIP-511).
    """

    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1
    unsupported_version: bool = False


class ServedApi(NamedTuple):
    """An API and its served versions."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(NamedTuple):
    """A feature (KIP-584) and its supported levels."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    """A feature and the levels in use."""

    name: str
    min_version_level: int
    max_version_level: int


@frozen
class ApiVersionsResponse:
    """Served APIs and features; epoch -1: there are no finalized features."""

    error_code: ErrorCode
    api_keys: tuple[ServedApi, ...]
    supported_features: tuple[SupportedFeature, ...] = ()
    finalized_features_epoch: int = -1
    finalized_features: tuple[FinalizedFeature, ...] = ()


class UpgradeType(IntEnum):
    """Allowed change of a feature level, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and its new level. ``upgrade_type`` is an :class:`UpgradeType` or an unknown number."""

    feature: str
    max_version_level: int
    upgrade_type: int = UpgradeType.UPGRADE


@define
class UpdateFeatures:
    """Change feature levels (API key 57, KIP-584), or validate only."""

    feature_updates: tuple[FeatureUpdate, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(error_code)


class UpdatedFeature(NamedTuple):
    """Result for one feature (up to version 1)."""

    feature: str
    error_code: ErrorCode
    error_message: str | None


@frozen
class UpdateFeaturesResponse:
    """Result: all were updated, or none."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    results: tuple[UpdatedFeature, ...] = ()


FeatureRequest = ApiVersions | UpdateFeatures
FeatureResponse = ApiVersionsResponse | UpdateFeaturesResponse
