"""Features of the cluster (KIP-584): what is announced, and that no level can be changed.

Sources: ``FeatureControlManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from typing import NamedTuple

from groupcoord.config import SERVED_PROTOCOLS, RebalanceProtocol
from groupcoord.core.front.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire.feature_messages import (
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeatures,
    UpdateFeaturesResponse,
    UpgradeType,
)
from groupcoord.wire.pacing import paced

CLUSTER_DENIED = "Cluster authorization failed."


class Feature(NamedTuple):
    """A feature, and the APIs that are there with it.

    Attributes:
        level: the highest that is supported, and the one that the cluster uses.
        lowest: the lowest that is supported.
        is_finalized: the cluster says that it uses it: all but ``kraft.version`` at 0.
        protocol: the kind of groups that it is about.
    """

    name: str
    level: int
    lowest: int = 0
    is_finalized: bool = True
    protocol: RebalanceProtocol | None = None
    api_keys: tuple[int, ...] = ()

    @property
    def is_served(self) -> bool:
        """True unless it is about groups of a kind that isn't served."""
        return self.protocol is None or self.protocol in SERVED_PROTOCOLS


FEATURES = (
    Feature("group.version", 1, protocol=RebalanceProtocol.CONSUMER, api_keys=(68, 69)),
    # Voters are as they are: the level in use is 0, which is not said.
    Feature("kraft.version", 1, is_finalized=False),
    # 3.3-IV3 to 4.4-IV2. There is no log of metadata: this tells clients how new the broker is.
    Feature("metadata.version", 33, lowest=7),
    Feature("streams.version", 1, protocol=RebalanceProtocol.STREAMS, api_keys=(88, 89, 93)),
    # Producers that know it raise their epoch with each transaction, and add groups by committing offsets (KIP-890).
    Feature("transaction.version", 2),
    # All replicas are in sync, so none is left to be elected in need (KIP-966).
    Feature("eligible.leader.replicas.version", 1),
)


def answer_update_features(
    request: UpdateFeatures, node_id: int, permissions: Permissions = UNRESTRICTED
) -> UpdateFeaturesResponse:
    """Let features have the levels that they have, and refuse all others: all that is asked for, or nothing."""
    if not permissions.on_cluster(Operation.ALTER):
        return UpdateFeaturesResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_DENIED)
    for update in paced(request.feature_updates):
        reason = _refusal(update, node_id)
        if reason is not None:
            whole = f"The update failed for all features since the following feature had an error: {reason}"
            return UpdateFeaturesResponse(ErrorCode.INVALID_UPDATE_VERSION, whole)
    updates = paced(request.feature_updates)
    return UpdateFeaturesResponse(
        results=tuple(UpdatedFeature(update.feature, ErrorCode.NONE, "NONE") for update in updates)
    )


def _refusal(update: FeatureUpdate, node_id: int) -> str | None:
    name, level, upgrade_type = update
    invalid = f"Invalid update version {level} for feature {name}."
    feature = next((feature for feature in FEATURES if feature.name == name and feature.is_served), None)
    if upgrade_type not in list(UpgradeType):
        return f"{invalid} The controller does not support the given upgrade type."
    if level < 0:
        return f"{invalid} A feature version cannot be less than 0."
    if feature is None:
        return f"{invalid} Local controller {node_id} does not support this feature."
    if not feature.lowest <= level <= feature.level:
        return f"{invalid} Local controller {node_id} only supports versions {feature.lowest}-{feature.level}"
    in_use = feature.level if feature.is_finalized else 0
    if level < in_use and upgrade_type == UpgradeType.UPGRADE:
        return (
            f"{invalid} Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    return None if level == in_use else f"{invalid} The level of this feature stays {in_use} here."
