"""Client properties: the file of ``--command-config`` with the address of a cluster, TLS and SASL.

Known keys are ``bootstrap.servers``, ``client.id``, ``security.protocol``, ``sasl.*`` and ``ssl.*``, also under
librdkafka's names (``sasl.username``, ``ssl.ca.location`` …). Certificates and keys are PEM (KIP-651), as files or as
text. Keys without effect, such as ``acks``, are kept in ``unused_keys``.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from attrs import field, fields, frozen

from groupcoord.config.config import key_of, suggestion
from groupcoord.config.files import load_identity, read_text
from groupcoord.errors import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
MECHANISMS = ("OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_DEFAULT_PORT = 9092
_ONE_HOUR_S = 3600

_NAMES_OF_LIBRDKAFKA = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""Kafka's keys by librdkafka's, where the two differ."""

_NO_JAVA = "it names a class of Java, which can't be run here"
_REFUSED = {
    "config.providers": "config providers are not supported; write the values into the file",
    "sasl.client.callback.handler.class": _NO_JAVA,
    "sasl.login.callback.handler.class": _NO_JAVA,
    "sasl.login.class": _NO_JAVA,
    "sasl.oauthbearer.token.endpoint.url": "tokens are not fetched; put one into sasl.jaas.config or log in otherwise",
    "security.providers": _NO_JAVA,
    "ssl.engine.factory.class": _NO_JAVA,
    "ssl.provider": _NO_JAVA,
}
"""Unsupported keys that affect how a client connects or logs in, each with the reason."""

_WITHOUT_EFFECT = re.compile(
    r"sasl\.(kerberos|login|oauthbearer)\..*"
    r"|ssl\.(protocol|cipher\.suites|(key|trust)manager\.algorithm|secure\.random\.implementation|truststore\.password)"
)
"""Accepted keys without effect, including those of unsupported mechanisms."""

_JAAS = re.compile(r"(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);", re.S)
_JAAS_OPTION = re.compile(r"\s*([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))")
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": MECHANISMS[2:],
    "OAuthBearerLoginModule": MECHANISMS[:1],
}
"""SASL mechanisms by JAAS login module."""


class Address(NamedTuple):
    """Host and port of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _text(default: str = "", *, is_secret: bool = False) -> Any:
    return field(default=default, repr=not is_secret, metadata={"is_setting": True})


@frozen
class ClientProperties:
    """Connection settings of a client. Secrets are neither in its ``repr`` nor in messages.

    Attributes are the keys of a properties file with underscores for dots.

    Raises:
        ConfigError: a value is not allowed, or a required one is missing.
    """

    bootstrap_servers: str = _text()
    client_id: str = _text()
    security_protocol: str = _text("PLAINTEXT")
    sasl_mechanism: str = _text()
    sasl_jaas_config: str = _text(is_secret=True)
    sasl_username: str = _text()
    sasl_password: str = _text(is_secret=True)
    ssl_truststore_type: str = _text("PEM")
    ssl_truststore_location: str = _text()
    ssl_truststore_certificates: str = _text()
    ssl_keystore_type: str = _text("PEM")
    ssl_keystore_location: str = _text()
    ssl_keystore_password: str = _text(is_secret=True)
    ssl_keystore_certificate_chain: str = _text()
    ssl_keystore_key: str = _text(is_secret=True)
    ssl_certificate_location: str = _text()
    ssl_key_location: str = _text()
    ssl_key_password: str = _text(is_secret=True)
    ssl_enabled_protocols: str = _text("TLSv1.2,TLSv1.3")
    ssl_endpoint_identification_algorithm: str = _text("https")
    unused_keys: tuple[str, ...] = ()
    """Given keys without effect, sorted."""

    def __attrs_post_init__(self) -> None:
        _check_choice("security.protocol", self.security_protocol, SECURITY_PROTOCOLS)
        if self.uses_sasl:
            if not self.sasl_mechanism:
                raise ConfigError(f"'sasl.mechanism' is missing: one of {', '.join(MECHANISMS)}")
            _check_choice("sasl.mechanism", self.sasl_mechanism, MECHANISMS)
            _ = self.credentials  # raises ConfigError
        for key, kind in (("ssl.truststore", self.ssl_truststore_type), ("ssl.keystore", self.ssl_keystore_type)):
            if kind != "PEM":
                _refuse(f"{key}.type", f"of type {kind} can't be read; write the store as PEM: {_to_pem(key)}")
        for version in self._tls_versions():
            _check_choice("ssl.enabled.protocols", version, tuple(_TLS_VERSIONS))
        algorithm = self.ssl_endpoint_identification_algorithm
        _check_choice("ssl.endpoint.identification.algorithm", algorithm.lower(), ("", "https", "none"))
        _ = self.addresses  # raises ConfigError

    @classmethod
    def load(cls, path: str | Path) -> ClientProperties:
        """Read a properties file, as Java reads one.

        Raises:
            ConfigError: the file can't be read, or see :meth:`from_mapping`.
        """
        values = read_properties(path)
        try:
            return cls.from_mapping(values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def from_mapping(cls, properties: Mapping[str, str]) -> ClientProperties:
        """Return the properties of keys and values as in a properties file.

        Raises:
            ConfigError: a key of ``sasl.*``, ``ssl.*`` or ``security.*`` is unknown or unsupported, a key is given in
                two spellings, or a value is not allowed.
        """
        known = {attribute.name for attribute in fields(cls) if attribute.metadata.get("is_setting")}
        values: dict[str, str] = {}
        unused = []
        for key, value in by_names_of_kafka(properties).items():
            name = key.replace(".", "_")
            if "." in key and name in known:
                _check_plain(key, value)
                values[name] = value.strip()
            elif reason := _REFUSED.get(key):
                _refuse(key, f"can't be followed: {reason}")
            elif key.startswith(("sasl.", "ssl.", "security.")) and not _WITHOUT_EFFECT.fullmatch(key):
                raise ConfigError(f"unknown key {key!r}{suggestion(name, known)}")
            else:
                unused.append(key)
        return cls(**values, unused_keys=tuple(sorted(unused)))

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """True if clients log in."""
        return self.security_protocol.startswith("SASL_")

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of brokers in the order of ``bootstrap.servers``; empty if that is missing."""
        texts = [text.strip() for text in self.bootstrap_servers.split(",")]
        return tuple(parse_address(text) for text in texts if text)

    @property
    def credentials(self) -> Credentials:
        """User and secret.

        Raises:
            ConfigError: they are missing, or belong to another mechanism.
        """
        if self.sasl_jaas_config:
            return _read_jaas(self.sasl_jaas_config, self.sasl_mechanism)
        if not self.sasl_username or self.sasl_mechanism == "OAUTHBEARER":
            raise ConfigError(f"'sasl.jaas.config' is missing: how to log in by {self.sasl_mechanism}")
        return Credentials(self.sasl_username, self.sasl_password)

    @property
    def checks_host_name(self) -> bool:
        """True if a broker's certificate must be for the host of the connection."""
        return self.ssl_endpoint_identification_algorithm.lower() == "https"

    def tls_context(self) -> ssl.SSLContext:
        """Return the context for TLS handshakes.

        Raises:
            ConfigError: certificates or keys can't be read, or do not match.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_host_name
        versions = [_TLS_VERSIONS[name] for name in self._tls_versions()]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        try:
            self._load_trust(context)
        except (OSError, ValueError) as error:  # of which ssl.SSLError is one
            raise ConfigError(f"'ssl.truststore…' can't be read as PEM: {_reason(error)}") from None
        try:
            self._load_identity(context)
        except (OSError, ValueError) as error:
            raise ConfigError(f"'ssl.keystore…' can't be read as PEM: {_reason(error)}") from None
        return context

    def _load_trust(self, context: ssl.SSLContext) -> None:
        if self.ssl_truststore_location:
            context.load_verify_locations(self.ssl_truststore_location)
        elif self.ssl_truststore_certificates:
            context.load_verify_locations(cadata=self.ssl_truststore_certificates)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)

    def _load_identity(self, context: ssl.SSLContext) -> None:
        # An empty password avoids a prompt.
        password = self.ssl_key_password or self.ssl_keystore_password
        if certificate := self.ssl_keystore_location or self.ssl_certificate_location:
            context.load_cert_chain(certificate, self.ssl_key_location or None, password)
        elif self.ssl_keystore_certificate_chain or self.ssl_keystore_key:
            load_identity(context, self.ssl_keystore_key, self.ssl_keystore_certificate_chain, password)

    def _tls_versions(self) -> list[str]:
        return [version.strip() for version in self.ssl_enabled_protocols.split(",")]


_SECRET = {key_of(attribute.name) for attribute in fields(ClientProperties) if not attribute.repr}
SECRET_KEYS = frozenset(_SECRET | {given for given, key in _NAMES_OF_LIBRDKAFKA.items() if key in _SECRET})


@frozen
class Credentials:
    """User and secret of a SASL login; both are empty for OAUTHBEARER.

    Attributes:
        claims: claims of an unsecured token (OAUTHBEARER) by name.
        lifetime_s: lifetime of such a token in seconds.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    claims: Mapping[str, Any] = field(factory=dict)
    lifetime_s: float = _ONE_HOUR_S

    def unsecured_token(self, now_s: float) -> str:
        """Return the token that Kafka's OAuthBearerLoginModule would make, without a signature (KIP-255)."""
        issued_at_s = int(now_s)  # servers reject a time in the future
        claims = {**self.claims, "iat": issued_at_s, "exp": issued_at_s + self.lifetime_s}
        return f"{_base64(json.dumps({'alg': 'none'}))}.{_base64(json.dumps(claims))}."


def read_properties(path: str | Path) -> dict[str, str]:
    """Return the keys and values of a properties file, as Java reads one.

    Raises:
        ConfigError: the file can't be read.
    """
    import javaproperties

    try:
        values: dict[str, str] = javaproperties.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None
    except ValueError as error:  # also of bytes that are no text
        raise ConfigError(f"{path} can't be read: {error}") from None
    return values


def by_names_of_kafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with Kafka's names for keys that librdkafka spells differently.

    Raises:
        ConfigError: a key is given in both spellings.
    """
    values: dict[str, str] = {}
    for given, value in properties.items():
        key = _NAMES_OF_LIBRDKAFKA.get(given, given)
        if key in values:
            raise ConfigError(f"{key!r} is given twice, once as {given!r}")
        values[key] = value
    return values


def parse_address(text: str) -> Address:
    """Parse ``HOST:PORT``, by default with port 9092.

    Raises:
        ConfigError: invalid address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):  # an IPv6 address without a port
        host, port = text, str(_DEFAULT_PORT)
    host = host.strip("[]")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{text!r} is no address HOST:PORT")
    return Address(host, int(port))


def _read_jaas(text: str, mechanism: str) -> Credentials:
    found = _JAAS.fullmatch(text.strip())
    if found is None:
        _refuse("sasl.jaas.config", 'must be CLASS required KEY="VALUE" …; with a semicolon at its end')
    module = found["module"].rpartition(".")[2]
    if module not in _MODULES:
        _refuse("sasl.jaas.config", f"names {found['module']}; there are {', '.join(_MODULES)}")
    if mechanism not in _MODULES[module]:
        _refuse("sasl.jaas.config", f"is for {' or '.join(_MODULES[module])}; 'sasl.mechanism' is {mechanism}")
    options = _jaas_options(found["options"])
    if mechanism == "OAUTHBEARER":
        return _token_of(options)
    for name in ("username", "password"):
        if name not in options:
            _refuse("sasl.jaas.config", f"lacks {name}")
    return Credentials(options["username"], options["password"])


def _jaas_options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while text[position:].strip():
        found = _JAAS_OPTION.match(text, position)
        if found is None:
            _refuse("sasl.jaas.config", f'has something after {len(options)} options that is no KEY="VALUE"')
        name, double_quoted, single_quoted, bare = found.groups()
        quoted = double_quoted if double_quoted is not None else single_quoted
        options[name] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = found.end()
    return options


def _token_of(options: Mapping[str, str]) -> Credentials:
    claims: dict[str, Any] = {}
    for name, value in options.items():
        if name.startswith("unsecuredLoginStringClaim_"):
            claims[name.partition("_")[2]] = value
        elif name.startswith("unsecuredLoginNumberClaim_"):
            claims[name.partition("_")[2]] = _number(name, value)
        elif name.startswith("unsecuredLoginListClaim_"):
            # The first character is the separator, as in Kafka.
            claims[name.partition("_")[2]] = value[1:].split(value[0]) if value else []
    if "sub" not in claims and options.get("unsecuredLoginPrincipalClaimName", "sub") not in claims:
        _refuse("sasl.jaas.config", "lacks unsecuredLoginStringClaim_sub, the principal of the token")
    name = "unsecuredLoginLifetimeSeconds"
    return Credentials(claims=claims, lifetime_s=_number(name, options.get(name, str(_ONE_HOUR_S))))


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        _refuse("sasl.jaas.config", f"has no number for {name}")


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _check_plain(key: str, value: object) -> None:
    """Raise ConfigError if a value is no text, or refers to a config provider (``${…}``)."""
    if not isinstance(value, str):
        raise ConfigError(f"{key!r} must be text, not {type(value).__name__}")
    if value.strip().startswith("${"):
        _refuse(key, f"refers to something else; {_REFUSED['config.providers']}")


def _check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        named = ", ".join(choice or "nothing" for choice in choices)
        raise ConfigError(f"{key!r} must be one of {named}, not {value!r}")


def _to_pem(store: str) -> str:
    keys = " -nokeys" if store == "ssl.truststore" else " -nodes"
    return f"keytool -importkeystore makes PKCS12 of it, and openssl pkcs12 -in STORE{keys} makes PEM of that"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _refuse(key: str, why: str) -> NoReturn:
    raise ConfigError(f"{key!r} {why}")
