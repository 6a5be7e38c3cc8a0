"""Features of the cluster (KIP-584): what is announced, and which levels can be changed.

Sources: ``FeatureControlManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from groupcoord.broker.json_file import DataFileError, JsonFile, Place
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


class Feature(NamedTuple):
    """A feature, and the APIs that are there with it.

    Attributes:
        level: the highest that is supported, and the one that the cluster uses to begin with.
        lowest: the lowest that is supported.
        is_finalized: the cluster says that it uses it: all but ``kraft.version`` at 0.
        protocol: the kind of groups that it is about.
        api_keys: the APIs that come with it.
        is_for_clients: its level changes what clients do, not what this server does.
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
        """True if its level decides at most whether requests of a kind of groups are served."""
        return self.protocol is not None or self.is_for_clients


FEATURES = (
    Feature("group.version", 1, protocol=GroupType.CONSUMER, api_keys=(68, 69)),
    # Voters are as they are: the level in use is 0, which is not said.
    Feature("kraft.version", 1, is_finalized=False),
    # 3.3-IV3 to 4.4-IV2. There is no log of metadata: this tells clients how new the broker is.
    Feature("metadata.version", 33, lowest=7),
    # Share groups, with queues for records that are given up (KIP-1191).
    Feature("share.version", 2, protocol=GroupType.SHARE, api_keys=(76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92)),
    Feature("streams.version", 1, protocol=GroupType.STREAMS, api_keys=(88, 89, 93)),
    # At 2 producers raise their epoch with each transaction, and add partitions by producing and groups by committing
    # (KIP-890). Below that they send AddPartitionsToTxn and AddOffsetsToTxn, in older versions of all requests.
    Feature("transaction.version", 2, is_for_clients=True),
    # All replicas are in sync, so none is left to be elected in need (KIP-966).
    Feature("eligible.leader.replicas.version", 1),
)


class FeatureFileError(DataFileError):
    """The file of features can't be read or does not hold what it should; the message names the file and the reason."""


class Features:
    """The levels that the cluster uses, kept in a file: those of kinds of groups and of transactions can be changed.

    Args:
        place: where ``features.json`` lies or will lie; None keeps them in memory.

    Attributes:
        epoch: how often levels have changed.
        left_out: kinds of groups that this server can't have, whatever the levels are.
        left_out_keys: APIs that it doesn't have besides.

    Raises:
        FeatureFileError: the file is there but can't be read or does not hold levels of features.
    """

    def __init__(self, place: Place | None = None) -> None:
        self.left_out: frozenset[GroupType] = frozenset()
        self.left_out_keys: frozenset[int] = frozenset()
        self.epoch = 0
        self._levels: dict[str, int] = {}
        self._file = JsonFile(place, FILE_NAME, "levels of features", FeatureFileError)
        self._file.read(self._parse)

    def reload(self) -> None:
        """Read the file again if another process has written it.

        Raises:
            FeatureFileError: it can't be read.
        """
        self._file.read_if_changed(self._parse)

    def _parse(self, content: dict[str, Any]) -> None:
        self._set(int(content["epoch"]), dict(content["levels"]))

    def _set(self, epoch: int, levels: dict[str, int]) -> None:
        for name, level in levels.items():
            if not isinstance(level, int):
                raise TypeError(f"{name} has level {level!r}")
        self.epoch, self._levels = epoch, levels

    def level_of(self, feature: Feature) -> int:
        """Return the level that is in use."""
        usual = feature.level if feature.is_finalized else 0
        if feature.protocol in self.left_out:
            return 0
        return self._levels.get(feature.name, usual) if feature.can_change else usual

    def serves(self, feature: Feature) -> bool:
        """Tell whether there is a feature here."""
        return feature.protocol not in self.left_out

    def change(self, levels: Mapping[str, int]) -> None:
        """Use other levels from now on.

        Raises:
            OSError: the file can't be written; nothing has changed then.
        """
        changed = {**self._levels, **levels}
        if changed != self._levels:
            epoch = self.epoch + 1
            self._file.write(lambda: {"epoch": epoch, "levels": changed})
            self._set(epoch, changed)

    def served_protocols(self, config: Config) -> frozenset[GroupType]:
        """Return the kinds of groups whose requests are served: neither settings nor features leave them out."""
        off = {feature.protocol for feature in FEATURES if self.level_of(feature) == 0}
        return served_protocols(config).difference(off)


def answer_update_features(
    request: UpdateFeatures, features: Features, node_id: int, permissions: Permissions = UNRESTRICTED
) -> Work[UpdateFeaturesResponse]:
    """Change levels that can change, and accept the present level of the others: all that is asked for, or nothing."""
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
        if update.feature in changing:
            levels[update.feature] = update.max_version_level
        results.append(UpdatedFeature(update.feature, ErrorCode.NONE, "NONE"))
    if not request.validate_only:
        features.change(levels)
    return UpdateFeaturesResponse(results=tuple(results))


def _refusal(update: FeatureUpdate, features: Features, node_id: int) -> str | None:
    name, level, upgrade_type = update
    invalid = f"Invalid update version {level} for feature {name}."
    feature = next((feature for feature in FEATURES if feature.name == name and features.serves(feature)), None)
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
