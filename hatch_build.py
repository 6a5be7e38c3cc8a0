"""Build hook of the wheel, which has an archive for each data folder: a quarter of the size of single files."""

from __future__ import annotations

import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA_FOLDERS = ("groupcoord/conformance/transcripts", "groupcoord/testing/museum/exhibits")
"""Folders that ``groupcoord.config.files.data_files`` reads. pyproject.toml excludes them from the wheel."""

SUFFIXES = (".json", ".toml")


class DataArchives(BuildHookInterface[Any]):
    """Add ``FOLDER.json.xz`` for each data folder to a wheel. An editable install reads the folders of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._work = tempfile.TemporaryDirectory()
        for folder in DATA_FOLDERS:
            archive = Path(self._work.name, f"{Path(folder).name}.json.xz")
            archive.write_bytes(archived(Path(self.root, folder)))
            build_data["force_include"][str(archive)] = f"{folder}.json.xz"


def archived(folder: Path) -> bytes:
    """Return a JSON object of the folder's data files, text by path, compressed. The same files give the same bytes."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    texts = {path.relative_to(folder).as_posix(): _compact(path) for path in paths}
    return lzma.compress(json.dumps(texts, ensure_ascii=False).encode(), preset=9 | lzma.PRESET_EXTREME)


def _compact(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix != ".json":
        return text
    return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
