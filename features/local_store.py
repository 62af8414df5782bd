"""A local disk as a `features.publication.Store`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from features.publication import CLAIM_FILE, RUN_NAME

PARTIAL_SUFFIX = ".partial"  # behind the name of a file that is being written
ATTEMPTS = 5  # to write a file while other runs remove folders that are empty


def is_local(path: str) -> bool:
    return "://" not in path


class LocalStore:
    """Files on a local disk. `replace` renames a new file over the old one."""

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, content: bytes) -> None:
        self._rename_over(path, content, path + PARTIAL_SUFFIX)

    def replace(self, path: str, content: bytes, former: bytes | None, draft: str) -> bool:
        if self.read(path) != former:
            return False
        self._rename_over(path, content, draft)
        return True

    def _rename_over(self, path: str, content: bytes, draft: str) -> None:
        """Tries again when another run removes the draft's folder, which was empty for a moment."""
        for attempt in range(1, ATTEMPTS + 1):
            os.makedirs(os.path.dirname(draft) or ".", exist_ok=True)
            try:
                with open(draft, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, path)
            except FileNotFoundError:
                if attempt == ATTEMPTS:
                    raise
            else:
                return

    def files(self, folder: str, most: int | None = None) -> list[str]:
        found = []
        for name in _files_below(folder):
            found.append(name)
            if len(found) == most:
                break
        return sorted(found)

    def claims(self, directory: str) -> list[str]:
        found = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(directory):
                if RUN_NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # another run has removed it
                        names = os.listdir(entry.path)
                        if not names or {CLAIM_FILE, CLAIM_FILE + PARTIAL_SUFFIX} & set(names):
                            found.append(entry.name)
        return sorted(found)

    def delete(self, folder: str, names: Sequence[str]) -> None:
        folders = {folder}
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")
            while name := name.rpartition("/")[0]:
                folders.add(f"{folder}/{name}")
        if RUN_NAME.fullmatch(os.path.basename(folder)):  # a run's folder: also its empty folders
            folders |= {root for root, _, _ in os.walk(folder)}
        for emptied in sorted(folders, key=len, reverse=True):
            with suppress(OSError):  # not empty, or gone
                os.rmdir(emptied)


def _files_below(folder: str) -> Iterator[str]:
    """Yields files and links, relative to the folder; does not follow links to folders."""
    for root, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(f"{root}/{name}")]
        for name in (*names, *links):
            yield os.path.relpath(f"{root}/{name}", folder)
