"""A dataset that its pipeline publishes itself, where the command does not wait for the pipeline's end."""

from typing import Any

import apache_beam as beam
import orjson
from apache_beam.io.filesystems import FileSystems

from beam_jobs.inputs import Inputs
from beam_jobs.shard_files import Written, place_files
from beam_jobs.storage import clear, existing_manifest, join, remove_tree, write_bytes
from features.manifest import FILE_NAME, DatasetManifest


class Publish(beam.PTransform):
    """What a pipeline found -> its dataset at `output`, the manifest last; then `staging` is removed.

    Any step may run again: files are copied from `staging`, which stays until the dataset is complete.
    """

    def __init__(self, inputs: Inputs, staging: str, output: str) -> None:
        super().__init__()
        self._inputs = inputs
        self._staging = staging
        self._output = output

    def expand(self, found: Any) -> Any:
        return (
            found
            | "Found" >> beam.Reshuffle()  # so that what runs again finds the same
            | "Copy" >> beam.Map(publish_copies, self._inputs, self._output)
            | "Complete" >> beam.Reshuffle()
            | "Clean" >> beam.Map(lambda _, staging: remove_tree(staging), self._staging)
        )


def publish_copies(summary: bytes, inputs: Inputs, output: str) -> None:
    """Does nothing where the dataset is complete. Errors: as `manifest_of`; the former dataset then stays."""
    former = existing_manifest(output, DatasetManifest)
    if former is not None and former.stage_key == inputs.key:
        return  # an attempt that was taken for dead comes late
    found = orjson.loads(summary)
    manifest = inputs.manifest(found)
    clear(output)
    written = [Written(*file) for file in found["written"]]
    place_files(written, output, inputs.options.dead_letter_days > 0, FileSystems.copy)
    write_bytes(join(output, FILE_NAME), manifest.to_bytes())
