"""A run reads what was built for its task, complete, and says what that is."""

import json
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import yaml

from features.errors import InputError
from tests.trainer.shop import NUMBERS, data_of, write_shop, write_task
from trainer.__main__ import argument_parser
from trainer.config import load_config
from trainer.pipeline.fit import fit
from trainer.pipeline.inputs import DataPaths, describe_dataset, open_inputs

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OPTIONS = {"windows_hours": {"click": 1, "purchase": 168.0}, "splits": {"by": "time", "test_from": "2025-03-10"}}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The folder of a tiny shop without text that a test may change."""
    write_shop(tmp_path, NUMBERS)
    return tmp_path


def change_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def refusal(root: Path, data: DataPaths | None = None, **sections: Any) -> str:
    """The message of a `fit` that is refused before it writes anything."""
    task = write_task(root, **{"features": NUMBERS, **sections})
    with pytest.raises(InputError) as refused:
        fit(load_config(str(task)), data or data_of(root, NUMBERS), str(root / "run"))
    assert not (root / "run").exists()
    return str(refused.value)


def test_fit_says_which_dataset_it_reads_of_which_logs(shop: Path) -> None:
    inputs = open_inputs(load_config(str(shop / "task.yaml")), data_of(shop, NUMBERS))
    told = describe_dataset(str(shop / "dataset"), inputs.dataset)
    assert re.fullmatch(
        rf"dataset {shop}/dataset: 160 groups, built \d{{4}}-\d\d-\d\dT\S+ from "
        rf"{shop}/logs/0.jsonl.gz, {shop}/logs/1.jsonl.gz, {shop}/logs/2.jsonl.gz and 2 more",
        told,
    )


def test_a_dataset_of_another_task_is_refused(shop: Path) -> None:
    assert refusal(shop, name="other_shop") == (
        f"dataset {shop}/dataset was built for the task 'tiny_shop', expected 'other_shop', which the task file has "
        "for its name: give --dataset the directory of this task, or run build_elwc with this task file"
    )


def test_a_vocabulary_of_another_task_is_refused(tmp_path: Path) -> None:
    write_shop(tmp_path)
    change_manifest(tmp_path / "vocabulary", lambda manifest: manifest.update(task="demo"))
    config = load_config(str(tmp_path / "task.yaml"))
    with pytest.raises(InputError, match=r"vocabulary .* was built for the task 'demo', expected 'tiny_shop'"):
        open_inputs(config, data_of(tmp_path))


@pytest.mark.parametrize(
    ("section", "difference"),
    [
        ({"windows_hours": {"click": 2}}, "dataset.windows_hours.click 1, where the task file has 2"),
        ({"splits": {"by": "time", "test_from": date(2025, 4, 1)}}, "dataset.splits.test_from '2025-03-10', where"),
    ],
)
def test_a_dataset_built_with_other_settings_is_refused(shop: Path, section: Any, difference: str) -> None:
    change_manifest(shop / "dataset", lambda manifest: manifest["options"].update(OPTIONS))
    said = refusal(shop, dataset=section)
    assert f"from {shop}/logs/0.jsonl.gz" in said
    assert f"was built with {difference}" in said
    assert said.endswith("run build_elwc with this task file")


def test_the_same_settings_written_otherwise_are_no_difference(shop: Path) -> None:
    change_manifest(shop / "dataset", lambda manifest: manifest["options"].update(OPTIONS))
    same = {"windows_hours": {"click": 1.0}, "splits": {"test_from": date(2025, 3, 10)}}
    open_inputs(load_config(str(write_task(shop, NUMBERS, dataset=same))), data_of(shop, NUMBERS))


@pytest.mark.parametrize("view", ["training", "serving"])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_shard_that_is_not_there_is_refused(shop: Path, split: str, view: str) -> None:
    (shop / "dataset" / split / f"{view}_elwc-00001-of-00002.tfrecord.gz").unlink()
    said = refusal(shop)
    name = f"{split}/{view}_elwc-00001-of-00002.tfrecord.gz"
    assert said.endswith(f"{name} is not there, though the manifest lists it: run build_elwc again")


def test_a_shard_of_another_size_is_refused(shop: Path) -> None:
    name = "train/training_elwc-00001-of-00002.tfrecord.gz"
    size = (shop / "dataset" / name).stat().st_size
    (shop / "dataset" / name).write_bytes(b"cut")
    assert f"{name} has 3 bytes, expected {size}, as the manifest says: run build_elwc again" in refusal(shop)


def test_a_dataset_of_fewer_groups_than_its_manifest_counts_is_refused(shop: Path) -> None:
    path = shop / "dataset" / "train" / "training_elwc-00001-of-00002.tfrecord.gz"
    groups = list(tf.data.TFRecordDataset(str(path), "GZIP").as_numpy_iterator())
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for group in groups[:-3]:
            writer.write(group)
    name, size = str(path.relative_to(shop / "dataset")), path.stat().st_size
    change_manifest(shop / "dataset", lambda manifest: manifest["files"][name].update(bytes=size))
    config = load_config(str(write_task(shop, NUMBERS)))
    with pytest.raises(InputError, match=r"a split has only 93 groups, expected 96, as .*: run build_elwc again$"):
        fit(config, data_of(shop, NUMBERS), str(shop / "run"))


def test_a_vocabulary_that_nothing_reads_is_refused(shop: Path) -> None:
    said = refusal(shop, DataPaths(str(shop / "dataset"), str(shop / "vocabulary")))
    assert said.endswith("but no regular feature is a text, so nothing reads it: leave it out")


# ---- true relevance


def relevance_of(shop: Path, kept: int) -> tuple[int, int]:
    """Keeps the relevance of every item of some positive test groups alone; returns how many these and all are."""
    from trainer.pipeline.query_groups import positive_test_groups
    from trainer.pipeline.run import Run

    groups = positive_test_groups(Run(load_config(str(shop / "task.yaml")), data_of(shop, NUMBERS), str(shop / "none")))
    items = {item for ids in groups.item_ids[:kept] for item in ids}
    header, *rows = (shop / "relevance.tsv").read_text().splitlines()
    (shop / "relevance.tsv").write_text("\n".join([header, *(r for r in rows if r.split("\t")[1] in items)]) + "\n")
    return len(items), sum(map(len, groups.item_ids))


def test_relevance_of_other_logs_is_refused_with_counts_before_anything_is_trained(shop: Path) -> None:
    header, *rows = (shop / "relevance.tsv").read_text().splitlines()
    (shop / "relevance.tsv").write_text("\n".join([header, *(row.replace("\tp", "\tother-") for row in rows)]) + "\n")
    said = refusal(shop)
    _, items = relevance_of(shop, 0)
    assert f"has the relevance of 0 of {items} items, and an item above 0 for 0 of 24 groups" in said
    assert "expected at least 10% of these groups: give the file that belongs to these logs, or leave it out" in said


@pytest.mark.parametrize(("kept", "enough"), [(2, False), (3, True)])  # of 24 groups a tenth is between them
def test_relevance_of_too_few_groups_is_refused(shop: Path, kept: int, enough: bool) -> None:
    from trainer.pipeline.query_groups import check_relevance
    from trainer.pipeline.run import Run

    known, items = relevance_of(shop, kept)
    run = Run(load_config(str(shop / "task.yaml")), data_of(shop, NUMBERS), str(shop / "run"))
    told = f"{known} of {items} items, and an item above 0 for {kept} of 24 groups"
    if enough:
        assert told in str(check_relevance(run))
    else:
        with pytest.raises(InputError, match=told):
            check_relevance(run)


def test_relevance_without_items_ids_is_refused(tmp_path: Path) -> None:
    features = {name: fields for name, fields in NUMBERS.items() if name != "item_id"}
    write_shop(tmp_path, features)
    assert "but no feature of the items is an id, by which it is found: leave it out" in refusal(
        tmp_path, features=features
    )


# ---- documents


def fit_commands() -> list[Any]:
    """Every `trainer fit` of the documents, the Makefile and the containers, without line breaks."""
    places = [*DOCUMENTS, ROOT / "Makefile", ROOT / "trainer" / "__main__.py"]
    texts = {path.name: re.sub(r"\\+\n", " ", path.read_text()) for path in places}
    found = [(name, c) for name, text in texts.items() for c in re.findall(r"-m trainer (fit --config[^\n`]*)", text)]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    found.append(("docker-compose.yml", " ".join(services["train"]["command"])))
    return [pytest.param(command, id=f"{name}: {command[:50]}") for name, command in found]


@pytest.mark.parametrize("command", fit_commands())
def test_every_fit_of_the_documents_has_the_flags_that_fit_takes(command: str) -> None:
    arguments = argument_parser().parse_args(command.split())
    assert arguments.dataset
    # vectors need none, and a pretrained encoder brings its own
    assert (arguments.vocabulary is None) == ("letor" in arguments.config or arguments.config == "configs/text.yaml")


def test_the_commands_of_bring_your_own_logs_hand_on_what_each_makes() -> None:
    section = (ROOT / "README.md").read_text().split("## Bring your own logs")[1].split("\n## ")[0]
    commands = dict(re.findall(r"python -m (\S+) (.*)", section))
    assert list(commands) == ["beam_jobs.build_elwc", "beam_jobs.build_vocabulary", "trainer", "serving"]
    flags = {name: dict(re.findall(r"--(\S+) '?([^\s']+)", line)) for name, line in commands.items()}
    built, learned, fitted, served = flags.values()
    assert built["config"] == learned["config"] == fitted["config"] == "shop.yaml"
    assert built["output"] == learned["dataset"] == fitted["dataset"]
    assert learned["output"] == fitted["vocabulary"]
    assert served["export-dir"] == f"{fitted['workdir']}/export"
    assert "`name:` of its own" in section
