"""Certificates and keys of a listener: Kafka's settings for PEM files (KIP-651)."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from groupcoord.broker.security.principals import NewPrincipal, certificate_principal, parse_rules
from groupcoord.broker.security.settings import SecuritySettings
from groupcoord.config.pem import load_identity
from groupcoord.errors import ConfigError

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsListener(NamedTuple):
    """What a listener with TLS needs.

    Attributes:
        context: what its handshakes begin with.
        new_principal: makes a principal of a client's certificate; None: clients log in by SASL.
    """

    context: ssl.SSLContext
    new_principal: NewPrincipal | None


def tls_listener(settings: SecuritySettings, *, uses_sasl: bool) -> TlsListener:
    """Return what a listener with these settings needs.

    Raises:
        ConfigError: certificates or keys are missing, can't be read or don't belong together; or a rule is none.
    """
    rules = parse_rules(settings.ssl_principal_mapping_rules)
    return TlsListener(server_context(settings), None if uses_sasl else certificate_principal(rules))


def server_context(settings: SecuritySettings) -> ssl.SSLContext:
    """Return what handshakes of a listener begin with.

    Raises:
        ConfigError: certificates or keys are missing, can't be read or don't belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    try:
        _load_identity(context, settings)
        _load_trust(context, settings)
    except (OSError, ValueError) as error:  # of which ssl.SSLError is one
        raise ConfigError(f"settings 'ssl.keystore…', 'ssl.truststore…': {error}") from None
    context.verify_mode = _VERIFY[settings.ssl_client_auth]
    return context


def _load_identity(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    password = settings.ssl_key_password or settings.ssl_keystore_password
    if settings.ssl_keystore_location:
        context.load_cert_chain(settings.ssl_keystore_location, password=password)
    elif settings.ssl_keystore_certificate_chain and settings.ssl_keystore_key:
        load_identity(context, settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain, password)
    else:
        raise ValueError("a listener with TLS needs a certificate and its key")


def _load_trust(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    if settings.ssl_truststore_location:
        context.load_verify_locations(settings.ssl_truststore_location)
    elif settings.ssl_truststore_certificates:
        context.load_verify_locations(cadata=settings.ssl_truststore_certificates)
    elif settings.ssl_client_auth != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
