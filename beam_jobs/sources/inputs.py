"""What `build_elwc` reads, checked before anything runs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_jobs.dataset_manifest import manifest_of
from beam_jobs.dates import Days, batch_days
from beam_jobs.options import DatasetOptions, seed_of
from beam_jobs.query_groups import GroupBuilder
from beam_jobs.reading import check_readable
from beam_jobs.storage import files_key, match_daily_files, match_files
from features.manifest import DatasetManifest, stage_key
from features.spec import FeatureSpec, load_spec
from features.task import load_task, parse_section

JOB_VERSION = 2  # raised when the same input gives another dataset
SHARD_BYTES = 32 * 1024 * 1024  # of logs in a shard, of which a worker holds one at a time, and its lines unpacked
SHARDS_A_WORKER = 4  # where several work on one machine: so that none waits long for the last


class Inputs(NamedTuple):
    """What a job reads, checked."""

    spec: FeatureSpec
    options: DatasetOptions
    seed: int
    logs: list[str]
    log_bytes: int
    products: list[str]
    days: Days | None  # of the events to use; None uses all
    missing: list[str]  # paths of earlier days that hold no file
    key: str  # stage_key of all that decides the dataset

    def of_locale(self, locale: str) -> "Inputs":
        """The same of one locale alone."""
        options = self.options.model_copy(update={"locale": locale})
        return self._replace(options=options, key=stage_key(all_locales=self.key, locale=locale))

    def shards(self, workers: int) -> int:
        """Parts in which the logs are shuffled, and files that a view and split have at most."""
        enough = SHARDS_A_WORKER * workers if workers > 1 else 1
        return self.options.shards or max(enough, -(-self.log_bytes // SHARD_BYTES))

    def resolved(self) -> dict[str, Any]:
        """The job's options, for the manifest."""
        days = [day.isoformat() for day in self.days] if self.days else None
        files = {"logs": self.logs, "products": self.products}
        return {**self.options.model_dump(mode="json"), "seed": self.seed, "days": days, **files}

    def manifest(self, found: Mapping[str, Any]) -> DatasetManifest:
        """The dataset's manifest from what the pipeline found. Errors: as `manifest_of`."""
        missing = [f"no file {path}: its day is not in the dataset" for path in self.missing]
        told = {**found, "warnings": [*found["warnings"], *missing]}
        return manifest_of(told, self.spec, self.options, self.key, self.resolved())


def read_inputs(config: str, logs: Sequence[str], products: Sequence[str], last_day: str | None = None) -> Inputs:
    """Errors: InputError."""
    task = load_task(config)
    spec, options, seed = load_spec(task), parse_section(task, "dataset", DatasetOptions), seed_of(task)
    GroupBuilder(spec, options, seed)  # refuses a spec that logs cannot fill before anything is read
    days = batch_days(last_day, options.look_back_days) if last_day else None
    log_files, missing = match_daily_files(logs, days, "--input")
    product_files = match_files(products, "--products") if products else []
    check_readable([entry.path for entry in log_files], "--input")
    check_readable([entry.path for entry in product_files], "--products")
    key = stage_key(
        job=JOB_VERSION,
        features=spec.to_json(),
        options=options.model_dump(),
        seed=seed,
        days=days,
        logs=files_key(log_files),
        products=files_key(product_files),
    )
    paths = [[entry.path for entry in files] for files in (log_files, product_files)]
    log_bytes = sum(entry.size_in_bytes for entry in log_files)
    return Inputs(spec, options, seed, paths[0], log_bytes, paths[1], days, missing, key)
