"""How to reach a cluster: the settings of Kafka's own clients, from a file of properties or the environment.

Names and meanings are those of Kafka's ``CommonClientConfigs``, ``SaslConfigs`` and ``SslConfigs``; certificates and
keys are PEM (KIP-651). Whoever is handed a :class:`ClusterAddress` reads the secrets where they are: it holds none.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import field, frozen

from groupcoord.columns.errors import InputError

ENVIRONMENT_PREFIX = "KAFKA_CLIENT_"
"""``KAFKA_CLIENT_SASL_JAAS_CONFIG`` in the environment is the setting ``sasl.jaas.config``."""

BOOTSTRAP_SERVERS = "bootstrap.servers"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECRETS = ("sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "ssl.keystore.password")
"""Settings that nobody may see."""

_DEFAULTS = {
    BOOTSTRAP_SERVERS: "",
    "security.protocol": "PLAINTEXT",
    "sasl.mechanism": "GSSAPI",
    "sasl.jaas.config": "",
    "ssl.truststore.type": "JKS",
    "ssl.truststore.location": "",
    "ssl.truststore.certificates": "",
    "ssl.keystore.type": "JKS",
    "ssl.keystore.location": "",
    "ssl.keystore.certificate.chain": "",
    "ssl.keystore.key": "",
    "ssl.key.password": "",
    "ssl.keystore.password": "",
    "ssl.truststore.password": "",
    "ssl.endpoint.identification.algorithm": "https",
    "client.id": "groupcoord",
    "request.timeout.ms": "30000",
    "default.api.timeout.ms": "60000",
    "retry.backoff.ms": "100",
    "metadata.max.age.ms": "300000",
}
"""All settings that are known, with Kafka's defaults."""

_MUST_BE_KNOWN = ("sasl.", "ssl.", "security.")
_CONTINUED = re.compile(r"(?<!\\)(\\\\)*\\$")
_PROPERTY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LOGIN_OPTION = re.compile(r"""(\w+)\s*=\s*("(?:\\.|[^"\\])*"|[^\s;]+)""")

log = logging.getLogger(__name__)


@frozen
class ClusterAddress:
    """Where a cluster is, and where it says how to log in: what may be written into plans and logs.

    Attributes:
        bootstrap_servers: ``HOST:PORT`` with commas between; empty: as the file or the environment says.
        command_config: the path of a file of properties, as Kafka's commands take it; None: the environment alone.
    """

    bootstrap_servers: str = ""
    command_config: str | None = None

    def settings(self) -> ClientSettings:
        """Return the settings, read anew.

        Raises:
            InputError: the file can't be read, or a setting is wrong.
        """
        given = dict(_of_environment(os.environ))
        if self.command_config is not None:
            try:
                text = Path(self.command_config).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise InputError(f"{self.command_config}: {reason}") from None
            given |= parse_properties(text)
        if self.bootstrap_servers:
            given[BOOTSTRAP_SERVERS] = self.bootstrap_servers
        return client_settings(given)


def cluster_address(bootstrap_servers: str, command_config: str | os.PathLike[str] | None) -> ClusterAddress:
    """Return where a cluster is, with the whole path of the file: other processes work in other directories."""
    return ClusterAddress(bootstrap_servers, None if command_config is None else os.path.abspath(command_config))


@frozen
class ClientSettings:
    """Settings of a client, checked.

    Attributes:
        bootstrap_servers: ``HOST:PORT`` with commas between.
        security_protocol: one of :data:`PROTOCOLS`.
        sasl_mechanism: one of :data:`MECHANISMS`; goes with the protocols of SASL.
        username: who logs in.
        password: the user's.
        client_id: what requests say that they come from.
        request_timeout_ms: how long one request may take.
        default_api_timeout_ms: how long to keep at it without getting any further.
        retry_backoff_ms: how long to wait between two attempts.
        metadata_max_age_ms: how old what is known of leaders may be.
        tls: the settings of certificates and keys.
    """

    bootstrap_servers: str
    security_protocol: str
    sasl_mechanism: str
    username: str = field(repr=False)
    password: str = field(repr=False)
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    metadata_max_age_ms: int
    tls: Mapping[str, str] = field(repr=False)

    @property
    def uses_sasl(self) -> bool:
        """Whether a client logs in."""
        return self.security_protocol.startswith("SASL_")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return what handshakes begin with; None without TLS.

        Raises:
            InputError: certificates or keys can't be read or don't belong together.
        """
        if not self.security_protocol.endswith("SSL"):
            return None
        try:
            context = ssl.create_default_context(
                cafile=self.tls["ssl.truststore.location"] or None,
                cadata=self.tls["ssl.truststore.certificates"] or None,
            )
            self._load_identity(context)
        except (OSError, ValueError) as error:  # of which ssl.SSLError is one
            raise InputError(f"settings ssl.truststore…, ssl.keystore…: {error}") from None
        context.check_hostname = bool(self.tls["ssl.endpoint.identification.algorithm"])
        return context

    def _load_identity(self, context: ssl.SSLContext) -> None:
        password = self.tls["ssl.key.password"] or self.tls["ssl.keystore.password"]
        # Without a password, OpenSSL would ask for one on the terminal.
        if location := self.tls["ssl.keystore.location"]:
            context.load_cert_chain(location, password=password)
        elif self.tls["ssl.keystore.key"]:
            with tempfile.TemporaryDirectory() as folder:  # the ssl module reads keys from files only
                path = Path(folder, "key.pem")
                path.touch(mode=0o600)
                path.write_text(f"{self.tls['ssl.keystore.key']}\n{self.tls['ssl.keystore.certificate.chain']}\n")
                context.load_cert_chain(path, password=password)


def parse_properties(text: str) -> dict[str, str]:
    """Return what a file of Java properties says: ``key=value`` lines, comments, escapes, lines that go on."""
    found = {}
    for line in _logical_lines(text):
        key, value = _PROPERTY.fullmatch(line).groups()  # type: ignore[union-attr]  # it matches any text
        found[_unescaped(key)] = _unescaped(value)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    before = ""
    for line in text.splitlines():
        part = line.lstrip()
        if not before and (not part or part[0] in "#!"):
            continue
        before += part
        if _CONTINUED.search(before):
            before = before[:-1]
        else:
            yield before
            before = ""
    if before:
        yield before


def _unescaped(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        name = match[1]
        return chr(int(name[1:], 16)) if len(name) > 1 else _ESCAPED.get(name, name)

    return _ESCAPE.sub(meant, text)


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            yield name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."), value


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """Return settings out of properties. What does not say how to connect is passed over, with a line in the log.

    Raises:
        InputError: a setting is missing, wrong, or one of security that isn't supported.
    """
    for name in sorted(set(given) - set(_DEFAULTS)):
        if name.startswith(_MUST_BE_KNOWN):
            raise InputError(f"setting {name} is not supported; there are {', '.join(sorted(_DEFAULTS))}")
        log.warning("setting %s is not used", name)
    values = {name: given.get(name, default).strip() for name, default in _DEFAULTS.items()}
    protocol = _one_of("security.protocol", values, PROTOCOLS)
    if not values[BOOTSTRAP_SERVERS]:
        raise InputError(f"setting {BOOTSTRAP_SERVERS} is missing: HOST:PORT, with commas between several")
    mechanism = username = password = ""
    if protocol.startswith("SASL_"):
        mechanism = _one_of("sasl.mechanism", values, MECHANISMS)
        username, password = _login(values["sasl.jaas.config"], mechanism)
    if protocol.endswith("SSL"):
        _check_stores(values)
    return ClientSettings(
        values[BOOTSTRAP_SERVERS],
        protocol,
        mechanism,
        username,
        password,
        values["client.id"],
        _number("request.timeout.ms", values),
        _number("default.api.timeout.ms", values),
        _number("retry.backoff.ms", values),
        _number("metadata.max.age.ms", values),
        {name: value for name, value in values.items() if name.startswith("ssl.")},
    )


def _one_of(name: str, values: Mapping[str, str], choices: tuple[str, ...]) -> str:
    if values[name] not in choices:
        raise InputError(f"setting {name}: {values[name]} is not supported; there are {', '.join(choices)}")
    return values[name]


def _number(name: str, values: Mapping[str, str]) -> int:
    if not values[name].isdecimal() or not int(values[name]):
        raise InputError(f"setting {name}: {values[name]} is no number of 1 or more")
    return int(values[name])


def _login(jaas: str, mechanism: str) -> tuple[str, str]:
    """Return name and password out of ``sasl.jaas.config``."""
    module, _, options = jaas.partition(" ")
    expected = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    if module.rpartition(".")[2] != expected:
        raise InputError(f"setting sasl.jaas.config: {mechanism} needs one with {expected}")
    found = {match[1]: _unquoted(match[2]) for match in _LOGIN_OPTION.finditer(options)}
    missing = [name for name in ("username", "password") if name not in found]
    if missing:
        raise InputError(f"setting sasl.jaas.config: {missing[0]} is missing")
    return found["username"], found["password"]


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _check_stores(values: Mapping[str, str]) -> None:
    """Refuse stores of certificates in Java's own forms."""
    for store in ("truststore", "keystore"):
        if values[f"ssl.{store}.location"] and values[f"ssl.{store}.type"] != "PEM":
            kind = values[f"ssl.{store}.type"]
            raise InputError(f"setting ssl.{store}.type: {kind} can't be read; make it a PEM file, and this PEM")
    if bool(values["ssl.keystore.key"]) != bool(values["ssl.keystore.certificate.chain"]):
        raise InputError("settings ssl.keystore.key and ssl.keystore.certificate.chain go together")
