"""The inputs of `build_elwc`, validated before the pipeline runs."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.joins.dataset_options import DatasetOptions, seed_of
from beam_jobs.joins.query_groups import GroupBuilder
from beam_jobs.sources.dates import DATE_PLACEHOLDER, Days, batch_days
from beam_jobs.sources.reading import check_readable
from beam_jobs.storage.files import files_key, glob_files, match_files
from features.errors import InputError
from features.manifest import stage_key
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


def match_daily_files(patterns: Sequence[str], days: Days | None, what: str) -> tuple[list[FileMetadata], list[str]]:
    """Returns the files of all days, sorted by path, and the paths of earlier days that match no file.

    Errors: InputError when the last day has no file, or a pattern has {date} and `days` is None.
    """
    if days is None:
        if dated := [pattern for pattern in patterns if DATE_PLACEHOLDER in pattern]:
            raise InputError(f"{what} {dated[0]!r} asks for days: give --date too")
        return match_files(patterns, what), []
    daily = [days.paths(pattern) for pattern in patterns]
    files = {entry.path: entry for entry in match_files([paths[0] for paths in daily], what)}
    missing = []
    for path in (path for paths in daily for path in paths[1:]):
        matched = glob_files(path, what)
        files.update((entry.path, entry) for entry in matched)
        missing += [] if matched else [path]
    return [files[path] for path in sorted(files)], sorted(missing)
