"""Publishes versions of a directory atomically, on local disks and object stores, without renaming directories.

    dataset/manifest.json                     names one run and its files; replaced in one step
    dataset/run-20250310T021500-1a2b3c4d/     that run's files, such as train/training_elwc-00000-of-00004.tfrecord.gz
    dataset/run-20250310T021500-1a2b3c4d/run.json   the claim: there while a run is unfinished, or is being removed

A run writes to its own folder and then replaces the manifest: readers see the former version until then, and the new
one afterwards. Then it deletes the files that the former manifest lists, and nothing else. Two writers never write the
same file. The last one to replace the manifest wins, and deletes the version before it.

A killed run's folder has a claim, by which a later run finds and removes it. Files that neither a manifest nor a claim
lists are never touched.

No framework here: each room implements `Store` on its filesystem (Beam's filesystems, tf.io.gfile).
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

from pydantic import ValidationError

from features.errors import InputError
from features.manifest import FILE_NAME, PublishedManifest, RelativePath, StoredFile, parse_manifest
from features.task import Section

CLAIM_FILE = "run.json"
SCRATCH_FOLDER = "scratch"  # below a run's folder: unpublished files
RUN_NAME = re.compile(r"run-\d{8}T\d{6}-[0-9a-f]{8}")
ABANDONED_AFTER = timedelta(days=7)  # without a lock, an older unfinished run counts as killed
_REPLACE_ATTEMPTS = 20  # attempts to replace a manifest that other runs replace at the same time
_MAX_LISTED = 10_000  # maximum number of unlisted files to count

PublishedT = TypeVar("PublishedT", bound=PublishedManifest)


class Store(Protocol):
    """A filesystem. Paths have slashes. Errors: OSError or the filesystem's own."""

    def read(self, path: str) -> bytes | None:
        """The content; None where there is no such file."""

    def write(self, path: str, content: bytes) -> None:
        """Writes a file, whole or not at all, and the folders that it needs. A killed try leaves '<path>.partial'."""

    def replace(self, path: str, content: bytes, former: bytes | None, draft: str) -> bool:
        """Replaces a file in one step if it still holds `former` (None: is not there). Returns whether it did.

        draft: a path that it may write first.
        """

    def files(self, folder: str, most: int | None = None) -> list[str]:
        """All files below a folder, relative to it, or the first `most`; none where there is no such folder."""

    def claims(self, directory: str) -> list[str]:
        """The folders right below `directory` that hold a file CLAIM or a try to write it, and empty ones, if RUN."""

    def delete(self, folder: str, names: Sequence[str]) -> None:
        """Deletes files below `folder`, those that are there, then folders left empty, `folder` included."""


class RunClaim(Section):
    """A run folder's claim file, while no manifest lists the folder's files."""

    kind: str = "run"
    created: datetime
    files: tuple[RelativePath, ...] | None = None  # the run's files; None: all, the run is unfinished
    replaces: str | None = None  # the run whose files this one deletes once its manifest is in place
    replaced_files: tuple[RelativePath, ...] = ()


class Publication:
    """One run's version of `directory`.

    folder: where the run's files go, by their names. scratch: a folder that is removed at the end.
    """

    def __init__(self, store: Store, directory: str, run: str | None = None) -> None:
        self.store, self.directory = store, directory.rstrip("/")
        self.run = run or f"run-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"
        self.folder = f"{self.directory}/{self.run}"
        self.scratch = f"{self.folder}/{SCRATCH_FOLDER}"

    def begin(self) -> None:
        """Writes the claim. Call this before writing any file."""
        self.claim(RunClaim(created=datetime.now(UTC)))

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def write(self, name: str, content: bytes) -> StoredFile:
        """Writes one of the version's files."""
        self.store.write(self.path(name), content)
        return stored_file(content)

    def written(self) -> dict[str, StoredFile]:
        """Reads all files of the folder and returns their checksums, without scratch and claim."""
        names = [
            name
            for name in self.store.files(self.folder)
            if name != CLAIM_FILE and not name.startswith(f"{SCRATCH_FOLDER}/")
        ]
        return {name: stored_file(self.store.read(self.path(name)) or b"") for name in names}

    def publish(self, manifest: PublishedT, files: dict[str, StoredFile] | None = None) -> PublishedT:
        """Makes this run's files the directory's version and deletes the former version. Idempotent.

        files: the version's, by name; None: all that were written. Returns the manifest as it was written.
        Errors: InputError when the directory has become something else's, or a file of the run is gone.
        """
        own = manifest.model_copy(update={"run": self.run, "files": self.written() if files is None else files})
        if lost := set(own.files) - set(self.store.files(self.folder)):
            raise InputError(
                f"{self.path(min(lost))} is gone, expected it until {self.directory} is complete: run again"
            )
        for _ in range(_REPLACE_ATTEMPTS):
            content = self.store.read(f"{self.directory}/{FILE_NAME}")
            former = None if content is None else parse_manifest(content, f"{self.directory}/{FILE_NAME}", type(own))
            if former is None or former.run != self.run:
                self.claim(_claim_of(own, former))
                if not self.replace(own, content):
                    continue
            finish_publication(self.store, self.directory, self.run)
            return own
        raise InputError(f"{self.directory}/{FILE_NAME} is written by other jobs all the time: give another --output")

    def replace(self, manifest: PublishedManifest, former: bytes | None) -> bool:
        """Replaces the directory's manifest if it still is `former`. Returns whether it did."""
        path = f"{self.directory}/{FILE_NAME}"
        return self.store.replace(path, manifest.to_bytes(), former, f"{self.scratch}/{FILE_NAME}")

    def abandon(self) -> None:
        """Removes this run's files, unless they are published."""
        if current_run(self.store, self.directory) != self.run:
            _remove_claimed(self.store, self.directory, self.run)

    def claim(self, claim: RunClaim) -> None:
        """Writes what the run's folder says of itself."""
        self.store.write(f"{self.folder}/{CLAIM_FILE}", claim.model_dump_json().encode())


def stored_file(content: bytes) -> StoredFile:
    return StoredFile(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def finish_killed_runs(store: Store, directory: str, alone: bool) -> None:
    """Cleans up after killed runs: deletes files of former versions and folders of unfinished runs.

    alone: whether a lock ensures that no other run is writing; else a run counts as killed after ABANDONED_AFTER.
    """
    directory = directory.rstrip("/")
    claimed, run = store.claims(directory), current_run(store, directory)
    if run in claimed:
        finish_publication(store, directory, run)
    for name in claimed:
        claim = _read_claim(store, directory, name)
        if name != run and claim and (alone or datetime.now(UTC) - claim.created > ABANDONED_AFTER):
            _remove_claimed(store, directory, name)


def finish_publication(store: Store, directory: str, run: str) -> None:
    """Deletes the files that the current run replaced, its scratch folder and, last, its claim."""
    claim = _read_claim(store, directory, run)
    if claim is None or claim.files is None:
        return
    if claim.replaces != run and claim.replaced_files:
        store.delete(f"{directory}/{claim.replaces}" if claim.replaces else directory, claim.replaced_files)
    scratch = f"{directory}/{run}/{SCRATCH_FOLDER}"
    store.delete(scratch, store.files(scratch))
    if current_run(store, directory) == run:  # else a newer run needs the claim to remove this one
        store.delete(f"{directory}/{run}", [CLAIM_FILE])


def remove_publication(store: Store, directory: str, manifest: PublishedManifest) -> None:
    """Removes a published directory: the manifest, the files that it lists, and what is empty then."""
    directory = directory.rstrip("/")
    if manifest.run:
        store.write(f"{directory}/{manifest.run}/{CLAIM_FILE}", _claim_of(manifest, None).model_dump_json().encode())
    store.delete(directory, [FILE_NAME])
    if manifest.run:
        _remove_claimed(store, directory, manifest.run)


def remove_files(store: Store, directory: str, manifest: PublishedT, names: Sequence[str]) -> bool:
    """Deletes some of a version's files, and takes them out of its manifest. May be called again after a crash.

    Returns False when another run has replaced the manifest meanwhile, and these files with it.
    """
    version = Publication(store, directory.rstrip("/"), manifest.run)
    path = f"{version.directory}/{FILE_NAME}"
    content = store.read(path)
    if manifest.run is None or content is None or parse_manifest(content, path, type(manifest)) != manifest:
        return False
    version.claim(_claim_of(manifest, None))
    store.delete(version.folder, names)
    kept = {name: stored for name, stored in manifest.files.items() if name not in names}
    replaced = version.replace(manifest.model_copy(update={"files": kept}), content)
    finish_publication(store, version.directory, manifest.run)
    return replaced


def check_ownership(store: Store, directory: str) -> None:
    """Errors: InputError when files lie in `directory`, but no manifest of ours and no run's claim."""
    directory = directory.rstrip("/")
    if store.read(f"{directory}/{FILE_NAME}") is not None:
        return
    for name in unlisted_files(store, directory, None):
        raise InputError(
            f"{directory} holds files but no {FILE_NAME}, such as {name}, so it is not ours to replace: name another"
        )


def unlisted_files(store: Store, directory: str, manifest: PublishedManifest | None) -> Iterator[str]:
    """Yields files of `directory` that neither the manifest nor a claim lists; looks at _MAX_LISTED files."""
    claims = set(store.claims(directory))
    listed = {FILE_NAME, *(manifest.stored_path(name) for name in manifest.files)} if manifest else {FILE_NAME}
    for name in store.files(directory, _MAX_LISTED):
        if name not in listed and name.partition("/")[0] not in claims:
            yield name


def unlisted_files_message(store: Store, directory: str, manifest: PublishedManifest) -> str:
    """Makes a message about unlisted files, which were kept; empty if there are none."""
    names = list(unlisted_files(store, directory, manifest))
    if not names:
        return ""
    return (
        f"kept {len(names)} files in {directory} that {FILE_NAME} does not list, such as {names[0]}: they are not ours"
    )


def current_run(store: Store, directory: str) -> str | None:
    """The run that the manifest names; None where there is no manifest, or one of something else."""
    content = store.read(f"{directory}/{FILE_NAME}")
    with suppress(ValidationError, TypeError):
        return _AnyPublishedManifest.model_validate_json(content or b"").run
    return None


class _AnyPublishedManifest(PublishedManifest):
    """Any published manifest; only the run is used."""

    model_config = {"extra": "ignore"}


def _claim_of(manifest: PublishedManifest, former: PublishedManifest | None) -> RunClaim:
    return RunClaim(
        created=datetime.now(UTC),
        files=tuple(manifest.files),
        replaces=former.run if former else None,
        replaced_files=tuple(former.files) if former else (),
    )


def _read_claim(store: Store, directory: str, run: str) -> RunClaim | None:
    if not RUN_NAME.fullmatch(run):
        return None
    content = store.read(f"{directory}/{run}/{CLAIM_FILE}")
    if content is None:  # killed before the claim was whole, and so before anything else was written
        began = datetime.strptime(run.split("-")[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        return RunClaim(created=began, files=(f"{CLAIM_FILE}.partial",))
    with suppress(ValidationError):
        return RunClaim.model_validate_json(content)
    return None


def _remove_claimed(store: Store, directory: str, run: str) -> None:
    """Deletes the files that a run's claim names, the claim last."""
    claim, folder = _read_claim(store, directory, run), f"{directory}/{run}"
    if claim is None:
        return  # something else's file of that name
    there = [name for name in store.files(folder) if name != CLAIM_FILE]
    listed = None if claim.files is None else {*claim.files, f"{CLAIM_FILE}.partial"}
    store.delete(folder, [n for n in there if listed is None or n in listed or n.startswith(f"{SCRATCH_FOLDER}/")])
    store.delete(folder, [CLAIM_FILE])
    store.delete(directory, [])  # the directory too, where it is empty
