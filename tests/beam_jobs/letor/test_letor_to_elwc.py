"""The whole job on small data sets: selection, output, reproducibility and refusals."""

import csv
import gzip
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs.letor_to_elwc import main
from features.elwc import QueryGroup
from features.errors import InputError
from tests.beam_jobs.datasets import groups, manifest_of, records
from tests.beam_jobs.letor_sets import ROOT, LetorSet, features, line, random_lines, write
from tests.published import contents as published
from tests.published import version_of

COMMAND = [sys.executable, "-m", "beam_jobs.letor_to_elwc"]


@pytest.fixture
def letor(tmp_path: Path) -> LetorSet:
    return LetorSet(tmp_path)


def by_query(dataset: Path, *splits: str, view: Any = "training") -> dict[str, QueryGroup]:
    return {str(group.context["query"]): group for group in groups(dataset, view, *splits).values()}


def labels(dataset: Path) -> dict[tuple[Any, Any], Any]:
    """(query, item id) -> label, over all splits."""
    found = by_query(dataset)
    return {(query, item["item_id"]): item["label"] for query, group in found.items() for item in group.items}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- what stays, and what becomes of it ----


def test_groups_without_relevance_or_with_few_documents_are_left_out_and_counted(letor):
    letor.task(features(4, 2, "int"), labels="graded", min_documents=2)
    write(
        letor.folder / "train.txt",
        *(line(1, 1, [1, 2, 3]), line(0, 1, [4, 5, 6])),
        *(line(0, 2, [1, 2, 3]), line(0, 2, [4, 5, 6]), line(0, 2, [7, 8, 9])),  # no relevance
        line(2, 3, [1, 2, 3]),                                                   # one document
        line(0, 4, [1, 2, 3]),                                                   # both
    )  # fmt: skip
    manifest = letor.build()
    assert list(by_query(letor.folder / "dataset", "train")) == ["1"]
    assert manifest.options["left_out"]["train"] == {"no_relevance": 2, "too_few_documents": 1}
    groups_, documents = manifest.events["group"], manifest.events["document"]
    assert (groups_.read, groups_.used, groups_.unmatched) == (4 + 40, 1 + 40, 3)
    assert (documents.read, documents.used, documents.unmatched) == (7 + 480, 2 + 480, 5)
    train = manifest.splits["train"]
    assert (train.groups, train.groups_with_label, train.items) == (1, 1, 2)


def test_features_are_the_logarithm_of_one_plus_their_magnitude_with_their_sign(letor):
    letor.task(features(6, 0, "int"), labels="graded")
    write(
        letor.folder / "train.txt", b"2 qid:1 1:1 3:-9 #docid = A\n", b"0 qid:1 2:1.7976931348623157e+308 #docid = B\n"
    )
    letor.build()
    (group,) = by_query(letor.folder / "dataset", "train").values()
    found = {item["item_id"]: item["regular"] for item in group.items}
    np.testing.assert_allclose(found["A"], [np.log(2), 0, -np.log(10), 0, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(found["B"], [0, np.log(1.7976931348623157e308), 0, 0, 0, 0], rtol=1e-6)
    assert {item["item_id"]: item["label"] for item in group.items} == {"A": 2, "B": 0}


def test_privileged_are_the_features_most_correlated_on_train_and_test_cannot_change_them(letor):
    manifest = letor.build()
    chosen = manifest.options
    assert chosen["privileged"] == [2, 5]  # as `random_lines` made them
    assert chosen["regular"] == [1, 3, 4, 6]
    items = [item for group in by_query(letor.folder / "dataset", "train").values() for item in group.items]
    columns = np.empty((len(items), 6))
    columns[:, np.array(chosen["regular"]) - 1] = [item["regular"] for item in items]
    columns[:, np.array(chosen["privileged"]) - 1] = [item["privileged"] for item in items]
    expected = np.corrcoef(columns.T, [item["label"] for item in items])[-1, :-1]
    found = [chosen["correlations"][str(feature)] for feature in range(1, 7)]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert abs(expected[1]) > abs(expected[4]) > np.abs(expected[[0, 2, 3, 5]]).max()

    noise = np.random.default_rng(1).normal(size=(2, 12, 6)).tolist()
    for split, query, rows in (("valid", 500, noise[0]), ("test", 501, noise[1])):
        write(letor.folder / f"{split}.txt", *(line(place % 3, query, row) for place, row in enumerate(rows)))
    changed = letor.build("changed").options
    assert {key: changed[key] for key in ("correlations", "privileged", "regular")} == {
        key: chosen[key] for key in ("correlations", "privileged", "regular")
    }


def test_all_features_may_be_regular(letor):
    letor.task(features(6, 0))
    manifest = letor.build()
    assert (manifest.options["regular"], manifest.options["privileged"]) == ([1, 2, 3, 4, 5, 6], [])
    assert "privileged" not in next(iter(by_query(letor.folder / "dataset").values())).items[0]


def test_statistics_are_those_of_the_stored_numbers(letor):
    manifest = letor.build()
    items = [item for group in by_query(letor.folder / "dataset", "valid").values() for item in group.items]
    rows = np.array([item["regular"] for item in items])
    found = manifest.splits["valid"].features["regular"]
    assert found.count == len(items)
    np.testing.assert_allclose(found.minimum, rows.min(axis=0))
    np.testing.assert_allclose(found.maximum, rows.max(axis=0))
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.deviation, rows.std(axis=0), atol=1e-12)
    positive = [bool(item["label"]) for item in items]
    assert manifest.splits["valid"].features["label"].mean == pytest.approx(np.mean(positive))


def test_the_serving_view_holds_regular_features_alone_of_the_same_groups_in_the_same_order(letor):
    letor.build()
    dataset = letor.folder / "dataset"
    for split in ("train", "valid", "test"):
        training = list(groups(dataset, "training", split).values())
        serving = list(groups(dataset, "serving", split).values())
        assert [[item["regular"] for item in group.items] for group in training] == [
            [item["regular"] for item in group.items] for group in serving
        ]
        assert all(group.context == {} and item.keys() == {"regular"} for group in serving for item in group.items)
        for name in (b"query", b"item_id", b"privileged", b"label", b"relevance"):
            assert not any(name in record for record in records(dataset, split, "serving"))


def test_the_order_of_documents_is_independent_of_relevance(letor):
    ranked = [line(3 - place // 5, query, [place]) for query in range(300) for place in range(20)]  # best first
    write(letor.folder / "train.txt", *ranked)
    letor.task(features(1, 0, "int"), labels="graded")
    for split, query in (("valid", 1000), ("test", 1001)):
        write(letor.folder / f"{split}.txt", line(1, query, [1]), line(0, query, [2]))
    letor.build()
    grades = np.array(
        [[item["label"] for item in g.items] for g in by_query(letor.folder / "dataset", "train").values()]
    )
    error = np.sqrt(1.25 / 300)  # of a place's mean over 300 groups; grades 0 to 3 have the variance 1.25
    assert np.abs(grades.mean(axis=0) - 1.5).max() < 4.5 * error


def test_true_relevance_is_written_to_a_separate_table_for_evaluation(letor):
    letor.build()
    dataset = letor.folder / "dataset"
    for split in ("train", "valid", "test"):
        content = gzip.decompress((version_of(dataset) / split / "relevance.tsv.gz").read_bytes()).decode()
        rows = list(csv.DictReader(content.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
        written = [(q, item["item_id"]) for q, group in by_query(dataset, split).items() for item in group.items]
        assert [(row["query"], row["item_id"]) for row in rows] == written
        relevance = [int(text.split()[0]) for text in (letor.folder / f"{split}.txt").read_bytes().splitlines()]
        assert sorted(int(row["relevance"]) for row in rows) == sorted(relevance)


# ---- what decides it ----


@pytest.mark.slow
def test_labels_and_items_do_not_depend_on_the_order_of_lines_groups_files_and_workers(letor):
    letor.build()
    expected = labels(letor.folder / "dataset")
    lines = (letor.folder / "train.txt").read_bytes().splitlines(keepends=True)
    of_query = [lines[start : start + 12] for start in range(0, len(lines), 12)]
    rng = np.random.default_rng(0)
    for group in of_query:
        rng.shuffle(group)
    rng.shuffle(of_query)
    write(letor.folder / "b.txt.gz", *chain(*of_query[:7]))
    write(letor.folder / "a.txt.xz", *chain(*of_query[7:]))
    manifest = letor.build("shuffled", train=["b.txt.gz", "a.txt.xz"], workers=2)
    assert labels(letor.folder / "shuffled") == expected
    assert manifest.options["privileged"] == manifest_of(letor.folder / "dataset").options["privileged"]
    assert any(expected.values())
    assert not all(expected.values())


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(letor):
    write(letor.folder / "train2.txt", *random_lines(range(700, 720), seed=7))
    for name, workers in (("one", 1), ("two", 2)):
        letor.build(name, train=["train.txt", "train2.txt"], workers=workers)
    one, two = published(letor.folder / "one"), published(letor.folder / "two")
    assert {name for name in one if one[name] != two[name]} <= {"manifest.json"}  # it holds the time
    assert len([name for name in one if name.startswith("train/training_elwc")]) == 2


def test_another_seed_draws_other_labels_and_graded_ones_are_the_relevance(letor):
    letor.build("three")
    letor.task(seed=4)
    letor.build("four")
    letor.task(features(4, 2, "int"), labels="graded")
    letor.build("graded")
    three, four, graded = (labels(letor.folder / name) for name in ("three", "four", "graded"))
    assert three.keys() == four.keys() == graded.keys()
    assert three != four
    assert set(graded.values()) == {0, 1, 2}
    rates = [np.mean([three[key] for key in three if graded[key] == grade]) for grade in (0, 1, 2)]
    # sigma(4 * (r - 1)) of some 240 documents each: 0.018, 0.5, 0.982
    np.testing.assert_allclose(rates, [0.018, 0.5, 0.982], atol=0.1)


def test_a_second_run_is_up_to_date_and_a_changed_option_or_file_runs_again(letor, capsys):
    letor.build()
    first = contents(letor.folder / "dataset")
    capsys.readouterr()
    letor.build()
    assert capsys.readouterr().out == f"up to date: {letor.folder / 'dataset'}\n"
    assert contents(letor.folder / "dataset") == first
    letor.task(tau=1.5)
    assert letor.build().options["tau"] == 1.5
    write(letor.folder / "test.txt", *random_lines(range(900, 903), seed=5))
    assert letor.build().splits["test"].groups == 3


# ---- what is refused ----


def refusal(letor: LetorSet, **changed: Any) -> str:
    with pytest.raises(InputError) as raised:
        main(letor.arguments(**changed))
    assert not (letor.folder / "dataset").exists()
    assert not [path for path in letor.folder.iterdir() if path.name.startswith(".") and path.suffix != ".lock"]
    return str(raised.value)


def test_a_query_in_two_splits_is_refused(letor):
    write(letor.folder / "test.txt", *random_lines([900, 7], seed=5))
    message = refusal(letor)
    assert message == (
        f"qid 7 is in {letor.folder}/train.txt (train) and {letor.folder}/test.txt (test), expected all of a query's "
        "lines in one file of one split"
    )
    assert "(train) and" in refusal(letor, test="train.txt")


def test_a_query_in_two_files_of_a_split_is_refused(letor):
    write(letor.folder / "more.txt", *random_lines([19, 901], seed=5))
    assert f"qid 19 is in {letor.folder}/more.txt (train) and" in refusal(letor, train=["train.txt", "more.txt"])


def test_a_query_with_separated_lines_is_refused(letor):
    lines = (letor.folder / "train.txt").read_bytes().splitlines(keepends=True)
    write(letor.folder / "train.txt", *lines, *random_lines([3], seed=5))
    message = refusal(letor)
    assert (
        f"{letor.folder}/train.txt: the lines of qid 3 are not consecutive; sort the file by query: sort -s" in message
    )


def test_a_split_whose_groups_are_all_left_out_is_refused_with_the_reasons(letor):
    write(letor.folder / "valid.txt", line(0, 500, [1]), line(0, 501, [1]), line(2, 502, [1]))
    assert (
        "valid: 0 of 3 query groups remain (no_relevance 2, too_few_documents 1), expected at least one"
    ) in refusal(letor)
    write(letor.folder / "train.txt", b"\n")
    assert "train: 0 of 0 query groups remain" in refusal(letor)


def test_equal_labels_are_refused(letor):
    letor.task(tau=50.0)
    assert "all 240 documents of train have the label 0, expected labels that differ: set letor.tau (50)" in refusal(
        letor
    )


def test_a_malformed_line_stops_the_job(letor):
    with open(letor.folder / "test.txt", "ab") as file:
        file.write(b"1 qid:999 7:1\n")
    message = refusal(letor)
    assert f"{letor.folder}/test.txt, line 241: feature id is 7, expected a whole number from 1 to 6" in message


WRONG = {
    "features.title: LETOR files have only query, item_id, regular, privileged, label: remove it": {
        **features(4, 2), "title": {"type": "text", "level": "item"},
    },
    "features.query is context, text, regular, expected context, text, id": {
        **features(4, 2), "query": {"type": "text", "level": "context"},
    },
    "features.privileged is item, float, regular, expected item, float or bool, privileged": {
        **features(4, 2), "privileged": {"type": "float", "level": "item", "length": 2},
    },
    "features: item_id missing, expected as in configs/letor.yaml": {
        name: feature for name, feature in features(4, 2).items() if name != "item_id"
    },
    "features.label: type int, but letor.labels gumbel gives bool": features(4, 2, "int"),
}  # fmt: skip


@pytest.mark.parametrize("expected", WRONG)
def test_a_spec_that_letor_files_cannot_fill_is_refused(letor, expected):
    letor.task(WRONG[expected])
    assert expected in refusal(letor)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 0.0}, "letor.temperature is 0"),
        ({"labels": "click"}, "letor.labels is 'click'"),
        ({"min_documents": 0}, "letor.min_documents is 0"),
        ({"top": 3}, "letor.top is 3: unknown key"),
    ],
)
def test_a_wrong_option_is_refused(letor, options, expected):
    letor.task(**options)
    assert expected in refusal(letor)


def test_0_workers_are_refused(letor):
    assert "--workers is 0, expected 1 or more processes" in refusal(letor, workers=0)


def test_an_output_that_is_not_ours_is_not_replaced(letor):
    (letor.folder / "dataset").mkdir()
    write(letor.folder / "dataset" / "thesis.txt", b"years of work")
    with pytest.raises(InputError, match=r"holds files but no manifest\.json"):
        letor.build()
    assert contents(letor.folder / "dataset") == {"thesis.txt": b"years of work"}


def test_a_job_that_fails_in_a_process_leaves_the_former_dataset(letor):
    letor.build()
    first = contents(letor.folder / "dataset")
    write(letor.folder / "test.txt", *random_lines(range(900, 903), seed=5), b"garbage\n")
    with pytest.raises(InputError, match=r"test\.txt, line 37: relevance is 'garbage'"):
        letor.build(workers=2)
    assert contents(letor.folder / "dataset") == first
    assert not list(letor.folder.glob(".dataset.building*"))


def test_constant_features_and_near_copies_of_the_label_are_warned_of(letor):
    letor.task(features(3, 0, "int"), labels="graded")
    rows = [(grade, [grade, place, 7]) for grade in (0, 1, 2) for place in range(4)]
    write(letor.folder / "train.txt", *(line(grade, 1, row) for grade, row in rows))
    for split, query in (("valid", 1000), ("test", 1001)):
        write(letor.folder / f"{split}.txt", line(1, query, [1]), line(0, query, [2]))
    nearly, constant = letor.build().warnings
    assert nearly.startswith("regular feature 1 nearly equals the label (correlation 0.98")
    assert constant == "1 of the features are constant in train and carry no information: 3"


def test_a_feature_that_no_line_of_the_set_names_is_an_error_of_the_spec(letor):
    letor.task(features(6, 2))  # the files have 6 features
    with pytest.raises(InputError, match=r"no line of the files names feature 7, 8, expected features 1 to 8: .*\(6\)"):
        letor.build()
    assert not (letor.folder / "dataset").exists()


def test_a_feature_that_is_left_out_on_purpose_is_0_and_not_called_constant(letor):
    letor.task(features(6, 2), absent_features="zero")
    warnings = letor.build().warnings
    assert warnings[0] == "no line of the files names 2 of the features, which are 0: 7, 8"
    assert not [text for text in warnings if "constant" in text]


# ---- the command ----


def test_a_wrong_input_prints_an_error_and_exits_2(letor):
    done = subprocess.run([*COMMAND, *letor.arguments(test="no-*.txt")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: --test '{letor.folder}/no-*.txt' matches no file: give paths or globs of existing files\n"
    )


def test_the_command_prints_a_summary_and_help_shows_an_example(letor):
    done = subprocess.run([*COMMAND, *letor.arguments()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert "train: 20 groups (" in done.stdout
    assert "privileged features (correlation with the label): 2 (+0." in done.stdout
    assert f"wrote {letor.folder / 'dataset'}: 720 query-document pairs in " in done.stdout
    helped = subprocess.run([*COMMAND, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert "python -m beam_jobs.letor_to_elwc --config configs/letor.yaml" in helped.stdout


def test_the_job_does_not_import_tensorflow():
    code = "import sys, beam_jobs.letor_to_elwc; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT).returncode == 0
