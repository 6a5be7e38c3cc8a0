"""Users with passwords, which may log in by PLAIN and by SCRAM."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path

from groupcoord.config.files import read_text
from groupcoord.errors import ConfigError

_KEY_BYTES = 32


class Users:
    """Names and passwords, of which only digests are kept.

    Args:
        passwords: by name.
    """

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._digests = {name: self._digest(password) for name, password in (passwords or {}).items()}
        self._nobody = secrets.token_bytes(_KEY_BYTES)

    def has(self, name: str, password: str) -> bool:
        """Tell whether this is a user's password, in the same time for every user and for nobody."""
        return hmac.compare_digest(self._digests.get(name, self._nobody), self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


def read_users(file_name: str) -> dict[str, str]:
    """Return the passwords in a file of lines such as ``alice:secret``, by name; none without a file.

    Empty lines, and those that begin with ``#``, don't count; the first colon ends the name.

    Raises:
        ConfigError: the file can't be read, or a line is something else. The message names the line's number only.
    """
    if not file_name:
        return {}
    path = Path(file_name)
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"setting 'sasl.users.file': {path}: {reason}") from None
    passwords: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not (name and colon and password):
            raise ConfigError(f"setting 'sasl.users.file': {path}: line {number} is not NAME:PASSWORD")
        if name in passwords:
            raise ConfigError(f"setting 'sasl.users.file': {path}: line {number} names a user a second time")
        passwords[name] = password
    return passwords
