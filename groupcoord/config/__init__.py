"""Settings: every limit and time-out under Kafka's own key, settings of groups, and a client's properties."""

from groupcoord.config.config import (
    ASSIGNOR_CLASSES as ASSIGNOR_CLASSES,
    SETTINGS as SETTINGS,
    Config as Config,
    GroupType as GroupType,
    MigrationPolicy as MigrationPolicy,
    Setting as Setting,
    key_of as key_of,
    read_properties as read_properties,
    suggestion as suggestion,
)
