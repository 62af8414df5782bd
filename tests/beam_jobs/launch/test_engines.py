"""The same logs on every engine that runs here give the same dataset, compared by content."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import build_elwc
from features.errors import InputError
from tests.beam_jobs.datasets import ANY_LOSS, build, manifest_of, read_dead_letters, records, write_task
from tests.beam_jobs.log_lines import act, impression, write_jsonl
from tests.published import contents as published
from tests.published import everything, version_of

ROOT = Path(__file__).parents[3]
SHOWN = [{"item_id": item} for item in ("p1", "p2", "p3", "p9")]  # the table has no p9
ENGINES = {
    "two processes": ("--direct_num_workers", "2", "--direct_running_mode", "multi_processing"),
    "two threads": ("--direct_num_workers", "2", "--direct_running_mode", "multi_threading"),
    "portable runner, workers beside the launcher": (
        *("--runner", "PortableRunner", "--job_endpoint", "embed"),
        *("--environment_type", "LOOPBACK"),
    ),
    "every bundle run three times": ("--direct_runner_bundle_repeat", "2"),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs in three files, with what a job can meet: a bot, a hot query, refused items, unknown requests, a table."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "logs").mkdir()
    for file in range(3):
        rows: list[Any] = []
        for number in range(file, 60, 3):
            query = "hot query" if number < 20 else f"query {number % 13}"
            rows.append(impression(f"r{number}", query, *SHOWN, user=f"u{number % 7}"))
            rows += [act("click", f"r{number}", "p2"), act("purchase", f"r{number + number % 2 * 1000}", "p2")]
        rows += [impression(f"bot{file}.{number}", "query 3", *SHOWN, user="machine") for number in range(12)]
        write_jsonl(folder / "logs" / f"events-{file}.jsonl", *rows, b"no event")
    products = [{"item_id": f"p{number}", "title": f"title {number}"} for number in range(1, 5)]
    write_jsonl(folder / "products.jsonl", *products, b"no row")
    options = {"max_requests_per_hour": 20, "max_groups_per_query": 5, "min_distinct_users": 2, "limits": ANY_LOSS}
    write_task(folder, dataset=options)
    build(*arguments(folder, "one"))
    return folder


def arguments(folder: Path, name: str, *options: str) -> list[Any]:
    inputs = (folder / "task.yaml", folder / "logs" / "events-*", folder / name)
    return [*inputs, "--products", folder / "products.jsonl", *options]


def content(dataset: Path) -> Any:
    """Records, dead letters without their ids' hashes, whose key is each job's own, and counts, in no order."""
    views = {
        (split, view): sorted(records(dataset, split, view))
        for split in ("train", "valid", "test")
        for view in ("training", "serving")
    }
    letters = sorted(re.sub(r"'[0-9a-f]{16}'", "a hash", str(letter)) for letter in read_dead_letters(dataset))
    manifest = manifest_of(dataset)
    counts = {split: (found.groups, found.items, found.groups_with_label) for split, found in manifest.splits.items()}
    return views, letters, manifest.events, manifest.refused, counts, sorted(manifest.warnings), manifest.stage_key


def test_the_log_has_what_engines_could_differ_in(shop: Path) -> None:
    manifest = manifest_of(shop / "one")
    impressions = manifest.events["impression"]
    assert (impressions.read, impressions.malformed, impressions.capped) == (96, 0, 36 + 15)
    assert manifest.refused["hot_query"] > 0
    assert manifest.refused["title_missing"] == 60
    assert manifest.refused["product_not_json"] == 1
    assert manifest.events["purchase"].unmatched > 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_makes_the_same_dataset(shop: Path, engine: str) -> None:
    assert_same_dataset(shop, engine.split(",")[0].replace(" ", "_"), *ENGINES[engine])


def assert_same_dataset(shop: Path, name: str, *options: str) -> None:
    """Runs the command with an engine's options, and compares what it made with what this process made."""
    config, logs, output, *more = map(str, arguments(shop, name, *options))
    command = [sys.executable, "-m", "beam_jobs.build_elwc"]
    command += ["--config", config, "--input", logs, "--output", output, *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert content(shop / name) == content(shop / "one")
    assert "Warning" not in done.stderr


@pytest.fixture
def worker_pool() -> Iterator[str]:
    """The address of a process that works for whoever asks, as one stands beside each machine of a cluster."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", "--service_port", str(port)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where the pool looks for a `python`
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PATH": path}, **quiet) as pool:
        deadline = time.monotonic() + 60
        while not _listens(port) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield f"localhost:{port}"
        pool.send_signal(signal.SIGINT)  # which ends its workers too


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_workers_that_the_launcher_did_not_start_make_the_same_dataset(shop: Path, worker_pool: str) -> None:
    options = ("--runner", "PortableRunner", "--job_endpoint", "embed")
    assert_same_dataset(shop, "pool", *options, "--environment_type", "EXTERNAL", "--environment_config", worker_pool)


def test_a_pipeline_that_publishes_its_dataset_itself_makes_the_same_though_its_steps_run_again(shop: Path) -> None:
    former = shutil.copytree(shop / "one", shop / "launched")
    (former / "train").mkdir()
    (former / "train" / "training_elwc-00009-of-00010.tfrecord.gz").write_bytes(b"not of any dataset")
    manifest = former / "manifest.json"
    manifest.write_text(manifest.read_text().replace(manifest_of(former).stage_key, "another"))
    options = ("--template_location", "as a Flex Template's launcher gives it", "--direct_runner_bundle_repeat", "2")
    config, logs, output, *more = map(str, arguments(shop, "launched", *options))
    build_elwc.main(["--config", config, "--input", logs, "--output", output, *more])
    assert content(shop / "launched") == content(shop / "one")
    files = [sorted(published(shop / name)) for name in ("launched", "one")]
    assert files[0] == files[1]
    stored = {f"{version_of(shop / 'launched').name}/{name}" for name in files[0]}
    foreign = "train/training_elwc-00009-of-00010.tfrecord.gz"
    assert set(everything(shop / "launched")) == {"manifest.json", foreign, *stored}
    with pytest.raises(InputError, match="up to date: there is nothing to launch"):
        build_elwc.main(["--config", config, "--input", logs, "--output", output, *more])


def test_more_shards_hold_the_same_groups_and_views_stay_aligned(shop: Path) -> None:
    task = (shop / "task.yaml").read_text().replace("dataset:", "dataset:\n  shards: 7")
    (shop / "sharded").mkdir(exist_ok=True)
    (shop / "sharded" / "task.yaml").write_text(task)
    arguments_of_one = arguments(shop, "sharded/dataset")
    manifest = build(shop / "sharded" / "task.yaml", *arguments_of_one[1:])
    many, one = shop / "sharded" / "dataset", shop / "one"
    assert content(many)[:5] == content(one)[:5]
    assert manifest.options["shards"] == 7
    shards = [
        sorted(path.name for path in (version_of(many) / "train").glob(f"{v}_elwc-*")) for v in ("training", "serving")
    ]
    assert 3 <= len(shards[0]) == len(shards[1]) <= 7
    for training, serving in zip(records(many, "train", "training"), records(many, "train", "serving"), strict=True):
        assert _query(training) == _query(serving)


def _query(record: bytes) -> str:
    from protos import elwc_pb2

    message = elwc_pb2.ExampleListWithContext.FromString(record)
    return str(message.context.features.feature["query"].bytes_list.value[0].decode())
