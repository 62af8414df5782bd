"""A privileged feature drawn with the label, from the same pair of Gumbel draws (letor.privileged_tau)."""

import csv
import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs.letor.protocol import LetorOptions, LetorProtocol
from features.errors import InputError
from features.spec import spec_from_json
from tests.beam_jobs.datasets import groups, manifest_of, records
from tests.beam_jobs.letor_sets import LetorSet, features, random_lines, write
from tests.published import version_of

BOOL = {"type": "bool", "level": "item", "role": "privileged"}
SPEC = {**features(6, 0), "privileged": BOOL}
SPLITS = ("train", "valid", "test")


@pytest.fixture
def letor(tmp_path: Path) -> LetorSet:
    return LetorSet(tmp_path)


def build(letor: LetorSet, output: str, **options: Any) -> list[tuple[int, bool, bool]]:
    """The dataset's (relevance, z, label), a document each."""
    letor.task(SPEC, **options)
    letor.build(output)
    found = []
    for split in SPLITS:
        table = gzip.decompress((version_of(letor.folder / output) / split / "relevance.tsv.gz").read_bytes()).decode()
        relevance = [int(row["relevance"]) for row in csv.DictReader(table.splitlines(), delimiter="\t")]
        of_split = groups(letor.folder / output, "training", split).values()
        items = [item for group in of_split for item in group.items]
        found += [(r, i["privileged"], i["label"]) for r, i in zip(relevance, items, strict=True)]
    return found


def test_z_is_the_label_where_its_tau_is_the_labels(letor):
    documents = build(letor, "dataset", tau=1.3, privileged_tau=1.3)
    assert len(documents) == 720
    assert {(z, label) for _, z, label in documents} == {(False, False), (True, True)}


def test_z_is_1_wherever_the_label_is_and_more_often_where_its_tau_is_lower(letor):
    documents = build(letor, "dataset", tau=1.5, privileged_tau=0.5)
    assert all(z for _, z, label in documents if label)
    assert sum(z for _, z, _ in documents) > sum(label for _, _, label in documents) > 0


def test_z_comes_as_often_as_sigma_says_whatever_the_labels_tau(letor):
    write(letor.folder / "train.txt", *random_lines(range(200), seed=8))
    for split, first in (("valid", 1000), ("test", 2000)):
        write(letor.folder / f"{split}.txt", *random_lines(range(first, first + 20), seed=first))
    seen: dict[int, list[bool]] = defaultdict(list)
    for relevance, z, _ in build(letor, "dataset", tau=1.7, temperature=2.0, privileged_tau=0.6):
        seen[relevance].append(z)
    assert sorted(seen) == [0, 1, 2]
    for relevance, drawn in seen.items():
        expected = 1 / (1 + np.exp(-2.0 * (relevance - 0.6)))  # 0.23, 0.69 and 0.94, of some 960 documents each
        error = np.sqrt(expected * (1 - expected) / len(drawn))
        assert abs(np.mean(drawn) - expected) < 4 * error, relevance


def test_labels_features_and_order_are_what_they_were_without_z(letor):
    build(letor, "drawn", privileged_tau=0.5)
    letor.task(features(6, 0))
    letor.build("plain")
    for split in SPLITS:
        drawn, plain = (groups(letor.folder / name, "training", split) for name in ("drawn", "plain"))
        without_z = [[{k: v for k, v in i.items() if k != "privileged"} for i in g.items] for g in drawn.values()]
        assert without_z == [g.items for g in plain.values()]


def test_no_feature_of_the_files_is_privileged_and_z_is_not_served(letor, capsys):
    build(letor, "dataset", privileged_tau=0.5)
    dataset = letor.folder / "dataset"
    manifest = manifest_of(dataset)
    assert (manifest.options["regular"], manifest.options["privileged"]) == ([1, 2, 3, 4, 5, 6], [])
    assert manifest.options["privileged_tau"] == 0.5
    items = [item for group in groups(dataset, "training", "train").values() for item in group.items]
    assert manifest.splits["train"].features["privileged"].mean == pytest.approx(
        np.mean([i["privileged"] for i in items])
    )
    assert all(set(item) == {"regular"} for g in groups(dataset, "serving").values() for item in g.items)
    assert not any(b"privileged" in record for split in SPLITS for record in records(dataset, split, "serving"))
    assert "privileged features (correlation with the label): one, drawn like the label, with tau 0.5" in (
        capsys.readouterr().out
    )


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a float vector": (
        features(4, 2),
        {"privileged_tau": 1.0},
        "letor.privileged_tau is 1, but features.privileged is float: make it {type: bool",
    ),
    "nothing to hold z": (
        features(6, 0),
        {"privileged_tau": 1.0},
        "letor.privileged_tau is 1, but features.privileged is absent: make it {type: bool",
    ),
    "a bool and no tau": (
        SPEC,
        {},
        "features.privileged is bool, but letor.privileged_tau is not set",
    ),
    "labels that are not drawn": (
        {**features(6, 0, "int"), "privileged": BOOL},
        {"privileged_tau": 1.0, "labels": "graded"},
        "letor.privileged_tau is 1, but letor.labels is graded, which draws nothing",
    ),
}


@pytest.mark.parametrize(("spec", "options", "complaint"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_together_is_refused(spec, options, complaint):
    with pytest.raises(InputError) as raised:
        LetorProtocol(spec_from_json(spec), LetorOptions(**options), seed=1)
    assert complaint in str(raised.value)
