"""The command on datasets built by the real job: output, exit codes, reports and refusals."""

import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from beam_jobs import compare_datasets
from beam_jobs.compare_datasets import two_views
from beam_jobs.storage.tfrecords import frame_record
from features.elwc import QueryGroup, decode_group, encode_group
from features.errors import InputError
from tests.beam_jobs.datasets import build, manifest_of, records, write_task
from tests.beam_jobs.drift.samples import SHOP, draw
from tests.beam_jobs.letor_sets import LetorSet
from tests.beam_jobs.log_lines import act, impression, write_jsonl
from tests.published import version_of

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "beam_jobs.compare_datasets"]
GROUPS = 300
OPTIONS = {"min_distinct_users": 2, "splits": {"train": 0.6, "valid": 0.2, "test": 0.2}}


def log_of(groups: list[QueryGroup]) -> list[Any]:
    """The events of these groups: purchases are bought, prices of every tenth item left out."""
    rows: list[Any] = []
    for number, group in enumerate(groups):
        request = str(group.context["request_id"])
        items = [
            {"item_id": f"{item['item_id']}.{place}", "features": {
                name: item[name] for name in ("title", "picture", "stock", "new", "brand")
            } | ({} if (number + place) % 10 == 0 else {"price": item["price"]})}
            for place, item in enumerate(group.items)
        ]  # fmt: skip
        context = {"device": group.context["device"]}
        rows.append(
            impression(request, str(group.context["query"]), *items, user=f"user-{number % 50}", features=context)
        )
        rows += [
            act(kind, request, items[place]["item_id"])
            for place, item in enumerate(group.items)
            for kind in ("click", "purchase")
            if item[kind]
        ]
    return rows


def build_shop(folder: Path, seed: int, features: dict[str, Any] | None = None, **changed: float) -> Path:
    """A dataset of another draw of the shop."""
    folder.mkdir()
    logs = write_jsonl(folder / "events.jsonl", *log_of(draw(seed, GROUPS, **changed)))
    build(write_task(folder, features or SHOP, dataset=OPTIONS), logs, folder / "dataset")
    return folder / "dataset"


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shop(tmp_path_factory.mktemp("shop") / "monday", 1)


@pytest.fixture(scope="module")
def tuesday(monday) -> Path:
    return build_shop(monday.parents[1] / "tuesday", 2)


@pytest.fixture(scope="module")
def sale(monday) -> Path:
    """Prices are halved, twice as many purchases follow, and a new brand is everywhere."""
    return build_shop(monday.parents[1] / "sale", 3, price_factor=0.5, bought=0.15, new_brand=0.3)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


def compare(*arguments: str | Path) -> int:
    """The exit code, in this process."""
    try:
        compare_datasets.main([*map(str, arguments)])
    except SystemExit as stopped:
        return int(str(stopped.code))
    return 0


def report_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((version_of(folder) / "comparison.json").read_bytes())
    return found


def copy_of(dataset: Path, folder: Path) -> Path:
    return Path(shutil.copytree(dataset, folder / "copy"))


def shard_of(dataset: Path, view: str) -> Path:
    (path,) = (version_of(dataset) / "train").glob(f"{view}_elwc-*")
    return path


def rewrite(path: Path, contents: list[bytes]) -> None:
    path.write_bytes(gzip.compress(b"".join(map(frame_record, contents))))


class Run(NamedTuple):
    """The command as a process, and its output directory."""

    done: subprocess.CompletedProcess[str]
    output: Path

    @property
    def report(self) -> dict[str, Any]:
        return report_in(self.output)


@pytest.fixture(scope="module")
def two_nights(monday, tuesday) -> Run:
    return Run(run(monday, tuesday, "--output", monday / "nights"), monday / "nights")


@pytest.fixture(scope="module")
def a_sale(monday, sale) -> Run:
    return Run(run(monday, sale, "--output", sale / "drift"), sale / "drift")


# --- the command


def test_two_nights_of_one_shop_do_not_drift(monday, two_nights):
    done = two_nights.done
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:] == [
        "no drift in 15 features",
        f"wrote {version_of(two_nights.output)}/comparison.html",
    ]
    assert f"A: {monday}, {GROUPS} groups with " in done.stdout
    assert two_nights.report["drift"] is False


def test_a_sale_drifts_and_drifting_features_come_first(a_sale):
    assert (a_sale.done.returncode, a_sale.done.stderr) == (1, "")
    rows = [line.split() for line in a_sale.done.stdout.splitlines() if line.startswith(("DRIFT", "ok"))]
    assert {row[1] for row in rows if row[0] == "DRIFT"} == {"price", "purchase", "brand"}
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), key=["DRIFT", "ok"].index)
    assert {found["feature"] for found in a_sale.report["findings"] if found["drift"]} == {"price", "purchase", "brand"}


def test_a_comparison_leaves_a_report_but_no_sample(a_sale):
    names = sorted(path.name for path in a_sale.output.rglob("*") if path.is_file())
    assert names == ["comparison.html", "comparison.json", "manifest.json"]
    assert "drift in " in (version_of(a_sale.output) / "comparison.html").read_text()
    assert orjson.loads((a_sale.output / "manifest.json").read_bytes())["drift"] is True


def test_a_directory_without_a_manifest_is_refused(monday, tmp_path):
    done = run(monday, tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {tmp_path} has no manifest.json, expected a complete dataset: run beam_jobs.build_elwc\n"
    )


def test_help_shows_an_example_and_the_exit_codes(capsys):
    assert compare("--help") == 0
    out = capsys.readouterr().out
    assert "python -m beam_jobs.compare_datasets build/monday/dataset" in out
    assert "1 drift;" in out


def test_the_command_does_not_import_tensorflow():
    code = "import sys, beam_jobs.compare_datasets; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# --- what is compared


def test_the_report_counts_what_the_manifests_count(monday, two_nights):
    report, splits = two_nights.report, manifest_of(monday).splits
    price = report["features"]["price"]["a"]
    assert price["values"] == sum(split.items for split in splits.values()) == report["a"]["items"]
    assert price["missing"] == sum(split.features["price"].missing for split in splits.values()) > 0
    assert price["numbers"][""]["maximum"] == max(split.features["price"].maximum for split in splits.values())
    assert report["a"]["sampled_groups"] == report["a"]["groups"] == GROUPS
    assert set(report["features"]) == {*SHOP, "items"}
    findings = {(found["feature"], found["of"]): found for found in report["findings"]}
    bought = sum(split.items * split.features["purchase"].mean for split in splits.values())
    assert findings["purchase", "rate"]["a"] == pytest.approx(bought / report["a"]["items"])
    assert findings["price", "share missing"]["a"] == pytest.approx(price["missing"] / price["values"])


def test_the_report_shows_no_user_and_no_text_but_queries_of_enough_users(monday, tuesday, two_nights):
    written = (
        b"".join(path.read_bytes() for path in two_nights.output.rglob("*.*") if path.is_file()).decode()
        + two_nights.done.stdout
    )
    frequent = {
        orjson.loads(line)["query"]
        for dataset in (monday, tuesday)
        for line in gzip.decompress(
            (version_of(dataset) / "train" / "frequent_queries.jsonl.gz").read_bytes()
        ).splitlines()
    }
    shown = {entry["value"] for entry in two_nights.report["features"]["query"]["top"]}
    assert shown
    assert shown <= frequent
    assert "user-" not in written
    assert " no. " not in written  # which every title has
    assert "brand 1" in written


def test_a_large_dataset_is_sampled_by_group_deterministically(monday, tuesday, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compare_datasets, "SAMPLED_GROUPS", 150)
    assert compare(monday, tuesday, "--output", tmp_path / "one") == 0
    assert compare(monday, tuesday, "--output", tmp_path / "two") == 0
    one, two = report_in(tmp_path / "one"), report_in(tmp_path / "two")
    assert one == two
    assert 100 < one["a"]["sampled_groups"] < 200
    assert one["a"]["groups"] == GROUPS
    assert "groups sampled at random" in capsys.readouterr().out


def test_the_sample_is_bounded_in_groups_and_in_numbers(monday, monkeypatch):
    side, _ = two_views(str(monday))
    assert side.sampled_share == 1
    monkeypatch.setattr(compare_datasets, "SAMPLED_GROUPS", GROUPS // 4)
    assert side.sampled_share == 1 / 4
    # query and device once a group; title, price, stock, new, brand and a picture of three numbers once an item
    numbers = 2 * GROUPS + 8 * side.items
    monkeypatch.setattr(compare_datasets, "SAMPLED_NUMBERS", numbers // 10)
    assert side.sampled_share == pytest.approx(1 / 10, rel=0.01)


def test_the_thresholds_file_decides_what_is_drift(monday, sale, tmp_path):
    (tmp_path / "thresholds.yaml").write_text(
        "{rate_change: null, missing_change: null, features: {brand: {share_change: 1, divergence: 1, unseen: 1}, "
        "price: {divergence: 1}}}"
    )
    assert compare(monday, sale, "--config", tmp_path / "thresholds.yaml") == 0


def test_letor_datasets_are_compared_by_their_vectors(tmp_path, capsys):
    shop = LetorSet(tmp_path)
    shop.build("one")
    shop.task(seed=4)
    shop.build("two")
    assert compare(tmp_path / "one", tmp_path / "two") == 0
    assert "divergence of element" in capsys.readouterr().out


# --- other features


@pytest.mark.slow
def test_other_features_are_named_and_the_common_ones_compared(monday, tmp_path, capsys):
    features = {**SHOP, "price": {"type": "int", "level": "item", "default": 0}}
    (tmp_path / "events.jsonl").write_bytes(
        (monday.parent / "events.jsonl").read_bytes().replace(b'"price":', b'"cost":')
    )
    build(write_task(tmp_path, features, dataset=OPTIONS), tmp_path / "events.jsonl", tmp_path / "dataset")
    assert compare(monday, tmp_path / "dataset", "--output", tmp_path / "drift") == 1
    assert "the features differ (price: type 'float' here, 'int' there)" in capsys.readouterr().out
    report = report_in(tmp_path / "drift")
    assert set(report["features"]) == {*SHOP, "items"} - {"price"}
    assert not any(found["drift"] for found in report["findings"])


# --- views


def test_the_views_of_a_dataset_are_the_same(monday, capsys):
    assert compare(monday) == 0
    out = capsys.readouterr().out
    assert "groups that differ between the views" in out
    assert out.splitlines()[-1] == "no drift in 9 features"


def test_a_serving_view_that_differs_in_a_feature_of_some_groups_is_found(monday, tmp_path, capsys):
    dataset, spec = copy_of(monday, tmp_path), manifest_of(monday).spec
    groups = [decode_group(record, spec) for record in records(dataset, "train", "serving")]
    for group in groups[:5]:
        group.items[0]["price"] = 1e6
    rewrite(shard_of(dataset, "serving"), [encode_group(group, spec, "serving") for group in groups[::-1]])
    assert compare(dataset, "--output", tmp_path / "skew") == 1
    differing = {f["feature"]: f["value"] for f in report_in(tmp_path / "skew")["findings"] if f["drift"]}
    assert differing == {"price": 5 / GROUPS, "whole group": 5 / GROUPS}
    assert capsys.readouterr().out.splitlines()[-2] == "drift in price, whole group"


def test_a_serving_view_with_privileged_features_is_found(monday, tmp_path, capsys):
    dataset = copy_of(monday, tmp_path)
    rewrite(shard_of(dataset, "serving"), records(dataset, "train", "training"))
    assert compare(dataset) == 1
    assert "not a regular feature, but in" in capsys.readouterr().out


# --- refusals


def refusal(*arguments: str | Path) -> str:
    with pytest.raises(InputError) as raised:
        compare(*arguments)
    return str(raised.value)


def test_a_truncated_file_is_refused_by_name(monday, tmp_path):
    dataset = copy_of(monday, tmp_path)
    path = shard_of(dataset, "training")
    path.write_bytes(path.read_bytes()[:-100])
    message = refusal(monday, dataset, "--output", tmp_path / "drift")
    assert f"{path} cannot read to its end" in message
    assert "damaged" in message
    assert not (tmp_path / "drift").exists()


def test_a_changed_byte_is_refused_by_name(monday, tmp_path):
    dataset = copy_of(monday, tmp_path)
    path = shard_of(dataset, "training")
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[len(content) // 2] ^= 1
    path.write_bytes(gzip.compress(content))
    assert f"{path} cannot read to its end: " in refusal(dataset, monday)


def test_a_group_count_that_differs_from_the_manifest_is_refused(monday, tmp_path):
    dataset = copy_of(monday, tmp_path)
    rewrite(shard_of(dataset, "training"), records(dataset, "train", "training")[1:])
    assert f"holds {GROUPS - 1} groups, but its manifest says {GROUPS}" in refusal(monday, dataset)


def test_a_missing_file_is_refused(monday, tmp_path):
    dataset = copy_of(monday, tmp_path)
    shard_of(dataset, "serving").unlink()
    assert "matches no file" in refusal(dataset)


def test_records_that_are_not_groups_are_refused(monday, tmp_path):
    dataset = copy_of(monday, tmp_path)
    count = len(records(dataset, "train", "training"))
    rewrite(shard_of(dataset, "training"), [b"\xff\xff\xff"] * count)
    assert "is not a query group of its features" in refusal(monday, dataset)
    assert "records are not query groups" in refusal(dataset)


def test_datasets_that_share_no_feature_are_refused(monday, tmp_path):
    dataset, manifest = copy_of(monday, tmp_path), manifest_of(monday)
    renamed = {f"other_{name}": fields for name, fields in manifest.features.items()}
    (dataset / "manifest.json").write_bytes(manifest.model_copy(update={"features": renamed}).to_bytes())
    assert "have no feature in common" in refusal(monday, dataset)


def test_a_dataset_without_groups_is_refused(monday, tmp_path):
    dataset, manifest = copy_of(monday, tmp_path), manifest_of(monday)
    (dataset / "manifest.json").write_bytes(manifest.model_copy(update={"splits": {}}).to_bytes())
    assert "has no query group" in refusal(dataset)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["again", "again"], "3 datasets given"),
        (["--shard", "5"], "unknown option --shard"),
        (["--runner", "apache_beam.runners.direct.direct_runner.DirectRunner"], "--output is not set"),
        (["--config", "no-such.yaml"], "cannot read thresholds file no-such.yaml"),
    ],
)
def test_wrong_arguments_are_refused(monday, more, expected):
    assert expected in refusal(monday, *more)


def test_an_output_that_is_not_a_comparison_is_not_replaced(monday, tuesday, tmp_path):
    kept = copy_of(monday, tmp_path)
    assert "is no comparison manifest" in refusal(monday, tuesday, "--output", kept)
    assert manifest_of(kept) == manifest_of(monday)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("years of work")
    assert "not ours to replace" in refusal(monday, tuesday, "--output", tmp_path / "thesis")


def test_a_comparison_replaces_the_previous_one(monday, tuesday, a_sale, tmp_path):
    shutil.copytree(a_sale.output, tmp_path / "drift")
    assert compare(monday, tuesday, "--output", tmp_path / "drift") == 0
    assert report_in(tmp_path / "drift")["drift"] is False
    assert not [path.name for path in tmp_path.iterdir() if ".building" in path.name or ".former" in path.name]
