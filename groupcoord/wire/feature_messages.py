"""Requests and responses about what a server has: APIs, and features of the cluster. No bytes, no versions."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import define, frozen

from groupcoord.errors import ErrorCode


@define
class ApiVersions:
    """Ask which APIs are served (API key 18).

    Attributes:
        cluster_id, node_id: whom the client means to talk to (KIP-1242, version 5): both or neither. A host that is
            not the one answers REBOOTSTRAP_REQUIRED. unsupported_version: the request has a version that is not
            served. Answer UNSUPPORTED_VERSION with ApiVersions' own range and nothing else; the answer is written in
            version 0 (KIP-511).
    """

    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1
    unsupported_version: bool = False


class ServedApi(NamedTuple):
    """An API and the versions of it that are served."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(NamedTuple):
    """A feature (KIP-584) and the levels that are supported."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    """A feature and the levels that the cluster uses."""

    name: str
    min_version_level: int
    max_version_level: int


@frozen
class ApiVersionsResponse:
    """What is served; epoch -1: there are no finalized features."""

    error_code: ErrorCode
    api_keys: tuple[ServedApi, ...]
    supported_features: tuple[SupportedFeature, ...] = ()
    finalized_features_epoch: int = -1
    finalized_features: tuple[FinalizedFeature, ...] = ()


class UpgradeType(IntEnum):
    """What a new level of a feature may do, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature, and the level that the cluster shall use. ``upgrade_type``: an :class:`UpgradeType`, or unknown."""

    feature: str
    max_version_level: int
    upgrade_type: int = UpgradeType.UPGRADE


@define
class UpdateFeatures:
    """Change the levels of features (API key 57, KIP-584), or only say what would happen."""

    feature_updates: tuple[FeatureUpdate, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(error_code)


class UpdatedFeature(NamedTuple):
    """What became of one feature (versions to 1)."""

    feature: str
    error_code: ErrorCode
    error_message: str | None


@frozen
class UpdateFeaturesResponse:
    """All were updated, or none."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    results: tuple[UpdatedFeature, ...] = ()


FeatureRequest = ApiVersions | UpdateFeatures
FeatureResponse = ApiVersionsResponse | UpdateFeaturesResponse
