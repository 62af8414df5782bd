"""Implements `features.publication.Store` on Beam's filesystems: gs:// and all others that Beam supports."""

from collections.abc import Sequence

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from features.local_store import LocalStore, is_local
from features.publication import CLAIM_FILE, RUN_NAME, Store


def beam_store_for(path: str) -> Store:
    """Returns the store for the filesystem of a path."""
    if is_local(path):
        return LocalStore()
    return GcsStore() if path.startswith("gs://") else ObjectStore()


class ObjectStore:
    """Store on an object store: no folders, no renames.

    `replace` is not atomic here: Beam's filesystems have no conditional write.
    """

    def read(self, path: str) -> bytes | None:
        if not FileSystems.exists(path):
            return None
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(content)

    def replace(self, path: str, content: bytes, former: bytes | None, draft: str) -> bool:
        if self.read(path) != former:
            return False
        self.write(path, content)
        return self.read(path) == content

    def files(self, folder: str, most: int | None = None) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        limits = None if most is None else [most]
        (found,) = FileSystems.match([prefix + "**"], limits=limits)
        return sorted(entry.path.removeprefix(prefix) for entry in found.metadata_list)

    def claims(self, directory: str) -> list[str]:
        (found,) = FileSystems.match([f"{directory.rstrip('/')}/run-*/{CLAIM_FILE}"])
        names = [entry.path.split("/")[-2] for entry in found.metadata_list]
        return sorted(name for name in names if RUN_NAME.fullmatch(name))

    def delete(self, folder: str, names: Sequence[str]) -> None:
        if names:
            FileSystems.delete([f"{folder}/{name}" for name in names])


class GcsStore(ObjectStore):
    """Google Cloud Storage: `replace` is atomic because it checks the object's generation."""

    def replace(self, path: str, content: bytes, former: bytes | None, draft: str) -> bool:
        from apache_beam.io.gcp.gcsio import create_storage_client, parse_gcs_path
        from apache_beam.options.pipeline_options import PipelineOptions
        from google.api_core.exceptions import NotFound, PreconditionFailed

        bucket, name = parse_gcs_path(path)
        # Beam created this process's credentials when it parsed its options
        blobs = create_storage_client(PipelineOptions([])).bucket(bucket)
        try:
            stored = blobs.get_blob(name)
            generation = 0 if stored is None else stored.generation
            if former != (None if stored is None else stored.download_as_bytes(if_generation_match=generation)):
                return False
            blobs.blob(name).upload_from_string(content, if_generation_match=generation)
        except (NotFound, PreconditionFailed):
            return self.read(path) == content  # true if a retry of our own request found the first one done
        return True
