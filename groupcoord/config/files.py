"""Files that are read whole, without waiting for the writer of a FIFO: JSON, TOML, and keys in PEM format."""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
