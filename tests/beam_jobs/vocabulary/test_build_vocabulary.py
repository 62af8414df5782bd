import hashlib
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import build_vocabulary
from beam_jobs.joins.dataset_options import VocabularyOptions
from features.errors import InputError
from features.manifest import VocabularyManifest, parse_manifest
from tests.beam_jobs.datasets import build, write_task
from tests.beam_jobs.log_lines import impression, write_jsonl
from tests.features.specs import DEMO
from tests.published import version_of

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parents[3]
ALL_TRAIN: dict[str, Any] = {"splits": {"train": 1, "valid": 0, "test": 0}, "min_distinct_users": 2}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def item(item_id: str, title: str) -> dict[str, Any]:
    return {"item_id": item_id, "features": {"title": title}}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    rows = [
        impression("r1", "canapé", item("p1", "Velvet Sofa"), item("p2", "ＳＯＦＡ, Straße"), user="u1"),
        impression("r2", "Canapé", item("p1", "Velvet Sofa"), item("p3", "Velvet Sofa"), user="u2"),
        impression("r3", "zygote", item("p1", "velvet-like 中文"), item("p2", "sofa"), user="u1"),
    ]
    config = write_task(folder, dataset=ALL_TRAIN, vocabulary={"pieces": 128, "min_count": 1})
    build(config, write_jsonl(folder / "events.jsonl", *rows), folder / "dataset")
    return folder


def run(config: Path, dataset: Path, output: Path) -> tuple[list[str], VocabularyManifest]:
    build_vocabulary.main(["--config", str(config), "--dataset", str(dataset), "--output", str(output)])
    pieces = (version_of(output) / "vocabulary.txt").read_text().splitlines()
    return pieces, parse_manifest((output / "manifest.json").read_bytes(), "test", VocabularyManifest)


@pytest.fixture(scope="module")
def vocabulary(shop: Path) -> tuple[list[str], VocabularyManifest]:
    return run(shop / "task.yaml", shop / "dataset", shop / "vocabulary")


def test_the_special_pieces_come_first_and_no_piece_twice(vocabulary):
    pieces, manifest = vocabulary
    assert pieces[:4] == SPECIAL
    assert len(pieces) == len(set(pieces)) == manifest.pieces <= 128


def test_the_manifest_has_the_files_hash(shop, vocabulary):
    assert (
        vocabulary[1].sha256
        == hashlib.sha256((version_of(shop / "vocabulary") / "vocabulary.txt").read_bytes()).hexdigest()
    )


def test_words_are_normalised_as_the_model_reads_them(vocabulary):
    # lower-cased, accents and full-width forms composed away, punctuation and CJK characters on their own
    assert {"velvet", "sofa", "canape", "-", "中"} <= set(vocabulary[0])


def test_text_of_a_query_that_too_few_users_made_stays_out(vocabulary):
    # 'zygote' was made by one user; 'z' and 'y' occur nowhere else
    assert not [piece for piece in vocabulary[0] if "z" in piece or "y" in piece]


def test_the_models_tokeniser_knows_every_training_text(shop, vocabulary):
    import tensorflow as tf
    import tensorflow_text as tf_text

    pieces = vocabulary[0]
    tokenizer = tf_text.FastBertTokenizer(pieces, token_out_type=tf.string, lower_case_nfd_strip_accents=True)
    texts = tf.constant(["Velvet Sofa", "ＳＯＦＡ, Straße", "velvet-like 中文", "Canapé"])
    tokens = tokenizer.tokenize(tf_text.normalize_utf8(texts, "NFKC")).to_list()
    assert tokens[0] == [b"velvet", b"sofa"]
    assert not any(b"[UNK]" in row for row in tokens)


def test_words_are_split_as_the_models_tokeniser_splits_them():
    import tensorflow as tf
    import tensorflow_text as tf_text

    from beam_jobs.vocabulary.wordpiece import WordSplitter

    texts = [
        "ﬁne 12½ cm Ⅳ", "İstanbul ΑΣ ǅ", "don't—stop…now", "a\u200bb\u00adc\u0001d\ufeff", "中文字 ひらがな한국어",
        "e\u0301 \u0301x", "🛋️ sofa™ №5", "[CLS] [MASK]", "tab\tnew\nline\u3000wide", "مرحبا हिन्दी", "", "   ",
    ]  # fmt: skip
    words = WordSplitter().split(texts)
    pieces = [*SPECIAL, *sorted({word for row in words for word in row})]
    tokenizer = tf_text.FastBertTokenizer(pieces, token_out_type=tf.string, lower_case_nfd_strip_accents=True)
    tokens = tokenizer.tokenize(tf_text.normalize_utf8(tf.constant(texts), "NFKC")).to_list()
    assert [[token.decode() for token in row] for row in tokens] == words


def test_without_tensorflow_the_error_names_the_image_that_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.delitem(sys.modules, "beam_jobs.vocabulary.wordpiece", raising=False)
    with pytest.raises(InputError, match=r"the image `vocabulary`, or install locks/vocabulary\.txt"):
        importlib.import_module("beam_jobs.vocabulary.wordpiece")


def test_progress_prints_pieces_and_occurrences(capsys):
    from beam_jobs.joins.dataset_options import VocabularyOptions
    from beam_jobs.vocabulary.wordpiece import learn_pieces

    pieces = learn_pieces({f"sofa{n}": 1500 for n in range(10)}, VocabularyOptions(pieces=64))
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"  [\d,]+ pieces \(pairs merged down to [\d,]+ occurrences\)", lines[-1])
    assert len(pieces) <= 64


def test_item_text_counts_once_a_group_and_queries_once_a_request(shop, vocabulary):
    from beam_jobs.launch.beam_options import pipeline_options
    from beam_jobs.vocabulary.word_counts import count_words

    records = list(map(str, version_of(shop / "dataset").glob("train/serving_elwc-*")))
    counted = count_words(records, ["title"], [("canape", 2)], str(shop / "counts"), pipeline_options([]))
    # 'Velvet Sofa' is in r1 and, twice, in r2; 'sofa' besides in r1's other item and in r3
    assert (counted["velvet"], counted["sofa"], counted["canape"], counted["中"]) == (3, 4, 2, 1)


def test_a_second_run_is_up_to_date_and_other_options_run_again(shop, vocabulary, capsys, tmp_path):
    run(shop / "task.yaml", shop / "dataset", shop / "vocabulary")
    assert capsys.readouterr().out == f"up to date: {shop / 'vocabulary'}\n"
    config = write_task(tmp_path, dataset=ALL_TRAIN, vocabulary={"pieces": 100, "min_count": 1})
    assert len(run(config, shop / "dataset", shop / "vocabulary")[0]) <= 100


def test_a_task_without_text_gets_the_special_pieces(tmp_path, capsys):
    features = {name: fields for name, fields in DEMO.items() if name not in ("query", "title")}
    features["price"] = {"type": "float", "level": "item", "default": 0}
    config = write_task(tmp_path, features, dataset=ALL_TRAIN)
    build(config, write_jsonl(tmp_path / "events.jsonl", impression("r1", "sofa", "p1", "p2")), tmp_path / "dataset")
    assert run(config, tmp_path / "dataset", tmp_path / "vocabulary")[0] == SPECIAL
    assert "no regular text feature" in capsys.readouterr().out


def refusal(config: Path, dataset: Path, output: Path) -> str:
    with pytest.raises(InputError) as raised:
        build_vocabulary.main(["--config", str(config), "--dataset", str(dataset), "--output", str(output)])
    assert not output.exists()
    return str(raised.value)


def test_a_dataset_without_a_manifest_is_refused(shop, tmp_path):
    assert "has no manifest.json, expected a complete dataset" in refusal(
        shop / "task.yaml", tmp_path, tmp_path / "out"
    )


def test_a_dataset_of_other_features_is_refused_naming_the_first(shop, tmp_path):
    config = write_task(tmp_path, {**DEMO, "price": {"type": "float", "level": "item", "default": 0}})
    assert "price: present here, absent there" in refusal(config, shop / "dataset", tmp_path / "out")


def test_a_dataset_directory_is_not_overwritten_by_a_vocabulary(shop):
    with pytest.raises(InputError, match=r"expected kind 'vocabulary'|no vocabulary manifest"):
        run(shop / "task.yaml", shop / "dataset", shop / "dataset")
    assert (version_of(shop / "dataset") / "train").is_dir()


def test_too_few_pieces_for_the_alphabet_are_refused(tmp_path):
    from beam_jobs.vocabulary.wordpiece import learn_pieces

    words = {chr(code): 5 for code in range(ord("一"), ord("一") + 100)}
    with pytest.raises(
        InputError, match=r"vocabulary\.pieces is 64, expected at least 204: the text has 100 characters"
    ):
        learn_pieces(words, VocabularyOptions(pieces=64))


def test_frequent_words_become_whole_pieces_and_rare_ones_are_spelt():
    from beam_jobs.vocabulary.wordpiece import learn_pieces

    words = {"sofa": 1000, "lamp": 900, **{f"{a}{b}{c}q": 2 for a in "sofa" for b in "lamp" for c in "sofa"}}
    pieces = learn_pieces(words, VocabularyOptions(pieces=64))
    assert {"sofa", "lamp", "q", "##q"} <= set(pieces)
    assert len(pieces) <= 64


def test_a_process_with_a_wrong_dataset_exits_2(tmp_path):
    command = [
        sys.executable,
        "-m",
        "beam_jobs.build_vocabulary",
        "--config",
        str(ROOT / "configs/product_search.yaml"),
    ]
    done = subprocess.run(
        [*command, "--dataset", "nowhere", "--output", str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --dataset nowhere has no manifest.json")
    assert not list(tmp_path.iterdir())
