"""Deletes the dead letters of every dataset under a root, once they are older than each dataset's dead_letter_days.

Example:
  python -m beam_jobs.retention --root build/shop
  python -m beam_jobs.retention --root gs://shop/datasets --dry-run

Reads the manifests under the root, of datasets and of failed jobs (<output>.refused). Deletes expired files that they
list, and the files of runs killed more than a week ago; nothing else.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from beam_jobs.launch.beam_options import pipeline_options
from beam_jobs.sinks.output_directory import output_lock
from beam_jobs.sinks.refused_dataset import DEAD_LETTER_FOLDER, RefusedManifest
from beam_jobs.storage.beam_store import beam_store_for
from features.errors import InputError, exit_code_of
from features.manifest import FILE_NAME, DatasetManifest, PublishedManifest, parse_manifest
from features.publication import CLAIM_FILE, RUN_NAME, finish_killed_runs, remove_files, remove_publication

_MANIFEST_MODELS: dict[str, type[PublishedManifest]] = {"dataset": DatasetManifest, "refused": RefusedManifest}


class ExpiredDeadLetters(NamedTuple):
    """A directory's expired dead letters. files: names in the manifest; days: the allowed age."""

    manifest: PublishedManifest
    files: tuple[str, ...]
    days: int
    age: timedelta

    @property
    def bytes(self) -> int:
        return sum(self.manifest.files[name].bytes for name in self.files)


def expired_dead_letters(directory: str, days: int | None = None) -> ExpiredDeadLetters | None:
    """Returns a directory's expired dead letters; None if it has none, or is of another kind.

    days: the allowed age; None: the manifest's. Errors: InputError for a damaged manifest.
    """
    path = f"{directory}/{FILE_NAME}"
    content = beam_store_for(directory).read(path)
    model = _MANIFEST_MODELS.get(_kind_of(content or b""))
    if content is None or model is None:
        return None
    manifest = parse_manifest(content, path, model)
    letters = tuple(name for name in manifest.files if name.startswith(DEAD_LETTER_FOLDER))
    allowed = days if days is not None else int(manifest.options.get("dead_letter_days", 0))
    age = datetime.now(UTC) - datetime.fromisoformat(manifest.created)
    if not letters or manifest.run is None or age <= timedelta(days=allowed):
        return None
    return ExpiredDeadLetters(manifest, letters, allowed, age)


def expire_dead_letters(directory: str, days: int | None = None) -> ExpiredDeadLetters | None:
    """Deletes a directory's expired dead letters and removes them from its manifest. Returns them.

    Errors: InputError when another job is writing the directory, or its manifest is damaged.
    """
    output = directory.removesuffix(".refused")  # a job that fails holds the lock of its output
    if expired_dead_letters(directory, days) is None:
        return None
    with output_lock(output):
        found = expired_dead_letters(directory, days)
        if found is None:
            return None
        if isinstance(found.manifest, RefusedManifest):
            remove_publication(beam_store_for(directory), directory, found.manifest)
        elif not remove_files(beam_store_for(directory), directory, found.manifest, found.files):
            return None
    print(_described(directory, found, "deleted"), flush=True)
    return found


def sweep_dead_letters(root: str, days: int | None = None, dry_run: bool = False) -> list[ExpiredDeadLetters]:
    """Deletes the expired dead letters under `root`. Returns the deleted ones; on a dry run, those it would delete.

    Errors: InputError at the end, with all directories that could not be read; the others are swept.
    """
    store, root = beam_store_for(root), root.rstrip("/")
    gone, faults = [], []
    for name in sorted(_directories(store.files(root))):
        directory = f"{root}/{name}".rstrip("/")
        try:
            if dry_run:
                found = expired_dead_letters(directory, days)
                if found is not None:
                    print(_described(directory, found, "would delete"), flush=True)
            else:
                finish_killed_runs(store, directory, alone=False)
                found = expire_dead_letters(directory, days)
            gone += [found] if found else []
        except InputError as error:
            faults.append(str(error))
    if faults:
        raise InputError("; ".join(faults))
    return gone


def _directories(files: Sequence[str]) -> set[str]:
    """The directories, relative to the root, that hold a manifest or the folder of a run that is not finished."""
    found = set()
    for folder, _, name in (file.rpartition("/") for file in files):
        directory, _, run = folder.rpartition("/")
        if name == FILE_NAME:
            found.add(folder)
        elif name == CLAIM_FILE and RUN_NAME.fullmatch(run):
            found.add(directory)
    return found


def _kind_of(content: bytes) -> str:
    try:
        return str(json.loads(content)["kind"])
    except (ValueError, KeyError, TypeError):
        return ""  # not ours


def _described(directory: str, found: ExpiredDeadLetters, verb: str) -> str:
    return (
        f"{verb} {len(found.files)} dead-letter files ({found.bytes:,} bytes) of {directory}: "
        f"{found.age.days} days old, beyond dead_letter_days ({found.days})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.retention",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--root", required=True, help="a directory, or gs://BUCKET/PATH: all datasets below it")
    parser.add_argument("--days", type=int, help="age in days at which dead letters expire; default: the manifest's")
    parser.add_argument("--dry-run", action="store_true", help="print what would be deleted; delete nothing")
    given, rest = parser.parse_known_args(arguments)
    pipeline_options(rest)  # credentials of object stores
    if given.days is not None and given.days < 0:
        raise InputError(f"--days is {given.days}, expected 0 or more")
    gone = sweep_dead_letters(given.root, given.days, given.dry_run)
    verb = "would delete" if given.dry_run else "deleted"
    count, size = sum(len(found.files) for found in gone), sum(found.bytes for found in gone)
    print(f"{verb} {count} files ({size:,} bytes) of {len(gone)} directories under {given.root}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
