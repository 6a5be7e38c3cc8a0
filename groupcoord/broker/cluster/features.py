"""Features of the cluster (KIP-584), and UpdateFeatures.

Sources: ``FeatureControlManager`` of Apache Kafka 4.4 and recorded responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from groupcoord.broker.json_file import JsonFile, Place
from groupcoord.broker.work import Work
from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import served_protocols
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire.cluster_messages import (
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeatures,
    UpdateFeaturesResponse,
    UpgradeType,
)

FILE_NAME = "features.json"
CLUSTER_DENIED = "Cluster authorization failed."


NOT_WRITTEN = "The levels of features could not be written."


class Feature(NamedTuple):
    """Feature with its lowest and highest supported level, and its APIs.

    Attributes:
        level: the highest supported level; also the initial one if finalized.
        is_finalized: whether the level is announced as finalized; not so for ``kraft.version`` at 0.
        protocol: the type of groups that it enables.
    """

    name: str
    level: int
    lowest: int = 0
    is_finalized: bool = True
    protocol: GroupType | None = None
    api_keys: tuple[int, ...] = ()
    is_for_clients: bool = False

    @property
    def can_change(self) -> bool:
        return self.protocol is not None or self.is_for_clients


FEATURES = (
    Feature("group.version", 1, protocol=GroupType.CONSUMER, api_keys=(68, 69)),
    # Voters are fixed; level 0 is not announced.
    Feature("kraft.version", 1, is_finalized=False),
    # 3.3-IV3 to 4.4-IV2, from which clients infer the broker's version.
    Feature("metadata.version", 33, lowest=7),
    Feature("share.version", 2, protocol=GroupType.SHARE, api_keys=(76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92)),
    Feature("streams.version", 1, protocol=GroupType.STREAMS, api_keys=(88, 89, 93)),
    # At level 2 each transaction raises the producer epoch; producing adds partitions and committing adds groups
    # (KIP-890). At lower levels producers send AddPartitionsToTxn and AddOffsetsToTxn, and older request versions.
    Feature("transaction.version", 2, is_for_clients=True),
    # All replicas are in sync, so there are no eligible leader replicas (KIP-966).
    Feature("eligible.leader.replicas.version", 1),
)


class Features:
    """Feature levels of the cluster, stored in a file. ``epoch`` counts changes; APIs ``left_out`` are not served."""

    def __init__(self, place: Place | None = None) -> None:
        self.left_out: frozenset[GroupType] = frozenset()
        self.left_out_keys: frozenset[int] = frozenset()
        self.epoch = 0
        self._levels: dict[str, int] = {}
        self._file = JsonFile(place, FILE_NAME, "levels of features")
        self._file.read(self._parse)

    def reload(self) -> None:
        self._file.read_if_changed(self._parse)

    def _parse(self, content: dict[str, Any]) -> None:
        self._set(int(content["epoch"]), dict(content["levels"]))

    def _set(self, epoch: int, levels: dict[str, int]) -> None:
        for name, level in levels.items():
            if not isinstance(level, int):
                raise TypeError(f"{name} has level {level!r}")
        self.epoch, self._levels = epoch, levels

    def level_of(self, feature: Feature) -> int:
        usual = feature.level if feature.is_finalized else 0
        if feature.protocol in self.left_out:
            return 0
        # A file of another version may hold fixed features.
        return self._levels.get(feature.name, usual) if feature.can_change else usual

    def serves(self, feature: Feature) -> bool:
        return feature.protocol not in self.left_out

    def change(self, levels: Mapping[str, int]) -> None:
        changed = {**self._levels, **levels}
        if changed != self._levels:
            # KIP-584: by this epoch clients distinguish older levels from newer ones.
            epoch = self.epoch + 1
            self._file.write(lambda: {"epoch": epoch, "levels": changed})
            self._set(epoch, changed)

    def served_protocols(self, config: Config) -> frozenset[GroupType]:
        off = {feature.protocol for feature in FEATURES if self.level_of(feature) == 0}
        return served_protocols(config).difference(off)


def answer_update_features(
    request: UpdateFeatures, features: Features, node_id: int, permissions: Permissions = UNRESTRICTED
) -> Work[UpdateFeaturesResponse]:
    """Change all levels of a request or none."""
    if not permissions.on_cluster(Operation.ALTER):
        return UpdateFeaturesResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_DENIED)
    changing = {feature.name for feature in FEATURES if feature.can_change}
    levels: dict[str, int] = {}
    results: list[UpdatedFeature] = []
    for update in request.feature_updates:
        if results:
            yield None
        reason = _refusal(update, features, node_id)
        if reason is not None:
            whole = f"The update failed for all features since the following feature had an error: {reason}"
            return UpdateFeaturesResponse(ErrorCode.INVALID_UPDATE_VERSION, whole)
        # A fixed feature passes with the level that it has, and is not stored.
        if update.feature in changing:
            levels[update.feature] = update.max_version_level
        results.append(UpdatedFeature(update.feature, ErrorCode.NONE, "NONE"))
    if not request.validate_only:
        try:
            features.change(levels)
        except OSError:
            return UpdateFeaturesResponse(ErrorCode.KAFKA_STORAGE_ERROR, NOT_WRITTEN)
    return UpdateFeaturesResponse(results=tuple(results))


def _refusal(update: FeatureUpdate, features: Features, node_id: int) -> str | None:
    name, level, upgrade_type = update
    invalid = f"Invalid update version {level} for feature {name}."
    feature = next((feature for feature in FEATURES if feature.name == name and features.serves(feature)), None)
    # The order of checks is as recorded.
    if upgrade_type not in list(UpgradeType):
        return f"{invalid} The controller does not support the given upgrade type."
    if level < 0:
        return f"{invalid} A feature version cannot be less than 0."
    if feature is None and level == 0:
        return f"{invalid} Feature {name} not found."
    if feature is None:
        return f"{invalid} Local controller {node_id} does not support this feature."
    if not feature.lowest <= level <= feature.level:
        return f"{invalid} Local controller {node_id} only supports versions {feature.lowest}-{feature.level}"
    in_use = features.level_of(feature)
    if level < in_use and upgrade_type == UpgradeType.UPGRADE:
        return (
            f"{invalid} Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > in_use and upgrade_type != UpgradeType.UPGRADE:
        return f"{invalid} Can't downgrade to a newer version."
    if level != in_use and not feature.can_change:
        return f"{invalid} The level of this feature stays {in_use} here."
    return None
