"""Publishes a dataset from within its pipeline, for commands that do not wait for the pipeline."""

from typing import Any

import apache_beam as beam
import orjson
from apache_beam.io.filesystems import FileSystems

from beam_jobs.sinks.dataset_manifest import make_dataset_manifest
from beam_jobs.sinks.shard_files import WrittenFile, place_files
from beam_jobs.sources.inputs import DatasetInputs
from beam_jobs.storage.beam_store import beam_store_for
from features.publication import Publication, current_run


class PublishDataset(beam.PTransform):
    """Job summary -> publishes the files that the workers wrote.

    Steps can be retried: files are copied from the run's scratch folder, which stays until the dataset is complete.
    """

    def __init__(self, inputs: DatasetInputs, output: str, run: str) -> None:
        super().__init__()
        self._inputs = inputs
        self._output = output
        self._run = run

    def expand(self, found: Any) -> Any:
        return (
            found
            | "Found" >> beam.Reshuffle()  # a retry gets the same summary
            | "Copy" >> beam.Map(publish_dataset, self._inputs, self._output, self._run)
        )


def publish_dataset(summary: bytes, inputs: DatasetInputs, output: str, run: str) -> None:
    """Publishes the dataset, unless it is complete already.

    Errors: as `make_dataset_manifest`; the former dataset then stays.
    """
    if current_run(beam_store_for(output), output) == run:
        return  # an earlier attempt has published it
    found = orjson.loads(summary)
    manifest = make_dataset_manifest(found, inputs)
    version = Publication(beam_store_for(output), output, run)
    written = [WrittenFile(*file) for file in found["written"]]
    version.publish(manifest, place_files(written, version, inputs.options.dead_letter_days > 0, FileSystems.copy))
