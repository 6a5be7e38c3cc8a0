"""Users of a server that asks for a log-in, and what an administrator lets them do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from groupcoord.analysis.live.settings import ClusterAddress

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = {"admin": "admin-secret", "alice": "alice-secret"}

WITH_ACLS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
"""Settings of a server on which ``alice`` may do nothing until an ACL lets her."""

ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": USERS["admin"],
}
"""Settings of confluent-kafka with which who may do everything logs in there."""


def address_with(folder: Path, bootstrap: str, properties: Mapping[str, str]) -> ClusterAddress:
    lines = [f"{name}={value}".replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()]
    path = folder / "client.properties"
    path.write_text("\n".join([*lines, "default.api.timeout.ms=500"]))
    return ClusterAddress(bootstrap, str(path))


def log_in(module: str, mechanism: str, password: str = USERS["alice"], user: str = "alice") -> dict[str, str]:
    jaas = f'{module} required username="{user}" password="{password}";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def allow(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Allow ``alice`` an operation on a resource."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **ADMIN})
    acl = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
    admin.create_acls([acl])[acl].result(10)
