"""The inputs of `build_elwc`, validated before the pipeline runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_jobs.joins.dataset_options import DatasetOptions, seed_of
from beam_jobs.joins.query_groups import GroupBuilder
from beam_jobs.sinks.dataset_manifest import make_dataset_manifest
from beam_jobs.sinks.storage import files_key, match_daily_files, match_files
from beam_jobs.sources.dates import Days, batch_days
from beam_jobs.sources.reading import check_readable
from features.manifest import DatasetManifest, stage_key
from features.spec import FeatureSpec, load_spec
from features.task import load_task, parse_section, task_name

_JOB_VERSION = 3  # increment when the same input gives another dataset
SHARD_BYTES = 32 * 1024 * 1024  # of logs per shard; a worker holds one uncompressed shard at a time
_SHARDS_PER_WORKER = 4  # with several local workers, for an even load


class DatasetInputs(NamedTuple):
    """A job's validated inputs."""

    task: str  # its name
    spec: FeatureSpec
    options: DatasetOptions
    seed: int
    logs: list[str]
    log_bytes: int
    products: list[str]
    days: Days | None  # of the events to use; None uses all
    missing: list[str]  # paths of earlier days without a file
    key: str  # stage_key of all that decides the dataset

    def for_locale(self, locale: str) -> "DatasetInputs":
        """Returns the inputs of one locale."""
        options = self.options.model_copy(update={"locale": locale})
        return self._replace(options=options, key=stage_key(all_locales=self.key, locale=locale))

    def shards(self, workers: int) -> int:
        """Returns the number of shuffle shards, which is also the maximum of files per view and split."""
        enough = _SHARDS_PER_WORKER * workers if workers > 1 else 1
        return self.options.shards or max(enough, -(-self.log_bytes // SHARD_BYTES))

    def resolved(self) -> dict[str, Any]:
        """The job's options, for the manifest."""
        days = [day.isoformat() for day in self.days] if self.days else None
        files = {"logs": self.logs, "products": self.products}
        return {**self.options.model_dump(mode="json"), "seed": self.seed, "days": days, **files}

    def manifest(self, found: Mapping[str, Any]) -> DatasetManifest:
        """Builds the dataset manifest from the pipeline's summary. Errors: as `make_dataset_manifest`."""
        summary = {**found, "warnings": [*found["warnings"], *missing_day_warnings(self.missing)]}
        return make_dataset_manifest(summary, self.task, self.spec, self.options, self.key, self.resolved())


def missing_day_warnings(paths: Sequence[str]) -> Iterator[str]:
    """Yields a warning for each path of an earlier day without a file."""
    for path in paths:
        yield f"no file {path}: its day is not in the dataset"


def read_dataset_inputs(
    config: str, logs: Sequence[str], products: Sequence[str], last_day: str | None = None
) -> DatasetInputs:
    """Reads and validates the inputs. Errors: InputError."""
    task = load_task(config)
    name, spec, seed = task_name(task), load_spec(task), seed_of(task)
    options = parse_section(task, "dataset", DatasetOptions)
    GroupBuilder(spec, options, seed)  # fails early if logs cannot fill the spec
    days = batch_days(last_day, options.look_back_days) if last_day else None
    log_files, missing = match_daily_files(logs, days, "--input")
    product_files = match_files(products, "--products") if products else []
    check_readable([entry.path for entry in log_files], "--input")
    check_readable([entry.path for entry in product_files], "--products")
    key = stage_key(
        job=_JOB_VERSION,
        task=name,
        features=spec.to_json(),
        options=options.model_dump(),
        seed=seed,
        days=days,
        logs=files_key(log_files),
        products=files_key(product_files),
    )
    paths = [[entry.path for entry in files] for files in (log_files, product_files)]
    log_bytes = sum(entry.size_in_bytes for entry in log_files)
    return DatasetInputs(name, spec, options, seed, paths[0], log_bytes, paths[1], days, missing, key)
