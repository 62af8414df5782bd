"""The job on real LETOR files, checked by counts in plain Python; skipped without the files."""

import gzip
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from beam_jobs import letor_to_elwc
from beam_jobs.letor.files import FilePart, read_documents
from tests.beam_jobs.datasets import groups, manifest_of
from tests.beam_jobs.letor_sets import DATA, ROOT
from tests.published import contents as published

FOLD_1 = {"train": "S[123].txt.gz", "valid": "S4.txt.gz", "test": "S5.txt.gz"}
SPLITS = list(FOLD_1)


def grades(split: str) -> dict[str, list[int]]:
    """qid -> relevance of its documents in the files."""
    found = defaultdict(list)
    for path in sorted((DATA / "mq2008").glob(FOLD_1[split])):
        for text in gzip.decompress(path.read_bytes()).decode().splitlines():
            relevance, query = text.split()[:2]
            found[query.removeprefix("qid:")].append(int(relevance))
    return found


@pytest.fixture(scope="module")
def mq2008(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (DATA / "mq2008").is_dir():
        pytest.skip(f"no MQ2008 in {DATA}")
    output = tmp_path_factory.mktemp("mq2008") / "dataset"
    files = [word for split, name in FOLD_1.items() for word in (f"--{split}", str(DATA / "mq2008" / name))]
    letor_to_elwc.main(["--config", str(ROOT / "configs" / "letor.yaml"), *files, "--output", str(output)])
    return output


@pytest.mark.parametrize("split", SPLITS)
def test_every_group_and_document_of_mq2008_is_in_its_split(mq2008, split):
    stays = {query: sorted(r) for query, r in grades(split).items() if any(r) and len(r) >= 5}
    lines = gzip.decompress(published(mq2008)[f"{split}/relevance.tsv.gz"]).decode().splitlines()[1:]
    found = defaultdict(list)
    for text in lines:
        query, _, relevance = text.split("\t")
        found[query].append(int(relevance))
    assert {query: sorted(r) for query, r in found.items()} == stays
    statistics = manifest_of(mq2008).splits[split]
    assert (statistics.groups, statistics.items) == (len(stays), sum(map(len, stays.values())))
    assert sorted(len(group.items) for group in groups(mq2008, "training", split).values()) == sorted(
        map(len, stays.values())
    )


def test_the_counts_of_mq2008_reconcile(mq2008):
    manifest = manifest_of(mq2008)
    all_read = [grades(split) for split in SPLITS]
    assert manifest.events["group"].read == sum(map(len, all_read)) == 784
    assert manifest.events["document"].read == sum(len(r) for read in all_read for r in read.values()) == 15_211
    for counts in manifest.events.values():
        assert counts.reconciles
        assert counts.read == counts.used + counts.unmatched


def test_the_label_rates_of_mq2008_equal_sigma(mq2008):
    seen: dict[int, list[bool]] = defaultdict(list)
    for split in SPLITS:
        lines = gzip.decompress(published(mq2008)[f"{split}/relevance.tsv.gz"]).decode().splitlines()[1:]
        items = [item for group in groups(mq2008, "training", split).values() for item in group.items]
        for text, item in zip(lines, items, strict=True):
            assert text.split("\t")[1] == item["item_id"]
            seen[int(text.split("\t")[2])].append(bool(item["label"]))
    for relevance, drawn in seen.items():
        expected = 1 / (1 + np.exp(-4 * (relevance - 2.4)))
        error = np.sqrt(expected * (1 - expected) / len(drawn))
        assert abs(np.mean(drawn) - expected) < 4 * error + 1 / len(drawn), relevance


@pytest.mark.parametrize(
    ("name", "queries", "documents"),
    [("mslr_web30k_fold1_36q.txt.gz", 36, 3634), ("mslr_107q.txt.xz", 107, 10_957)],
)
def test_a_file_of_mslr_is_parsed(name, queries, documents):
    path = DATA / "mslr" / name
    if not path.exists():
        pytest.skip(f"no {path}")
    read = list(read_documents(FilePart(str(path), 0, None), 136))
    assert len(read) == documents
    assert len({document.query for document in read}) == queries
    assert set(Counter(document.relevance for document in read)) == {0, 1, 2, 3, 4}
    assert np.isfinite([document.values for document in read]).all()
