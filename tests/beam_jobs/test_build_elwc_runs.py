"""The command: wrong inputs, reruns, failures and kills; a former dataset stays until a new one is whole."""

import gzip
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.build_elwc import main
from features.errors import InputError
from tests.beam_jobs.datasets import ANY_LOSS, build, manifest_of, write_task
from tests.beam_jobs.log_lines import impression, write_jsonl
from tests.features.specs import DEMO
from tests.published import contents as published
from tests.published import version_of

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "beam_jobs.build_elwc"]


def shown(count: int, prefix: str = "r") -> list[Any]:
    return [impression(f"{prefix}{n}", f"query {n}", "p1", "p2") for n in range(count)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def leftovers(folder: Path) -> list[str]:
    """What a job left beside its output, its lock aside."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".") and not path.name.endswith(".lock")]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "events.jsonl", *shown(5))
    write_task(tmp_path)
    return tmp_path


def arguments(shop: Path, **changed: str) -> list[str]:
    given = {
        "config": str(shop / "task.yaml"),
        "input": str(shop / "events.jsonl"),
        "output": str(shop / "dataset"),
        **changed,
    }
    return [word for name, value in given.items() for word in (f"--{name}", value)]


def refusal(shop: Path, **changed: str) -> str:
    with pytest.raises(InputError) as raised:
        main(arguments(shop, **changed))
    assert not (shop / "dataset").exists()
    assert not leftovers(shop)
    return str(raised.value)


def test_a_process_with_a_wrong_input_says_so_and_exits_2(shop):
    done = subprocess.run(
        [*COMMAND, *arguments(shop, input="no-such-*.jsonl")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == ("error: --input 'no-such-*.jsonl' matches no file: give paths or globs of existing files\n")
    assert not (shop / "dataset").exists()


def test_help_shows_an_example():
    done = subprocess.run([*COMMAND, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert "python -m beam_jobs.build_elwc --config" in done.stdout


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "the logs hold no event"),
        ([b"\n\n"], "the logs hold no event"),
        ([b"garbage"], "hold no impression"),
        ([impression("r1", "sofa", "p1")], "no impression in the logs makes a query group (refused: too_few_items 1;"),
    ],
    ids=["empty", "blank lines", "garbage", "no usable group"],
)
def test_logs_without_a_query_group_are_refused(shop, rows, expected):
    write_jsonl(shop / "events.jsonl", *rows)
    assert expected in refusal(shop)


def test_a_log_that_is_no_gzip_is_refused(shop):
    (shop / "events.jsonl.gz").write_bytes(b"plain text")
    assert "events.jsonl.gz cannot read to its end" in refusal(shop, input=str(shop / "events.jsonl.gz"))


def test_a_directory_is_no_log(shop):
    assert "matches no file" in refusal(shop, input=str(shop))


WRONG_SECTIONS = {
    "dataset.min_item": {"dataset": {"min_item": 3}},
    "dataset.splits is": {"dataset": {"splits": {"train": 0.5, "valid": 0.1, "test": 0.1}}},
    "dataset.min_items is 0": {"dataset": {"min_items": 0}},
    "dataset.windows_hours.click is": {"dataset": {"windows_hours": {"click": "1h"}}},
    "max_items 1 is below min_items 2": {"dataset": {"max_items": 1}},
    "seed is 'seven'": {"seed": "seven"},
    "features.position: type text": {
        "features": {**DEMO, "position": {"type": "text", "level": "item", "role": "privileged"}}
    },
    "features.query: level item": {"features": {**DEMO, "query": {"type": "text", "level": "item"}}},
}


@pytest.mark.parametrize("expected", WRONG_SECTIONS)
def test_a_wrong_config_is_refused(shop, expected):
    write_task(shop, **WRONG_SECTIONS[expected])
    assert expected in refusal(shop)


def test_an_option_that_nobody_has_is_refused(shop):
    assert "unknown option --shard" in refusal(shop, shard="5")


def test_an_output_that_is_not_ours_is_not_replaced(shop):
    (shop / "dataset").mkdir()
    (shop / "dataset" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"holds files but no manifest\.json"):
        main(arguments(shop))
    assert contents(shop / "dataset") == {"thesis.txt": b"years of work"}


def test_a_second_run_is_up_to_date_and_a_changed_option_runs_again(shop, capsys):
    build(shop / "task.yaml", shop / "events.jsonl", shop / "dataset")
    first = contents(shop / "dataset")
    capsys.readouterr()
    main(arguments(shop))
    assert capsys.readouterr().out == f"up to date: {shop / 'dataset'}\n"
    assert contents(shop / "dataset") == first
    write_task(shop, dataset={"windows_hours": {"click": 2}})
    main(arguments(shop))
    assert "wrote" in capsys.readouterr().out
    assert manifest_of(shop / "dataset").options["windows_hours"]["click"] == 2


@pytest.mark.slow
def test_changed_logs_run_again(shop):
    assert build(shop / "task.yaml", shop / "events.jsonl", shop / "dataset").events["impression"].read == 5
    write_jsonl(shop / "events.jsonl", *shown(6))
    assert build(shop / "task.yaml", shop / "events.jsonl", shop / "dataset").events["impression"].read == 6
    assert not leftovers(shop)


def test_the_same_input_gives_the_same_records(shop):
    build(shop / "task.yaml", shop / "events.jsonl", shop / "one")
    build(shop / "task.yaml", shop / "events.jsonl", shop / "two")
    assert published(shop / "one") == published(shop / "two")


def test_a_job_that_fails_leaves_the_former_dataset(shop):
    build(shop / "task.yaml", shop / "events.jsonl", shop / "dataset")
    first = contents(shop / "dataset")
    whole = gzip.compress(b"\n".join(b'{"a": %d}' % n for n in range(50_000)))
    (shop / "events.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"events\.jsonl\.gz cannot read to its end.*damaged or was cut short"):
        main(arguments(shop, input=str(shop / "events.jsonl*")))
    assert contents(shop / "dataset") == first
    assert not leftovers(shop)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="SIGKILL"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, id="SIGINT", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_killed_job_leaves_the_former_dataset_and_the_next_run_cleans_up(shop, how):
    build(shop / "task.yaml", shop / "events.jsonl", shop / "dataset")
    first = contents(shop / "dataset")
    large = write_jsonl(shop / "more.jsonl", *shown(20_000, "more"))
    process = subprocess.Popen([*COMMAND, *arguments(shop, input=str(large))], cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(shop.glob("dataset/run-*/scratch/parts/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, "the job ended before it could be killed"
    os.kill(process.pid, how)
    assert process.wait(60) != 0
    assert {name: content for name, content in contents(shop / "dataset").items() if name in first} == first
    write_task(shop, seed=4)
    main(arguments(shop))
    assert len(list((shop / "dataset").iterdir())) == 2
    assert manifest_of(shop / "dataset").events["impression"].read == 5


def test_old_dead_letters_are_deleted(shop, capsys):
    write_task(shop, dataset={"limits": ANY_LOSS})
    write_jsonl(shop / "events.jsonl", *shown(5), b"garbage")
    build(shop / "task.yaml", shop / "events.jsonl", shop / "dataset")
    (letters,) = (version_of(shop / "dataset") / "dead_letters").iterdir()
    main(arguments(shop))
    assert letters.exists()
    long_ago = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    manifest = manifest_of(shop / "dataset").model_copy(update={"created": long_ago})
    (shop / "dataset" / "manifest.json").write_bytes(manifest.to_bytes())
    main(arguments(shop))
    assert not letters.exists()
    assert "dead_letter_days (30)" in capsys.readouterr().out
    assert sorted(published(shop / "dataset")) == sorted(name for name in manifest.files if "dead" not in name)


def test_no_dead_letters_are_written_when_their_days_are_0(shop):
    write_task(shop, dataset={"dead_letter_days": 0, "limits": ANY_LOSS})
    write_jsonl(shop / "events.jsonl", *shown(5), b"garbage")
    assert build(shop / "task.yaml", shop / "events.jsonl", shop / "dataset").refused == {"not_json": 1}
    assert not [name for name in published(shop / "dataset") if "dead_letters" in name]
