"""Build hook of the wheel, which has an archive for each data folder: a quarter of the size of single files."""

from __future__ import annotations

import io
import lzma
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA_FOLDERS = ("groupcoord/conformance/transcripts", "groupcoord/testing/museum/exhibits")
"""Folders that ``groupcoord.config.files.data_files`` reads. pyproject.toml excludes them from the wheel."""


class DataArchives(BuildHookInterface[Any]):
    """Add ``FOLDER.tar.xz`` for each data folder to a wheel. An editable install reads the folders of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._work = tempfile.TemporaryDirectory()
        for folder in DATA_FOLDERS:
            archive = Path(self._work.name, f"{Path(folder).name}.tar.xz")
            archive.write_bytes(archived(Path(self.root, folder)))
            build_data["force_include"][str(archive)] = f"{folder}.tar.xz"


def archived(folder: Path) -> bytes:
    """Return the archive of a folder's files. The same files give the same bytes: times and owners are left out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)
