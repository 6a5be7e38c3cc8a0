"""Settings: every limit and time-out under Kafka's own key, settings of groups, and a client's properties."""

from groupcoord.config.config import (
    ASSIGNOR_CLASSES,
    SERVED_PROTOCOLS,
    Config,
    MigrationPolicy,
    RebalanceProtocol,
    key_of,
    kind_of,
    read_properties,
    suggestion,
)

__all__ = [
    "ASSIGNOR_CLASSES",
    "SERVED_PROTOCOLS",
    "Config",
    "MigrationPolicy",
    "RebalanceProtocol",
    "key_of",
    "kind_of",
    "read_properties",
    "suggestion",
]
