"""Files that are read whole, without waiting for the writer of a FIFO: JSON and TOML with their tables, PEM keys."""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from attrs import define, field

from groupcoord.errors import did_you_mean

if TYPE_CHECKING:
    import ssl


def open_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as ``os.open`` does, except a FIFO, which could block. An ``opener`` for :func:`open`.

    A path below ``/dev``, as a shell passes for ``<(command)``, has a writer and is allowed.

    Raises:
        OSError: the file can't be opened, or is a FIFO outside ``/dev``.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not os.fspath(path).startswith("/dev/"):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a FIFO, not a file", os.fspath(path))
    os.set_blocking(descriptor, True)
    return descriptor


def read_file(path: str | Path) -> bytes:
    with open(path, "rb", opener=open_file) as file:
        return file.read()


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, with a newline character at the end of each line."""
    with open(path, encoding=encoding, opener=open_file) as file:
        return file.read()


def data_files(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each JSON and TOML file of a data folder of this package, sorted by path.

    A wheel has the archive ``FOLDER.json.xz`` instead of the folder (``hatch_build.py``).

    Raises:
        ValueError: a file is invalid; the message holds its path.
    """
    if folder.is_dir():
        parsers = {".json": parse_json, ".toml": parse_toml}
        for path in sorted(folder.rglob("*.*")):
            if path.suffix in parsers:
                try:
                    value = parsers[path.suffix](path.read_text("utf-8"))
                except ValueError as error:
                    raise ValueError(f"{path}: {error}") from error
                yield str(path), value
        return
    import lzma  # the server starts without it

    with lzma.open(f"{folder}.json.xz") as archive:
        names, packed = json.load(archive)
    for name, value in _unpacked(packed, names).items():
        yield f"{folder}.json.xz/{name}", value


def _unpacked(packed: Any, names: list[list[str]]) -> Any:
    if not isinstance(packed, list):
        return packed
    kind, *values = packed
    found = [_unpacked(each, names) for each in values]
    # An object is the number of its names and its values; a list begins with -1.
    return found if kind < 0 else dict(zip(names[kind], found, strict=True))


def parse_json(text: str) -> Any:
    """Return the value of a text in JSON.

    Raises:
        ValueError: invalid, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a text in TOML.

    Raises:
        ValueError: invalid, or nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


KeyPath = tuple[str | int, ...]
"""Path of a value: keys, and for arrays of tables the index of the table."""

REQUIRED: Any = object()
"""Stands for no default."""


@define(eq=False)
class TableReader:
    """Reader of a table. Call :meth:`expect` first, or take every known key and then call :meth:`finish`.

    Each getter takes its key. ``_fail`` raises the error of an invalid value.
    """

    values: Mapping[str, Any]
    _path: KeyPath
    _fail: Callable[[KeyPath, str], NoReturn]
    _known: list[str] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.values, Mapping):
            self.fail(None, f"must be a table, not {self.values!r:.60}")

    def fail(self, key: str | None, message: str) -> NoReturn:
        self._fail(self._path if key is None else (*self._path, key), message)

    def require_known(self, key: str, name: str, known: Iterable[str], kind: str = "") -> None:
        names = list(known)
        if name not in names:
            self.fail(key, f"there is no {kind or key.removesuffix('s')} {name!r}; there are {', '.join(names)}")

    def take(self, key: str, default: Any = REQUIRED) -> Any:
        self._known.append(key)
        if key in self.values:
            return self.values[key]
        if default is REQUIRED:
            self.fail(key, "is missing")
        return default

    def number(self, key: str, default: int = REQUIRED, *, at_least: int = 0, at_most: int = 1_000_000) -> int:
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= at_most:
            self.fail(key, f"must be a whole number from {at_least} to {at_most}, not {value!r:.60}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {value!r:.60}")
        return value

    def text(self, key: str, default: str = REQUIRED) -> str:
        value = self.take(key, default)
        if not isinstance(value, str) or (not value and default is REQUIRED):
            self.fail(key, f"must be a text, not {value!r:.60}")
        return value

    def names(self, key: str, default: tuple[str, ...] = REQUIRED) -> tuple[str, ...]:
        value = self.take(key, default)
        are_names = isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value)
        if not are_names or (not value and default is REQUIRED):
            self.fail(key, f"must be a list of names, not {value!r:.60}")
        return tuple(value)

    def table(self, key: str, default: Any = REQUIRED) -> Self:
        return type(self)(self.take(key, default), (*self._path, key), self._fail)

    def tables(self, key: str, default: Any = REQUIRED) -> list[Self]:
        value = self.take(key, default)
        if not isinstance(value, list):
            self.fail(key, f"must be a list of tables, in TOML [[{key}]]")
        return [type(self)(entry, (*self._path, key, place), self._fail) for place, entry in enumerate(value)]

    def properties(self) -> dict[str, Any]:
        """Return all values under Kafka's dotted keys, also where TOML takes the dots for tables."""
        return dict(flattened("", self.values))

    def expect(self, *keys: str) -> None:
        self._known += keys
        self.finish()

    def finish(self) -> None:
        for key in self.values:
            if key not in self._known:
                hint = did_you_mean(key, self._known) or f"; there are {', '.join(self._known)}"
                self.fail(key, f"is an unknown key{hint}")


def flattened(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        found += flattened(f"{name}.", value) if isinstance(value, dict) else [(name, value)]
    return found


def format_path(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def load_identity(context: ssl.SSLContext, key: str, certificate_chain: str, password: str) -> None:
    """Load a certificate and its key into a TLS context (KIP-651). A ``password`` of "" avoids a prompt.

    Raises:
        ssl.SSLError: invalid PEM, or key and certificate do not match.
    """
    import tempfile  # the server starts without it

    # The ssl module reads keys from files only.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "key.pem")
        path.touch(mode=0o600)
        path.write_text(f"{key}\n{certificate_chain}\n")
        context.load_cert_chain(path, password=password)
