"""Settings: every limit and time-out under Kafka's own key, settings of groups, and a client's properties."""

from groupcoord.config.config import (
    ASSIGNOR_CLASSES,
    SETTINGS,
    Config,
    GroupType,
    MigrationPolicy,
    Setting,
    key_of,
    read_properties,
    suggestion,
)

__all__ = [
    "ASSIGNOR_CLASSES",
    "SETTINGS",
    "Config",
    "GroupType",
    "MigrationPolicy",
    "Setting",
    "key_of",
    "read_properties",
    "suggestion",
]
