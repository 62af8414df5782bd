"""Published directories in tests: the files of the version that the manifest names."""

import json
from pathlib import Path
from typing import Any


def manifest_in(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "manifest.json").read_bytes())
    return found


def version_of(directory: Path) -> Path:
    """The folder of the version's files."""
    return directory / (manifest_in(directory)["run"] or "")


def contents(directory: Path) -> dict[str, bytes]:
    """The files that the manifest lists, by name."""
    return {name: (version_of(directory) / name).read_bytes() for name in sorted(manifest_in(directory)["files"])}


def everything(directory: Path) -> dict[str, bytes]:
    """All files of a directory, by path."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }
