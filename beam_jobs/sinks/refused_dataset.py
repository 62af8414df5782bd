"""Stores the dead letters and counts of a failed job beside its output, until a job succeeds."""

from pathlib import Path

import orjson
from apache_beam.io.filesystems import FileSystems

from beam_jobs.sinks.output_directory import check_output_directory
from beam_jobs.sinks.shard_files import PRIVATE_MODE
from beam_jobs.sources.inputs import DatasetInputs
from beam_jobs.storage.beam_store import beam_store_for
from beam_jobs.storage.files import existing_manifest, make_directory
from features.local_store import is_local
from features.manifest import PublishedManifest, StoredFile
from features.publication import Publication, finish_killed_runs, remove_publication

COUNTS_FILE = "counts.json"
_COUNTS_FORMAT = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
DEAD_LETTER_FOLDER = "dead_letters/"


class RefusedManifest(PublishedManifest):
    """Manifest of a failed job's directory."""

    kind: str = "refused"


def refused_path(output: str) -> str:
    """Returns the directory of a failed job's dead letters and counts."""
    return f"{output.rstrip('/')}.refused"


def check_refused_directory(output: str) -> None:
    """Errors: InputError when the directory for a failed job's dead letters holds other files."""
    check_output_directory(refused_path(output))
    existing_manifest(refused_path(output), RefusedManifest)


def save_refused(
    version: Publication, files: dict[str, StoredFile], inputs: DatasetInputs, tally: dict[str, int]
) -> str:
    """Moves a failed job's dead letters beside its output and writes the counts. Returns their directory."""
    path = refused_path(version.directory)
    finish_killed_runs(beam_store_for(path), path, alone=is_local(path))  # the caller holds the output's lock
    refused = Publication(beam_store_for(path), path)
    refused.begin()
    make_directory(refused.path(DEAD_LETTER_FOLDER.rstrip("/")), PRIVATE_MODE)
    if is_local(path):
        Path(path).chmod(PRIVATE_MODE)
    letters = {name: stored for name, stored in files.items() if name.startswith(DEAD_LETTER_FOLDER)}
    if letters:
        FileSystems.rename([version.path(name) for name in letters], [refused.path(name) for name in letters])
    letters[COUNTS_FILE] = refused.write(COUNTS_FILE, orjson.dumps(tally, option=_COUNTS_FORMAT))
    refused.publish(RefusedManifest(stage_key=inputs.key, options=inputs.resolved()), letters)
    return path


def remove_refused(output: str) -> None:
    """Removes the directory that an earlier failed job left, if any."""
    path = refused_path(output)
    manifest = existing_manifest(path, RefusedManifest)
    if manifest is not None:
        remove_publication(beam_store_for(path), path, manifest)
